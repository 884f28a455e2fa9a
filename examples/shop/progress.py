"""What Spark itself tells of the queries: how far their clocks are, and how many events came too late for them."""

import json
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class Progress:
    """Looked at from the thread that runs the pipeline; read from any."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, StreamingQuery] = {}
        self._late: dict[str, dict[int, int]] = {}
        self._watermark_ms: dict[str, int] = {}

    def look(self) -> None:
        """A query that has been stopped still tells of its last epochs."""
        for query in self._spark.streams.active:
            self._queries[str(query.name)] = query
        for name, query in self._queries.items():
            sink = name.rsplit(".", 2)[1]  # Named for the pipeline, the sink and the run.
            for progress in query.recentProgress:
                self._take(sink, json.loads(progress.json))

    def late(self, sink: str) -> int:
        return sum(self._late.get(sink, {}).values())

    def watermark_ms(self, sinks: list[str]) -> int:
        """Whatever happened before is final in all of these sinks."""
        return min(self._watermark_ms.get(sink, 0) for sink in sinks)

    def _take(self, sink: str, told: dict[str, Any]) -> None:
        dropped = sum(operator["numRowsDroppedByWatermark"] for operator in told["stateOperators"])
        self._late.setdefault(sink, {})[told["batchId"]] = dropped
        if "watermark" in told.get("eventTime", {}):
            moment = datetime.fromisoformat(told["eventTime"]["watermark"])
            self._watermark_ms[sink] = max(self._watermark_ms.get(sink, 0), int(moment.timestamp() * 1000))
