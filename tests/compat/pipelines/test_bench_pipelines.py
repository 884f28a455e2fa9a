"""The benchmark of pipelines runs. It is measured with by hand, so nothing else would notice that it broke."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import pipelines
from bench.connector import NoConnector
from bench.flink import FlinkJob
from bench.nodes import Node, Ottla
from bench.pipeline_jobs import CONNECTOR, FLINK, PIPELINE, REFERENCE, SOURCE, TO_PARQUET, TO_TOPIC, Run
from bench.pipelines import event, job_of
from bench.sizes import TINY
from peers.flink import NoFlink
from spark_archive import use_spark_archive

RECORDS = 1000
NO_JARS: dict[str, list[str]] = {PIPELINE: [], SOURCE: [], FLINK: []}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(Ottla({"log.retention.ms": -1}), tmp_path_factory.mktemp("bench"))
    pipelines.fill(node, RECORDS)
    yield node
    node.stop()


@pytest.mark.parametrize(("kind", "way"), [(TO_PARQUET, PIPELINE), (TO_PARQUET, SOURCE), (TO_TOPIC, PIPELINE)])
def test_every_way_brings_all_records_through(spark: SparkSession, filled: Node, kind: str, way: str) -> None:
    from bench.pipeline_load import run

    done = run(spark, job_of(filled, kind, way, RECORDS, NO_JARS))
    assert done["rows"] == RECORDS
    assert min(done["wall_s"], done["steady_s"], done["cpu_s"], done["broker_cpu_s"]) > 0


def test_flink_brings_every_window_through(filled: Node, tmp_path: Path) -> None:
    try:
        job = FlinkJob(job_of(filled, REFERENCE, FLINK, RECORDS, NO_JARS), tmp_path)
    except NoFlink as missing:
        pytest.skip(str(missing))
    try:
        job.start()
        done = job.run()
    finally:
        job.stop()
    events = [json.loads(event(number, RECORDS)) for number in range(RECORDS)]
    minute = len("2026-01-01T00:00")
    assert done["rows"] == len({(e["city"], e["event_time"][:minute]) for e in events if e["total"] >= 10})
    assert min(done["wall_s"], done["steady_s"], done["cpu_s"], done["broker_cpu_s"]) > 0


def test_part_says_what_it_found_and_what_it_could_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference job in a process of its own, without the connector and without Flink."""

    def no_connector() -> list[Path]:
        raise NoConnector("the registry is closed")

    def no_flink() -> Path:
        raise NoFlink("there is no Java")

    monkeypatch.setattr(pipelines, "connector_jars", no_connector)
    monkeypatch.setattr(pipelines, "flink_jars", no_flink)
    use_spark_archive()
    section = pipelines.run(replace(TINY, load=REFERENCE))
    (table,) = section.tables
    assert [row[:2] for row in table.rows] == [("Ottla, reference job", "pipeline")]
    assert "connector is not to be had, and nothing is compared with it: the registry is closed" in section.findings[0]
    assert "Flink is not to be had, and nothing is compared with it: there is no Java" in section.findings[1]
    assert section.findings[2].startswith("The broker holds nobody up: it was on the CPU for ")


def test_aims_are_held_against_the_best_runs() -> None:
    def took(steady_s: float, broker_cpu_s: float) -> Run:
        return Run(wall_s=9.0, steady_s=steady_s, cpu_s=4.0, broker_cpu_s=broker_cpu_s, rows=1)

    told = pipelines.findings(
        {
            ("Kafka", TO_PARQUET, SOURCE): took(2.0, 0.5),
            ("Kafka", TO_PARQUET, CONNECTOR): took(1.0, 0.6),
            ("Kafka", TO_TOPIC, PIPELINE): took(1.0, 0.1),
            ("Kafka", TO_TOPIC, CONNECTOR): took(1.5, 0.1),
            ("Kafka", REFERENCE, PIPELINE): took(4.0, 0.1),
            ("Kafka", REFERENCE, FLINK): took(1.0, 0.1),
        }
    )
    source, sink, flink, broker = told
    assert "our source against the connector's" in source
    assert "0.50 x the records a second, 1.00 x the CPU seconds; aim 1.0 x the records or more: MISSED" in source
    assert "1.50 x the records a second, 1.00 x the CPU seconds; aim 1.0 x the records or more: met" in sink
    assert flink.endswith("both exactly once: 0.25 x the records a second, 1.00 x the CPU seconds.")
    assert "60% of the time at most (Kafka, topic to parquet, connector), aim 50% or less: MISSED" in broker
