"""The streaming query of one sink: starts it, watches it, and restarts it when it fails.

Rule 1: before every epoch it is checked whether this run still owns the checkpoint and is not to stop.
Rule 2: a failed query is restarted after a wait, with the epoch that it did not finish; see `run/failures`.
Rule 3: stopping lets the epoch that is being written end, unless that takes too long.
"""

import json
import os
import threading
import time
from collections import deque
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.core.names import TopicPartition
from ottla.observe.trace import trace, warn
from ottla.pipelines.run.checkpoint import Checkpoint, SinkStatus
from ottla.pipelines.run.failures import QueryFailure, RestartBackoff, failure_of
from ottla.pipelines.sink.writing import EpochResult, RunContext, output_modes, writer_of
from ottla.pipelines.source.ranges import from_document
from ottla.pipelines.spark.build import SinkQuery
from ottla.pipelines.spark.training import results_of_epoch

_BATCHES_SHOWN: Final = 20
_STOP_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.005
_MAKING_SOURCES: Final = "Initializing sources"  # As Spark says it.


class Stopping(Exception):
    """The pipeline was asked to stop: no further epoch begins."""


class GaveUp(Exception):
    """The query failed for good; the text is the reason."""

    def __init__(self, sink: str, failure: QueryFailure) -> None:
        super().__init__(failure.reason if failure.reason.startswith("sink ") else f"sink {sink}: {failure.reason}")
        self.failure = failure


