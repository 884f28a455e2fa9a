"""Rows into a Delta table. Its log keeps (application, version) with every commit: here the checkpoint and the epoch.

Rule 1: rows and that pair are one commit, of an upsert (a merge) too, and of an epoch without rows. So of two runs
        that write one epoch the log refuses the second.
Rule 2: the log's epoch is there already, the next one is due. Any other is refused.
Rule 3: of the rows of an epoch that are equal in the upsert columns one is taken, by an order that does not depend on
        how they came.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.window import Window

from ottla.pipelines.paths import resolved
from ottla.pipelines.spark.sinks.writing import Outcome, Run, is_due
from ottla.pipelines.spec import DeltaSink

_RANK: Final = "_ottla_rank"
_EPOCH_ROWS: Final = "ottla_epoch_rows"
_APPLICATION, _VERSION = "txnAppId", "txnVersion"
_SETTING: Final = "spark.databricks.delta.write."
"""Before the names of the pair, for statements that take no options."""


class DeltaWriter:
    def __init__(self, sink: DeltaSink, run: Run) -> None:
        self._sink = sink
        self._path = resolved(run.directory, sink.path)
        self._application = f"{run.identity.group_id}.{sink.name}.{run.checkpoint_id}"

    def begin(self) -> None:
        """Two runs cannot write one version twice: the log refuses the second."""

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        snapshot = self._snapshot(rows.sparkSession)
        if not is_due(self._sink.name, epoch, self._written(snapshot), f"the log of table {self._path}"):
            return Outcome(0, skipped=1)
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
        return Outcome(count)

    def _snapshot(self, spark: SparkSession) -> Any:
        """What the table's log says now; its version is -1 where there is no table."""
        jvm: Any = spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self._path)
        defaults = (getattr(log, f"update$default${place}")() for place in (1, 2, 3))  # As Scala calls them.
        return log.update(*defaults)

    def _written(self, snapshot: Any) -> int:
        """The last epoch that the table has."""
        found = snapshot.transactions().get(self._application)
        return int(found.get()) if found.isDefined() else -1

    def _add(self, rows: DataFrame, epoch: int) -> None:
        writer = rows.write.format("delta").mode("append")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.option(_APPLICATION, self._application).option(_VERSION, str(epoch)).save(self._path)

    def _one_of_each(self, rows: DataFrame) -> DataFrame:
        order = F.to_json(F.struct("*")).desc()
        ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*self._sink.upsert).orderBy(order)))
        return ranked.where(F.col(_RANK) == 1).drop(_RANK)

    def _merge(self, rows: DataFrame, epoch: int) -> None:
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
        finally:  # Whoever writes next in this session is not this sink.
            for name in (_APPLICATION, _VERSION):
                settings.unset(_SETTING + name)
