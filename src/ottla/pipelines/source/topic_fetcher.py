"""Fetches a range of offsets as Arrow batches, for code outside an event loop: a task of Spark.

Rule 1: each task has its own client and event loop. The loop runs while the task waits for an answer. The next request
        is sent before a batch is returned, so that the broker works while Spark does.
Rule 2: the kernel decodes records into columns and drops those of aborted transactions. No record becomes a Python
        object.
Rule 3: the topic must have the id that it had when the range was planned. Another topic with the same name is a loss.
Rule 4: a request asks for no more bytes than the rest of the range takes, by the size of the records so far. A Fetch
        request has no end offset, so a small range of a long log would otherwise fetch megabytes for nothing.
Rule 5: a range is read to its end, or an error is raised. Offsets that are gone from the log are reported as a loss.

How a Fetch request is sent and judged is shared with the consumer (`client/fetch_requests`). Sessions, retries of a
running consumer and its positions are not: a task reads one range of one partition and ends.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pyarrow
import pyarrow.compute

from ottla.client.client import Client
from ottla.client.core.session import PartitionFetch
from ottla.client.fetch_requests import (
    FetchLimits,
    aborted_in,
    fetch_request,
    is_out_of_range,
    refusal_in,
    send_fetch,
)
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.kernel import Aborted, Columns, FetchedPart, read_columns
from ottla.pipelines.source.losses import report
from ottla.pipelines.source.ranges import Loss, LossKind, OffsetRange
from ottla.pipelines.source.read_options import TopicReadOptions
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS, arrow_fields, arrow_type, field_of
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.api.fetch import FetchRequest, PartitionData
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

WAIT_MS: Final = 500
FETCH_BYTES_MIN: Final = 64 << 10
FETCH_BYTES_MAX: Final = 4 << 20
COLUMNS_BYTES: Final = 16 << 20
"""The most uncompressed bytes in an Arrow batch: four megabytes of an answer may decompress to gigabytes."""
EMPTY_ANSWERS_MAX: Final = 120
"""A minute of empty answers although the log goes on: something is wrong with the broker."""

_GUESSED_RECORD_BYTES: Final = 1 << 10  # Until the first answer shows the real size.
_TIMESTAMP: Final = arrow_type("_timestamp")
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
SCHEMA: Final = pyarrow.schema(arrow_fields(SOURCE_COLUMNS))


class UnreadableRecords(Exception):
    """Bytes of the log that cannot be decoded as records. The text says where."""


def fetch_range(reading: TopicReadOptions, wanted: OffsetRange) -> Iterator[Any]:
    """The records of a range as Arrow batches of `SCHEMA`, of the columns that are read.

    Raises ClientError, DataLost or UnreadableRecords.
    """
    with asyncio.Runner() as runner:
        fetch = _Fetch(reading, wanted, runner)
        try:
            yield from fetch.batches()
        finally:
            fetch.close()


class _Fetch:
    def __init__(self, reading: TopicReadOptions, wanted: OffsetRange, runner: asyncio.Runner) -> None:
        self._reading = reading
        self._wanted = wanted
        self._runner = runner
        self._schema = pyarrow.schema([SCHEMA.field(name) for name in reading.columns])
        self._client = Client(reading.bootstrap, client_id=f"ottla-pipeline-{reading.source or 'topics'}")
        self._bytes_needed = FETCH_BYTES_MIN
        self._bytes_per_offset = _GUESSED_RECORD_BYTES
        self._asked: asyncio.Task[PartitionData] | None = None

    def close(self) -> None:
        if self._asked is not None:
            self._asked.cancel()
        self._runner.run(self._client.close())

    def batches(self) -> Iterator[Any]:
        position, empty = self._wanted.start, 0
        while position < self._wanted.end:
            try:
                answer = self._answer(position)
            except _TopicRecreated:
                self._report(Loss(LossKind.RECREATED, self._wanted.partition, position, self._wanted.end))
                return
            if is_out_of_range(answer):
                position = self._lost(position)
                continue
            aborted = aborted_in(answer)
            before = position
            for columns, reached in self._columns(answer, position, aborted):
                position = reached
                if len(columns) and len(rows := self._rows(columns)):
                    yield rows
            empty = empty + 1 if position == before else 0
            if empty > EMPTY_ANSWERS_MAX:
                raise ClientError(
                    f"partition {self._wanted.partition}: the broker sends no records from offset {position:,}, "
                    f"although the log ended at {self._wanted.end:,}",
                    "Check the partition's leader, then start the pipeline again.",
                )

    def _columns(self, answer: PartitionData, position: int, aborted: list[Aborted]) -> Iterator[tuple[Columns, int]]:
        """The records of an answer in parts of at most COLUMNS_BYTES, each with the position after it."""
        finished, begun = False, position
        while not finished and position < self._wanted.end:
            part = FetchedPart(self._wanted.partition.partition, answer.records or b"", position, aborted)
            columns = read_columns([part], bytes_max=COLUMNS_BYTES)
            end = columns.ends[0]
            if end.damage is not None:
                raise UnreadableRecords(
                    f"partition {self._wanted.partition}: the batch at offset {end.damage.offset:,} cannot be read: "
                    f"{end.damage.reason}. Nothing of it was passed on; "
                    "`ottla log verify` on the broker's directory says more"
                )
            finished, position = end.finished, end.next_offset
            self._bytes_needed = max(FETCH_BYTES_MIN, end.needed)
            if finished and position > begun:
                self._bytes_per_offset = len(part.data) // (position - begun) + 1
            if finished and position < self._wanted.end:
                self._ask(position)
            yield columns, position

    def _rows(self, columns: Columns) -> Any:
        """An Arrow batch with the columns that are read, without records beyond the range."""
        batch = pyarrow.record_batch(columns)
        offsets = batch.column("offset")
        if offsets[-1].as_py() >= self._wanted.end:
            within = pyarrow.compute.sum(pyarrow.compute.less(offsets, self._wanted.end)).as_py()
            batch = batch.slice(0, within)
        return pyarrow.record_batch([self._column(batch, name) for name in self._schema.names], schema=self._schema)

    def _column(self, batch: Any, name: str) -> Any:
        if name == "_topic":
            return pyarrow.repeat(pyarrow.scalar(self._wanted.partition.topic), len(batch))
        column = batch.column(field_of(name))
        if name == "_timestamp":
            return _microseconds(column)
        return column.cast(SCHEMA.field(name).type) if name == "_headers" else column

    # -- Requests

    def _answer(self, position: int) -> PartitionData:
        asked, self._asked = self._asked, None
        if asked is not None:
            try:
                return self._runner.run(_result(asked))
            except ClientError:
                pass  # Spark may have taken longer than the request's timeout: ask again and wait.
        return self._runner.run(self._client.persist(lambda: self._fetch(position)))

    def _ask(self, position: int) -> None:
        """Send the next request now; `_answer` takes the result later."""

        async def begin() -> asyncio.Task[PartitionData]:
            task = asyncio.create_task(self._client.persist(lambda: self._fetch(position)))
            await asyncio.sleep(0)
            return task

        self._asked = self._runner.run(begin())

    async def _fetch(self, position: int) -> PartitionData:
        partition = self._wanted.partition
        metadata = self._client.metadata
        led = await metadata.leader(partition, timeout_ms=0)
        self._same_topic()
        topic_id = self._client.cluster.topic_id(partition.topic)
        request = self._request(PartitionFetch(topic_id, position, led.leader_epoch, self._bytes_max(position)))
        try:
            answer, broker = await send_fetch(
                self._client, led.leader, request, by_name=topic_id == NO_UUID, subject=f"partition {partition}"
            )
            data = next((one for topic in answer.responses for one in topic.partitions), None)
            if data is None:
                raise Declined(Error.UNKNOWN_SERVER_ERROR, broker=broker, subject=f"partition {partition}")
            refusal = refusal_in(data, partition, broker)
            if refusal is not None:
                raise refusal
        except Declined:
            metadata.stale(partition.topic)
            raise
        return data

    def _bytes_max(self, position: int) -> int:
        """The largest size of the next response: an estimate of the rest of the range (rule 4)."""
        rest = (self._wanted.end - position) * self._bytes_per_offset * 5 // 4
        return max(self._bytes_needed, min(rest, FETCH_BYTES_MAX))

    def _request(self, asked: PartitionFetch) -> FetchRequest:
        limits = FetchLimits(WAIT_MS, 1, asked.max_bytes)
        return fetch_request({self._wanted.partition: asked}, limits, committed=self._reading.committed)

    # -- Missing offsets and topics

    def _same_topic(self) -> None:
        wanted, there = self._wanted.topic_id, self._client.cluster.topic_id(self._wanted.partition.topic)
        if NO_UUID not in (wanted, there) and wanted != there:
            raise _TopicRecreated

    def _lost(self, position: int) -> int:
        """Report the loss and return the offset to go on from, which an OFFSET_OUT_OF_RANGE answer does not contain."""
        partition, end = self._wanted.partition, self._wanted.end
        found = self._runner.run(list_offsets(self._client, {partition: EARLIEST}))
        log_start = found[partition].offset
        resume = min(log_start, end) if log_start > position else end
        kind = LossKind.REMOVED if log_start > position else LossKind.CUT
        self._report(Loss(kind, partition, position, resume))
        return resume

    def _report(self, loss: Loss) -> None:
        report([loss], self._reading.on_data_loss, self._reading.source)


class _TopicRecreated(Exception):
    """The topic was deleted and created again since the range was planned."""


async def _result(task: asyncio.Task[PartitionData]) -> PartitionData:
    return await task


def _microseconds(timestamps: Any) -> Any:
    try:
        return timestamps.cast(_TIMESTAMP)
    except pyarrow.ArrowInvalid:  # A timestamp too large for microseconds becomes the largest possible.
        numbers = timestamps.cast(pyarrow.int64())
        bounded = pyarrow.compute.min_element_wise(numbers, _TIMESTAMP_MS_MAX)
        bounded = pyarrow.compute.max_element_wise(bounded, -_TIMESTAMP_MS_MAX)
        return bounded.cast(timestamps.type).cast(_TIMESTAMP)
