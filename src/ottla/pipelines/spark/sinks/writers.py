"""Which writer a sink has."""

from pyspark.sql import SparkSession

from ottla.pipelines.spark.sinks.console import ConsoleWriter
from ottla.pipelines.spark.sinks.delta import DeltaWriter
from ottla.pipelines.spark.sinks.parquet import ParquetWriter
from ottla.pipelines.spark.sinks.postgres import PostgresWriter
from ottla.pipelines.spark.sinks.topic import TopicWriter
from ottla.pipelines.spark.sinks.writing import Run, SinkWriter
from ottla.pipelines.spec import ConsoleSink, DeltaSink, ParquetSink, PostgresSink, Sink, TopicSink


def writer_of(sink: Sink, run: Run, spark: SparkSession) -> SinkWriter:
    match sink:
        case TopicSink():
            return TopicWriter(sink, run)
        case ParquetSink():
            return ParquetWriter(sink, run, spark)
        case DeltaSink():
            return DeltaWriter(sink, run)
        case PostgresSink():
            return PostgresWriter(sink, run)
        case ConsoleSink():
            return ConsoleWriter(sink)


def output_modes(sink: Sink) -> tuple[str, str]:
    """In the order of preference; the second where Spark cannot do the first.

    Who replaces rows takes every change as it comes; who adds rows takes results when they are final, if a watermark
    says when that is.
    """
    return ("update", "append") if getattr(sink, "upsert", ()) else ("append", "update")
