"""What each sink makes of an epoch that is written twice, half or by two runs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from postgres_server import Postgres
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from runner_files import pipeline_in, run_once, write_lines

from ottla.pipelines.run.checkpoint import Checkpoint, CheckpointRefused, RunFenced
from ottla.pipelines.sink import parquet
from ottla.pipelines.sink.parquet import ParquetSink, ParquetWriter
from ottla.pipelines.sink.postgres import PostgresSink, PostgresWriter
from ottla.pipelines.sink.writing import EpochResult, RunContext, SinkRefused
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import DeliveryGuarantee

COLUMNS = "city STRING, n BIGINT, at TIMESTAMP, tags ARRAY<STRING>, w STRUCT<a: INT>"
AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


def rows_of(spark: SparkSession, *cities: str, n: int = 1) -> DataFrame:
    return spark.createDataFrame([(city, n, AT, ["x", "y"], (7,)) for city in cities], COLUMNS).coalesce(1)


def run_at(home: Path, name: str = "1", checkpoint_id: str = "c1") -> RunContext:
    return RunContext(
        PipelineIdentity("shop"), name, checkpoint_id, "127.0.0.1:1", DeliveryGuarantee.EXACTLY_ONCE, str(home)
    )


class TestParquet:
    @pytest.fixture
    def writer(self, spark: SparkSession, tmp_path: Path) -> ParquetWriter:
        return ParquetWriter(ParquetSink("out", "orders", "out", ("city",)), run_at(tmp_path), spark)

    def cities(self, home: Path) -> list[str]:
        """As a reader sees them that knows nothing of pipelines."""
        return sorted(pq.read_table(home / "out").column("city").to_pylist())

    def test_epoch_that_is_written_twice_is_there_once(
        self, spark: SparkSession, writer: ParquetWriter, tmp_path: Path
    ) -> None:
        assert writer.write(rows_of(spark, "Berne", "Chur"), 0) == EpochResult(2)
        assert writer.write(rows_of(spark, "Berne", "Chur"), 0) == EpochResult(0, skipped=1)
        assert writer.write(rows_of(spark, "Berne"), 1) == EpochResult(1)
        assert self.cities(tmp_path) == ["Berne", "Berne", "Chur"]
        with pytest.raises(SinkRefused, match="those up to 1 are there: the checkpoint is older"):
            writer.write(rows_of(spark, "Berne", "Chur"), 0)
        with pytest.raises(SinkRefused, match="none is there: that is older than the checkpoint"):
            writer.write(rows_of(spark, "Berne", "Chur"), 3)

    def test_epoch_that_was_cut_off_is_finished_from_what_it_left(
        self, spark: SparkSession, writer: ParquetWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the first of its files: it is neither lost nor doubled, and nothing is computed again."""

        def moving(self: Any, source: str, target: str, really: Any = parquet._Files.move) -> None:
            if "Chur" in target:
                raise OSError("cut off")
            really(self, source, target)

        with monkeypatch.context() as patched:
            patched.setattr(parquet._Files, "move", moving)
            with pytest.raises(OSError, match="cut off"):
                writer.write(rows_of(spark, "Berne", "Chur"), 0)
        assert self.cities(tmp_path) == ["Berne"]
        assert writer.write(rows_of(spark, "not", "computed", "again"), 0) == EpochResult(2)
        assert self.cities(tmp_path) == ["Berne", "Chur"]

    def test_runs_that_write_one_epoch_do_not_mix_their_files(
        self, spark: SparkSession, writer: ParquetWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An older run that stood still in the middle of the epoch wakes up when the next one has written it."""
        later = ParquetWriter(ParquetSink("out", "orders", "out", ("city",)), run_at(tmp_path, "2"), spark)

        def overtaken(rows: DataFrame, staged: str, really: Any = writer._stage) -> None:
            really(rows, staged)
            assert later.write(rows, 0) == EpochResult(2)

        monkeypatch.setattr(writer, "_stage", overtaken)
        with pytest.raises(OSError, match="cannot be renamed"):
            writer.write(rows_of(spark, "Berne", "Chur"), 0)
        assert self.cities(tmp_path) == ["Berne", "Chur"]
        assert later.write(rows_of(spark, "Berne", "Chur"), 0) == EpochResult(0, skipped=1)

    def test_what_a_killed_run_left_is_deleted(
        self, spark: SparkSession, writer: ParquetWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And a run that was only thought dead goes no further."""
        later = ParquetWriter(ParquetSink("out", "orders", "out", ("city",)), run_at(tmp_path, "2"), spark)

        def replaced(rows: DataFrame, staged: str, really: Any = writer._stage) -> None:
            really(rows, staged)
            later.begin()

        monkeypatch.setattr(writer, "_stage", replaced)
        with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
            writer.write(rows_of(spark, "Berne"), 0)
        assert not list((tmp_path / "out").glob("_ottla/*/*"))
        assert later.write(rows_of(spark, "Berne"), 0) == EpochResult(1)
        assert self.cities(tmp_path) == ["Berne"]

    def test_epoch_without_rows_leaves_no_file(
        self, spark: SparkSession, writer: ParquetWriter, tmp_path: Path
    ) -> None:
        assert writer.write(rows_of(spark, "Berne").where("n = 0"), 0) == EpochResult(0)
        assert not list((tmp_path / "out").glob("**/*.parquet"))


class TestPostgres:
    @pytest.fixture(autouse=True)
    def _empty(self, postgres: Postgres) -> None:
        with psycopg.connect(postgres.url) as connection:
            connection.execute("DROP TABLE IF EXISTS ottla_epochs, cities")

    def writer(self, postgres: Postgres, run: RunContext, *upsert: str) -> PostgresWriter:
        writer = PostgresWriter(PostgresSink("out", "orders", postgres.url, "cities", upsert, ""), run)
        writer.begin()
        return writer

    def found(self, postgres: Postgres) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.url) as connection:
            return connection.execute("SELECT city, n FROM cities ORDER BY 1, 2").fetchall()

    def test_epoch_that_is_written_twice_is_there_once(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path
    ) -> None:
        writer = self.writer(postgres, run_at(tmp_path))
        assert writer.write(rows_of(spark, "Berne", "Chur"), 0) == EpochResult(2)
        assert writer.write(rows_of(spark, "Berne", "Chur"), 0) == EpochResult(0, skipped=1)
        assert self.writer(postgres, run_at(tmp_path, "2")).write(rows_of(spark, "Berne"), 1) == EpochResult(1)
        assert self.found(postgres) == [("Berne", 1), ("Berne", 1), ("Chur", 1)]
        with psycopg.connect(postgres.url) as connection:
            kept = connection.execute("SELECT at, tags, w FROM cities WHERE city = 'Chur'").fetchone()
        assert kept == (AT, ["x", "y"], {"a": 7})  # In the zone it was in, whatever this machine's is.

    def test_upsert_replaces_and_the_last_row_of_an_epoch_counts(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path
    ) -> None:
        writer = self.writer(postgres, run_at(tmp_path), "city")
        writer.write(rows_of(spark, "Berne", "Chur"), 0)
        writer.write(rows_of(spark, "Berne", n=2).union(rows_of(spark, "Berne", n=3)).coalesce(1), 1)
        assert self.found(postgres) == [("Berne", 3), ("Chur", 1)]

    def test_older_run_is_fenced(self, spark: SparkSession, postgres: Postgres, tmp_path: Path) -> None:
        older = self.writer(postgres, run_at(tmp_path, "1"))
        self.writer(postgres, run_at(tmp_path, "2"))
        with pytest.raises(RunFenced, match="another run of the pipeline took over"):
            older.write(rows_of(spark, "Berne"), 0)

    def test_epochs_of_another_history_are_refused(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path
    ) -> None:
        """They would be skipped for ever, or leave a hole, and nobody would know."""
        writer = self.writer(postgres, run_at(tmp_path))
        writer.write(rows_of(spark, "Berne"), 0)
        with pytest.raises(SinkRefused, match="those up to 0 are there: that is older than the checkpoint"):
            writer.write(rows_of(spark, "Berne"), 2)
        writer.write(rows_of(spark, "Berne"), 1)
        with pytest.raises(SinkRefused, match="those up to 1 are there: the checkpoint is older"):
            writer.write(rows_of(spark, "Berne"), 0)
        with pytest.raises(SinkRefused, match="written by a run with another checkpoint"):
            self.writer(postgres, run_at(tmp_path, "2", "c2"))

    def test_user_who_may_not_write_is_told_at_once(self, postgres: Postgres, tmp_path: Path) -> None:
        """The database says the same at every attempt."""
        with psycopg.connect(postgres.url) as connection:
            connection.execute("DROP ROLE IF EXISTS reader")
            connection.execute("CREATE ROLE reader LOGIN")
        sink = PostgresSink("out", "orders", postgres.url.replace("shop@", "reader@"), "cities", (), "")
        with pytest.raises(SinkRefused, match="sink out: table ottla_epochs: permission denied"):
            PostgresWriter(sink, run_at(tmp_path)).begin()

    def test_row_that_the_table_does_not_take_stops_with_its_reason(
        self, spark: SparkSession, postgres: Postgres, tmp_path: Path
    ) -> None:
        writer = self.writer(postgres, run_at(tmp_path))
        with pytest.raises(SinkRefused, match=r"sink out: table cities: .*NUL"):
            writer.write(rows_of(spark, "Ber\0ne"), 0)
        assert writer.write(rows_of(spark, "Berne"), 0) == EpochResult(1)


