"""The Delta sink: writes to a Delta table, whose log keeps an (application, version) pair with every commit.

Rule 1: the pair is the checkpoint and the epoch. Rows and pair are one commit, also of an upsert (a merge) and of an
        epoch without rows. If two runs write the same epoch, the log refuses the second.
Rule 2: the epoch that the log has is already written, and the next one is due. Any other epoch is refused.
Rule 3: of an epoch's rows that are equal in the upsert columns one is written. The choice does not depend on the order
        in which the rows came.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.sink.writing import EpochResult, RunContext, is_due
from ottla.pipelines.spec.keys import PARTITION_BY, SINK_INPUT, UPSERT, TableForm, TableKey
from ottla.pipelines.spec.model import Sink
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.sinks import SinkKind, SparkNeeds, listed_columns
from ottla.pipelines.spec.values import PATH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
_RANK: Final = "_ottla_rank"
_EPOCH_ROWS: Final = "ottla_epoch_rows"
_APPLICATION, _VERSION = "txnAppId", "txnVersion"
_SETTING: Final = "spark.databricks.delta.write."
"""The prefix of settings that set the pair for statements without options, such as MERGE."""


@dataclass(frozen=True)
class DeltaSink(Sink):
    path: str
    partition_by: tuple[str, ...]
    upsert: tuple[str, ...]


class DeltaWriter:
    def __init__(self, sink: DeltaSink, run: RunContext) -> None:
        self._sink = sink
        self._path = resolved(run.directory, sink.path)
        self._application = f"{run.identity.group_id}.{sink.name}.{run.checkpoint_id}"

    def begin(self) -> None:
        """Nothing to take over: if two runs write the same epoch, the table's log refuses the second."""

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        snapshot = self._snapshot(rows.sparkSession)
        if not is_due(self._sink.name, epoch, self._written(snapshot), f"the log of table {self._path}"):
            return EpochResult(0, skipped=1)
        kept = rows.persist()
        try:
            count = kept.count()
            if not self._sink.upsert:
                self._add(kept, epoch)
            elif snapshot.version() < 0:
                self._add(self._one_of_each(kept), epoch)
            else:
                self._merge(self._one_of_each(kept), epoch)
        finally:
            kept.unpersist()
        return EpochResult(count)

    def _snapshot(self, spark: "SparkSession") -> Any:
        """The table's present state by its log; the version is -1 if there is no table."""
        jvm: Any = spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self._path)
        defaults = (getattr(log, f"update$default${place}")() for place in (1, 2, 3))  # Scala's default arguments.
        return log.update(*defaults)

    def _written(self, snapshot: Any) -> int:
        """The last epoch that the table has; -1 if it has none."""
        found = snapshot.transactions().get(self._application)
        return int(found.get()) if found.isDefined() else -1

    def _add(self, rows: "DataFrame", epoch: int) -> None:
        writer = rows.write.format("delta").mode("append")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.option(_APPLICATION, self._application).option(_VERSION, str(epoch)).save(self._path)

    def _one_of_each(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        order = F.to_json(F.struct("*")).desc()
        ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*self._sink.upsert).orderBy(order)))
        return ranked.where(F.col(_RANK) == 1).drop(_RANK)

    def _merge(self, rows: "DataFrame", epoch: int) -> None:
        rows.createOrReplaceTempView(_EPOCH_ROWS)
        same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in self._sink.upsert)
        settings = rows.sparkSession.conf
        settings.set(_SETTING + _APPLICATION, self._application)
        settings.set(_SETTING + _VERSION, str(epoch))
        try:
            rows.sparkSession.sql(
                f"MERGE INTO delta.`{self._path}` t USING {_EPOCH_ROWS} s ON {same} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        finally:  # Other sinks write in this session too.
            for name in (_APPLICATION, _VERSION):
                settings.unset(_SETTING + name)


def _describe(sink: DeltaSink) -> Iterator[str]:
    yield f"delta {sink.path}"
    yield from listed_columns("partitioned by", sink.partition_by)
    yield from listed_columns("upsert by", sink.upsert)


KIND = SinkKind(
    form=TableForm(
        "a Delta sink",
        ("delta",),
        (
            TableKey(
                "delta", PATH, "The table's directory.", required=True, field="path", is_target=True, exclusive=True
            ),
            SINK_INPUT,
            PARTITION_BY,
            UPSERT,
        ),
        DeltaSink,
    ),
    writer=lambda sink, run, _spark: DeltaWriter(sink, run),
    describe=_describe,
    epoch_doc="the commit itself, in the table's log (`txnAppId`, `txnVersion`); an upsert is a merge with the same",
    spark=SparkNeeds(
        packages=(PACKAGE,),
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        partition_settings=("spark.databricks.delta.snapshotPartitions",),
    ),
)
