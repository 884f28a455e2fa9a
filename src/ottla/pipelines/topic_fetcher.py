"""Ranges of topics as Arrow batches, fetched by code that does not run in an event loop: a task of Spark.

Rule 1: a task has the client's connections and event loop to itself. The loop runs while an answer is waited for; the
        next one is asked for before a batch is handed over, so the broker works while Spark does.
Rule 2: which records there are, and which of them were aborted, the kernel says; no record becomes an object of Python.
Rule 3: the topic is asked for by the id that it had when the range was planned: another of the same name is a loss.
Rule 4: as much is asked for as the rest of the range may take, by the size of what came so far: an answer knows no end,
        and a small epoch of a long log would otherwise fetch megabytes to throw them away.
Rule 5: a range ends at its end or with an error; a stretch that is gone from the log is a loss, and told of as such.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pyarrow
import pyarrow.compute

from ottla.client.client import Client
from ottla.client.core.errors import ClientError, Declined, error_of
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.kernel import Aborted, Columns, FetchedPart, read_columns
from ottla.pipelines.losses import report
from ottla.pipelines.ranges import Loss, LossKind, Range
from ottla.pipelines.reading import Reading
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

CHANNEL: Final = "fetch"
WAIT_MS: Final = 500
FETCH_BYTES_MIN: Final = 64 << 10
FETCH_BYTES_MAX: Final = 4 << 20
COLUMNS_BYTES: Final = 16 << 20
"""Of uncompressed records in an Arrow batch. Four megabytes of an answer may unpack to gigabytes."""
EMPTY_ANSWERS_MAX: Final = 120
"""A minute of them, though the log is known to go on: whoever is asked is not the leader that it was."""

_GUESSED_RECORD_BYTES: Final = 1 << 10  # Until the first answer tells.
_WITH_NAMES: Final = 12  # Last version of Fetch that names topics; later ones carry their ids.
_TIMESTAMP: Final = pyarrow.timestamp("us", "UTC")
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
_HEADER: Final = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
SCHEMA: Final = pyarrow.schema(
    [
        ("_key", pyarrow.binary()),
        ("_value", pyarrow.binary()),
        ("_topic", pyarrow.string()),
        ("_partition", pyarrow.int32()),
        ("_offset", pyarrow.int64()),
        ("_timestamp", _TIMESTAMP),
        ("_headers", pyarrow.list_(_HEADER)),
    ]
)


class UnreadableRecords(Exception):
    """Bytes of the log that are no records. The text says where."""


def fetch_range(reading: Reading, wanted: Range) -> Iterator[Any]:
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
    def __init__(self, reading: Reading, wanted: Range, runner: asyncio.Runner) -> None:
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
            except _MadeAnew:
                self._report(Loss(LossKind.MADE_ANEW, self._wanted.partition, position, self._wanted.end))
                return
            if answer.error_code == Error.OFFSET_OUT_OF_RANGE:
                position = self._lost(position)
                continue
            aborted = [Aborted(one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()]
            before = position
            for columns, reached in self._columns(answer, position, aborted):
                position = reached
                if len(columns) and len(rows := self._rows(columns)):
                    yield rows
            empty = empty + 1 if position == before else 0
            if empty > EMPTY_ANSWERS_MAX:
                raise ClientError(
                    f"partition {self._wanted.partition}: nothing comes at offset {position:,}, "
                    f"though the log went on to {self._wanted.end:,}",
                    "Look whether its leader is well; the pipeline may be started again.",
                )

    def _columns(self, answer: PartitionData, position: int, aborted: list[Aborted]) -> Iterator[tuple[Columns, int]]:
        """The records of an answer, some megabytes at a time, each with the position after them."""
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
        """As Spark takes them, without what lies beyond the range."""
        batch = pyarrow.record_batch(columns)
        offsets = batch.column("offset")
        if offsets[-1].as_py() >= self._wanted.end:
            within = pyarrow.compute.sum(pyarrow.compute.less(offsets, self._wanted.end)).as_py()
            batch = batch.slice(0, within)
        return pyarrow.record_batch([self._column(batch, name) for name in self._schema.names], schema=self._schema)

    def _column(self, batch: Any, name: str) -> Any:
        if name == "_topic":
            return pyarrow.repeat(pyarrow.scalar(self._wanted.partition.topic), len(batch))
        column = batch.column(name.removeprefix("_"))
        if name == "_timestamp":
            return _microseconds(column)
        return column.cast(SCHEMA.field(name).type) if name == "_headers" else column

    # -- Asking

    def _answer(self, position: int) -> PartitionData:
        asked, self._asked = self._asked, None
        if asked is not None:
            try:
                return self._runner.run(_result(asked))
            except ClientError:
                pass  # It may have waited here longer than the client waits for answers: ask again, and wait.
        return self._runner.run(self._client.persist(lambda: self._fetch(position)))

    def _ask(self, position: int) -> None:
        """Send the question ahead; the answer is taken later."""

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
        connection = await self._client.brokers.node(led.leader, CHANNEL)
        answer: FetchResponse = await connection.call(
            self._request(position, led.leader_epoch),
            timeout_ms=self._client.request_timeout_ms + WAIT_MS,
            at_most=_WITH_NAMES if self._client.cluster.topic_id(partition.topic) == NO_UUID else None,
        )
        data = next((one for topic in answer.responses for one in topic.partitions), None)
        error = error_of(answer.error_code or (data.error_code if data else Error.UNKNOWN_SERVER_ERROR))
        if error is not Error.NONE and error is not Error.OFFSET_OUT_OF_RANGE:
            metadata.stale(partition.topic)
            raise Declined(error, broker=connection.address, subject=f"partition {partition}")
        assert data is not None
        return data

    def _request(self, position: int, leader_epoch: int) -> FetchRequest:
        partition = self._wanted.partition
        rest = (self._wanted.end - position) * self._bytes_per_offset * 5 // 4
        bytes_max = max(self._bytes_needed, min(rest, FETCH_BYTES_MAX))
        asked = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=position,
            partition_max_bytes=bytes_max,
        )
        topic_id = self._client.cluster.topic_id(partition.topic)
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=1 if self._reading.committed else 0,
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[asked])],
        )

    # -- What is not there

    def _same_topic(self) -> None:
        wanted, there = self._wanted.topic_id, self._client.cluster.topic_id(self._wanted.partition.topic)
        if NO_UUID not in (wanted, there) and wanted != there:
            raise _MadeAnew

    def _lost(self, position: int) -> int:
        """Tell of what is gone, and where to go on. A broker that is asked for it answers nothing but that it is."""
        partition, end = self._wanted.partition, self._wanted.end
        found = self._runner.run(list_offsets(self._client, {partition: EARLIEST}))
        log_start = found[partition].offset
        resume = min(log_start, end) if log_start > position else end
        kind = LossKind.REMOVED if log_start > position else LossKind.CUT
        self._report(Loss(kind, partition, position, resume))
        return resume

    def _report(self, loss: Loss) -> None:
        report([loss], self._reading.on_data_loss, self._reading.source)


class _MadeAnew(Exception):
    """The topic is not the one that the range was planned for."""


async def _result(task: asyncio.Task[PartitionData]) -> PartitionData:
    return await task


def _microseconds(timestamps: Any) -> Any:
    try:
        return timestamps.cast(_TIMESTAMP)
    except pyarrow.ArrowInvalid:  # Some producer's time is beyond what microseconds can say: as late as can be said.
        numbers = timestamps.cast(pyarrow.int64())
        bounded = pyarrow.compute.min_element_wise(numbers, _TIMESTAMP_MS_MAX)
        bounded = pyarrow.compute.max_element_wise(bounded, -_TIMESTAMP_MS_MAX)
        return bounded.cast(timestamps.type).cast(_TIMESTAMP)