PIPELINE = """
name = "again"
[source.lines]
files = "in"
parse = "text"
[sink.out]
parquet = "out"
"""


def test_query_that_fails_begins_again_and_ends_what_it_began(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk, a database or a broker that is gone for a moment stops nobody."""
    pipeline = pipeline_in(tmp_path, PIPELINE)
    write_lines(tmp_path / "in" / "1.txt", ["a", "b"])
    epochs: list[int] = []

    def failing(self: ParquetWriter, rows: DataFrame, epoch: int, really: Any = ParquetWriter.write) -> EpochResult:
        epochs.append(epoch)
        if len(epochs) == 1:
            raise OSError("the disk is gone")
        outcome: EpochResult = really(self, rows, epoch)
        return outcome

    monkeypatch.setattr(ParquetWriter, "write", failing)
    status = run_once(spark, tmp_path, pipeline)
    assert (status.state, status.sinks["out"].restarts, status.sinks["out"].error) == ("finished", 1, "")
    assert epochs == [0, 0]
    assert sorted(pq.read_table(tmp_path / "out").column("value").to_pylist()) == ["a", "b"]

    changed = pipeline_in(tmp_path, PIPELINE.replace('"out"', '"elsewhere"'))
    with pytest.raises(CheckpointRefused, match="Sink out wrote to out and now to elsewhere"):
        run_once(spark, tmp_path, changed)


def test_query_that_spark_does_not_understand_is_given_up_at_once(spark: SparkSession, tmp_path: Path) -> None:
    text = PIPELINE.replace("[sink.out]", '[[step]]\nsql = "SELECT no_such_column FROM lines"\n[sink.out]')
    pipeline = pipeline_in(tmp_path, text)
    (tmp_path / "in").mkdir()
    with pytest.raises(AnalysisException, match="no_such_column"):
        run_once(spark, tmp_path, pipeline)
    told = Checkpoint(str(tmp_path / "checkpoints" / "again")).status()
    assert told is not None
    assert told.state == "failed"
    assert "no_such_column" in told.reason
    assert "\n" not in told.reason
