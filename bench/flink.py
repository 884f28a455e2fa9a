"""The reference job in Flink SQL, in its own JVM: with checkpoints, exactly once."""

from pathlib import Path
from typing import Final

from peers.flink import FlinkSql

from bench.nodes import cpu_s_of
from bench.pipeline_jobs import Did, Job, Run, measured

SETTINGS: Final = {
    "parallelism.default": "2",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.interval": "1 s",
}
"""The end of a bounded job waits for the next checkpoint, so the interval is short."""
JAVA_OPTIONS: Final = ("-Xmx1g",)
"""As much as Spark's driver has."""
TO_THE_END: Final = {"scan.bounded.mode": "latest-offset"}
_START_S_MAX: Final = 300.0
_RUN_S_MAX: Final = 300.0

_SOURCE: Final = """
CREATE TABLE {name} (
  id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP_LTZ(3), note STRING,
  WATERMARK FOR event_time AS event_time - INTERVAL '60' SECOND
) WITH ({options})
"""
_SINK: Final = """
CREATE TABLE {name} (city STRING, w_start TIMESTAMP(3), w_end TIMESTAMP(3), n BIGINT, total DOUBLE) WITH ({options})
"""
_INSERT: Final = """
INSERT INTO {target}
SELECT city, window_start, window_end, count(*), sum(total)
FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(event_time), INTERVAL '60' SECOND))
WHERE total >= 10 GROUP BY window_start, window_end, city
"""


def source_table(name: str, bootstrap: str, topic: str, more: dict[str, str] | None = None) -> str:
    """The committed records of a topic of JSON records, from its beginning."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    return _SOURCE.format(name=name, options=_options(options | (more or {})))


def sink_table(name: str, bootstrap: str, topic: str, more: dict[str, str] | None = None) -> str:
    """A topic that gets each result once: in transactions that are committed with the checkpoint."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap,
        "properties.transaction.timeout.ms": "600000",
        "key.format": "raw",
        "key.fields": "city",
        "value.format": "json",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
    }
    return _SINK.format(name=name, options=_options(options | (more or {})))


def reference_job(source: str, target: str) -> str:
    return _INSERT.format(source=source, target=target)


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


class FlinkJob:
    """The reference job, run repeatedly in one JVM."""

    def __init__(self, job: Job, home: Path) -> None:
        """May raise NoFlink."""
        self._job = job
        self._flink = FlinkSql(home, SETTINGS, JAVA_OPTIONS)
        self.stop = self._flink.stop

    def start(self) -> None:
        self._flink.wait_until_ready(_START_S_MAX)
        self._execute(source_table("events", self._job["bootstrap"], self._job["topic"], TO_THE_END))

    def run(self) -> Run:
        return measured(self._job, self._insert, lambda: cpu_s_of(self._flink.pid))

    def _insert(self, name: str) -> Did:
        self._execute(sink_table(f"`{name}`", self._job["bootstrap"], name))
        return Did(self._execute(reference_job("events", f"`{name}`")), rows=None)

    def _execute(self, statement: str) -> float:
        return self._flink.execute(statement, _RUN_S_MAX).job_s
