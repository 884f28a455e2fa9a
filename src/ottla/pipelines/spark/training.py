"""Steps that train: keeps all rows so far in the sink's checkpoint, epoch by epoch, and computes the results from them.

Rule 1: an epoch's rows are written before anything is computed from them, and replace those of an earlier attempt. So
        a repeated epoch trains on the same rows.
"""

import os

from pyspark.sql import DataFrame

from ottla.pipelines.spark.build import SinkQuery
from ottla.pipelines.spark.records import records_of
from ottla.pipelines.spec.model import TopicSink


def results_of_epoch(query: SinkQuery, rows: DataFrame, epoch: int, directory: str) -> DataFrame:
    """Keep the rows of the epoch, train on all rows so far, and return the rows or records that the sink writes."""
    rows.write.mode("overwrite").parquet(_kept(directory, epoch))
    epochs = [_kept(directory, one) for one in range(epoch + 1)]
    there = [path for path in epochs if os.path.isdir(path)]
    return results(query, rows.sparkSession.read.schema(rows.schema).parquet(*there))


def results(query: SinkQuery, rows: DataFrame) -> DataFrame:
    """Train on `rows`, which are all rows so far; returns the rows or records that the sink writes."""
    assert query.training is not None, "the query has no step that trains"
    made = query.training.results(rows, query.sink.input)
    return records_of(made, query.sink) if isinstance(query.sink, TopicSink) else made


def _kept(directory: str, epoch: int) -> str:
    return os.path.join(directory, f"epoch-{epoch}")