class QueryRun:
    def __init__(
        self, query: SinkQuery, run: RunContext, checkpoint: Checkpoint, spark: SparkSession, *, once: bool
    ) -> None:
        self.name = query.sink.name
        self.status = SinkStatus()
        self.consumed: dict[TopicPartition, int] = {}
        """The position after the finished epochs in each partition."""
        self.dead_of_read = 0
        """Dead letters of epochs whose records the status counts; Spark reports records later than letters."""
        self.done = False
        self._query, self._run, self._checkpoint, self._once = query, run, checkpoint, once
        self._writer = writer_of(query.sink, run, spark)
        self._running: StreamingQuery | None = None
        self._waiter: threading.Thread | None = None
        self._back_off = RestartBackoff()
        self._begin_at = 0.0
        self._told_epoch = -1
        self._dead: dict[int, int] = {}  # Dead letters of epochs that Spark has not reported yet.
        self._raised: BaseException | None = None
        self._stopping = threading.Event()
        self._epoch_begun = self._epoch_ended = -1
        self._latest: deque[tuple[int, int]] = deque(maxlen=_BATCHES_SHOWN)  # Records and milliseconds.

    @property
    def is_starting(self) -> bool:
        """Whether Spark is still starting the processes of the query's sources."""
        return self._running is not None and self._running.status["message"] == _MAKING_SOURCES

    def attend(self, *, may_start: bool = True) -> None:
        """Start the query when it is due, and update its status. Called again and again. Raises GaveUp."""
        try:
            if may_start and self._running is None and not self.done and time.monotonic() >= self._begin_at:
                self._start()
            if self._running is not None:
                self._take_progress(self._running)
                self._look_whether_it_ended(self._running)
        except Exception as error:  # Spark or a sink may raise anything; `_failed` decides by its type.
            self._failed(error)

    def stop(self) -> None:
        """Wait for the epoch that is being written, and begin no other."""
        self._stopping.set()
        query = self._running
        if query is None:
            return
        deadline = time.monotonic() + _STOP_PATIENCE_S
        while time.monotonic() < deadline and query.isActive and query.status["isTriggerActive"]:
            if self._epoch_begun == self._epoch_ended >= 0 and self._is_committed(self._epoch_ended):
                break  # No epoch is being written.
            time.sleep(_LOOK_S)
        query.stop()
        self._take_progress(query)
        self._running = None

    def _start(self) -> None:
        self._writer.begin()
        self._raised = None
        self._running = self._started()
        if self._once:
            self._waiter = threading.Thread(target=_wait, args=(self._running,), name=f"once-{self.name}", daemon=True)
            self._waiter.start()

    def _started(self) -> StreamingQuery:
        first, second = output_modes(self._query.sink)
        try:
            return self._begin(first)
        except AnalysisException:
            return self._begin(second)  # If the output mode was not the cause, this raises the same error.

    def _begin(self, mode: str) -> StreamingQuery:
        return (
            self._query.frame.writeStream.queryName(f"{self._run.identity.group_id}.{self.name}.{self._run.name}")
            .outputMode(mode)
            .option("checkpointLocation", self._checkpoint.sink(self.name))
            .foreachBatch(self._write)
            .start()
        )

    def _write(self, rows: DataFrame, epoch: int) -> None:
        """Write an epoch. Called by Spark, in a thread of its own."""
        try:
            if self._stopping.is_set():
                raise Stopping
            self._epoch_begun = epoch
            self._checkpoint.check_owner(self._run.name)
            if self._query.training is not None:
                kept = os.path.join(self._checkpoint.sink(self.name), "ottla-training")
                rows = results_of_epoch(self._query, rows, epoch, kept)
            self._took(self._writer.write(rows, epoch), epoch)
        except BaseException as error:
            self._raised = error  # Kept here, because Spark passes on only the text of an exception.
            raise

    def _took(self, outcome: EpochResult, epoch: int) -> None:
        self.status.rows_written += outcome.rows
        self.status.dead_letters += outcome.dead_letters
        self._dead[epoch] = outcome.dead_letters
        self.status.epochs_skipped += outcome.skipped
        if outcome.rows or not outcome.skipped:  # A skipped epoch does not show that the sink works.
            self._back_off.succeeded()
        self._epoch_ended = epoch
        trace("pipeline.epoch", sink=self.name, epoch=epoch, rows=outcome.rows, skipped=outcome.skipped)

    def _take_progress(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            told: dict[str, Any] = json.loads(progress.json)
            if told["batchId"] <= self._told_epoch or "addBatch" not in told["durationMs"]:
                continue
            self._told_epoch = self.status.epoch = told["batchId"]
            read = sum(map(self._records_of, told["sources"]))
            took_ms = told["durationMs"].get("triggerExecution", 0)
            self.status.records_read += read
            self.status.late_rows += sum(state["numRowsDroppedByWatermark"] for state in told["stateOperators"])
            self.dead_of_read += self._dead.pop(self._told_epoch, 0)
            self._latest.append((read, took_ms))
            self.status.batch_ms = [ms for _, ms in self._latest]
            self.status.records_per_second = (
                sum(count for count, _ in self._latest) * 1000 / max(1, sum(self.status.batch_ms))
            )
            self.status.error = ""

    def _records_of(self, source: dict[str, Any]) -> int:
        end = source["endOffset"]
        if not isinstance(end, dict) or not all(isinstance(one, dict) for one in end.values()):
            return (
                int(source["numInputRows"]) // self._query.scans
            )  # Of files Spark counts a row for each branch of the plan.
        ends, starts = from_document(end), from_document(source["startOffset"] or {})
        self.consumed |= ends
        return sum(
            max(0, offset - starts.get(partition, 0)) for partition, offset in ends.items() if partition in starts
        )

    def _look_whether_it_ended(self, query: StreamingQuery) -> None:
        if self._waiter is not None and not self._waiter.is_alive() and query.isActive:
            query.stop()
            self._take_progress(query)
            self.done, self._running = True, None
            return
        if query.isActive:
            return
        self._running = None
        error = self._raised or query.exception()
        if error is not None and not isinstance(error, Stopping):
            raise error

    def _failed(self, error: Exception) -> None:
        failure = failure_of(error)
        self._running = None
        wait_s = None if failure.fatal else self._back_off.failed()
        self.status.error = failure.reason
        if wait_s is None:
            raise GaveUp(self.name, failure) from error
        self.status.restarts += 1
        self._begin_at = time.monotonic() + wait_s
        warn("pipeline.restarts", sink=self.name, after_s=wait_s, kind=failure.kind, reason=failure.reason)

    def _is_committed(self, epoch: int) -> bool:
        return os.path.exists(os.path.join(self._checkpoint.sink(self.name), "commits", str(epoch)))


def _wait(query: StreamingQuery) -> None:
    """Wait until everything available is processed. Errors are found by `attend`."""
    try:
        query.processAllAvailable()
    except Exception:
        return
