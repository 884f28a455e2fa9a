"""Steps that train: all rows so far, kept epoch by epoch in the sink's checkpoint, and the results of training on them.

Rule 1: an epoch's rows are kept before anything is computed of them, over those that an attempt before may have left:
        the same epoch trains on the same rows.
"""

import os

from pyspark.sql import DataFrame

from ottla.pipelines.spark.build import SinkQuery
from ottla.pipelines.spark.records import records_of
from ottla.pipelines.spec import TopicSink


def results_of_epoch(query: SinkQuery, rows: DataFrame, epoch: int, directory: str) -> DataFrame:
    """What the sink is to write."""
    rows.write.mode("overwrite").parquet(_kept(directory, epoch))
    epochs = [_kept(directory, one) for one in range(epoch + 1)]
    there = [path for path in epochs if os.path.isdir(path)]
    return results(query, rows.sparkSession.read.schema(rows.schema).parquet(*there))


def results(query: SinkQuery, rows: DataFrame) -> DataFrame:
    """Of all the rows there are."""
    assert query.training is not None, "asked for those that have one"
    made = query.training.results(rows, query.sink.input)
    return records_of(made, query.sink) if isinstance(query.sink, TopicSink) else made


def _kept(directory: str, epoch: int) -> str:
    return os.path.join(directory, f"epoch-{epoch}")
