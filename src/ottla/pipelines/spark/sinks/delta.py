"""Rows into a Delta table. Its log keeps (application, version) with every commit: here the checkpoint and the epoch.

Rule 1: rows are added with that pair; an epoch that is in the log is not added again.
Rule 2: an upsert is a merge. Doing it again changes nothing: of the rows of an epoch that are equal in the key one is
        taken, by an order that does not depend on how they came.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.window import Window

from ottla.pipelines.paths import resolved
from ottla.pipelines.spark.sinks.writing import Outcome, Run
from ottla.pipelines.spec import DeltaSink

_RANK = "_ottla_rank"
_EPOCH_ROWS = "ottla_epoch_rows"


class DeltaWriter:
    def __init__(self, sink: DeltaSink, run: Run) -> None:
        self._sink = sink
        self._path = resolved(run.directory, sink.path)
        self._application = f"{run.identity.group_id}.{sink.name}.{run.checkpoint_id}"

    def begin(self) -> None:
        """Two runs cannot write one version twice: the log refuses the second."""

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        kept = rows.persist()
        try:
            count = kept.count()
            if not self._sink.upsert or not self._exists(kept):
                self._add(kept if not self._sink.upsert else self._one_of_each(kept), epoch)
            else:
                self._merge(self._one_of_each(kept))
        finally:
            kept.unpersist()
        return Outcome(count)

    def _add(self, rows: DataFrame, epoch: int) -> None:
        writer = rows.write.format("delta").mode("append")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.option("txnAppId", self._application).option("txnVersion", str(epoch)).save(self._path)

    def _exists(self, rows: DataFrame) -> bool:
        jvm = rows.sparkSession._jvm
        assert jvm is not None, "sessions here are classic ones"
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(rows.sparkSession._jsparkSession, self._path))

    def _one_of_each(self, rows: DataFrame) -> DataFrame:
        order = F.to_json(F.struct("*")).desc()
        ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*self._sink.upsert).orderBy(order)))
        return ranked.where(F.col(_RANK) == 1).drop(_RANK)

    def _merge(self, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(_EPOCH_ROWS)
        same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in self._sink.upsert)
        rows.sparkSession.sql(
            f"MERGE INTO delta.`{self._path}` t USING {_EPOCH_ROWS} s ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
