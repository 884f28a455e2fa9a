"""Rows on the terminal, for a look at what a pipeline does. Nothing keeps what was printed: an epoch that is done again
is printed again."""

from pyspark.sql import DataFrame

from ottla.pipelines.spark.sinks.writing import Outcome
from ottla.pipelines.spec import ConsoleSink


class ConsoleWriter:
    def __init__(self, sink: ConsoleSink) -> None:
        self._sink = sink

    def begin(self) -> None:
        """There is nobody to take over from."""

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        shown = rows.limit(self._sink.rows).collect()
        if shown:
            print(f"{self._sink.name}, epoch {epoch}", flush=True)
            rows.sparkSession.createDataFrame(shown, rows.schema).show(self._sink.rows, truncate=False)
        return Outcome(len(shown))
