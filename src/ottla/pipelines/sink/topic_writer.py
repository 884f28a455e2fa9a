"""Writes the rows of an epoch to topics exactly once: what a task of a topic sink does on a Spark executor.

Rule 1: the task takes its transactional id first. That fences every older attempt and aborts its open transaction.
Rule 2: then it reads its marker, and `epochs` decides whether to write or to skip.
Rule 3: rows, dead letters among them, and marker are written in one transaction. A task without rows writes a marker
        too.
Rule 4: after any failure the transaction is aborted, and the same call may be repeated with the same rows: the marker
        says whether they have to be written. Only `WriterFenced` and `EpochRefused` are final.
Rule 5: at-least-once delivery uses neither transaction nor marker.
Rule 6: a run may take over its tasks before it writes. The markers then hold its name, and an attempt of an older run
        stops when it reads that name, before it would take the transactional id from the newer run.

`write_epoch` returns when the transaction has ended. It runs its own event loop, which sends while the next rows are
computed.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.client import (
    Client,
    ClientError,
    EndUnknown,
    GroupMetadata,
    Ports,
    ProducerFenced,
    TopicPartition,
    Transactions,
)
from ottla.client.core.errors import DeliveryFailed, Misused, TransactionFailed
from ottla.client.core.identities import Identities
from ottla.client.group_offsets import Committed, committed_offsets, settled_offsets
from ottla.client.produce_requests import new_producer_id
from ottla.kernel import BuiltBatch, Codec, TopicBatches
from ottla.observe.trace import trace
from ottla.pipelines.sink.batch_sender import BatchSender
from ottla.pipelines.sink.epochs import (
    EpochAction,
    EpochMarker,
    SinkTask,
    WriteFailed,
    check_run,
    fenced,
    marker_after,
    step_for,
)
from ottla.pipelines.sink.outgoing import ROUND_ROBIN, BadRows, partitioner_named, rows_by_topic, with_partitions
from ottla.pipelines.spec import model
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.rpc.errors import Declined
from ottla.wire.errors import Error

if TYPE_CHECKING:
    import pyarrow

HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes that wait for brokers at a time; the next rows are not computed until there is room."""
_TOPIC_TIMEOUT_MS: Final = 60_000
_PENDING_S: Final = 3.0
_TOO_LARGE: Final = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})
_REFUSED: Final = _TOO_LARGE | {Error.INVALID_RECORD, Error.INVALID_TIMESTAMP}
"""Errors about the rows themselves, which a retry would get again."""


@dataclass(frozen=True)
class TopicTarget:
    """Where a topic sink writes, and how. Plain values, since it is pickled and sent to executors."""

    bootstrap: str
    identity: PipelineIdentity
    sink: str
    topic: str
    """The sink's own topic. Rows may name other topics; the markers' offsets belong to this one."""
    delivery: model.DeliveryGuarantee = model.DeliveryGuarantee.EXACTLY_ONCE
    partitioner: str = "default"
    codec: model.Compression = model.Compression.NONE
    batch_bytes: int = 256 * 1024
    linger_ms: int = 5
    transaction_timeout_ms: int = 600_000
    run: str = ""
    """The name of this run; names of later runs sort after it. Empty: runs are not compared."""
    checkpoint: str = ""
    """The id of the checkpoint that counts the epochs. Empty: not compared."""

    @classmethod
    def of(
        cls,
        sink: model.TopicSink,
        *,
        bootstrap: str,
        identity: PipelineIdentity,
        delivery: model.DeliveryGuarantee,
        run: str = "",
        checkpoint: str = "",
    ) -> "TopicTarget":
        return cls(
            bootstrap,
            identity,
            sink.name,
            sink.topic,
            delivery,
            sink.partitioner,
            sink.codec,
            sink.batch_bytes,
            sink.linger_ms,
            sink.transaction_timeout_ms,
            run,
            checkpoint,
        )

    def writer(self, task: int) -> SinkTask:
        group_id = self.identity.marker_group_id(self.sink, task)
        return SinkTask(self.identity.pipeline, self.sink, task, group_id, self.run, self.checkpoint)


class WrittenEpoch(NamedTuple):
    """The result of a task's epoch. Skipped: an earlier attempt has written it."""

    task: int
    epoch: int
    skipped: bool
    records: int
    bytes_sent: int
    by_topic: tuple[tuple[str, int], ...]


def write_epoch(target: TopicTarget, task: int, epoch: int, batches: Iterator["pyarrow.RecordBatch"]) -> WrittenEpoch:
    """Write the rows of `batches` as the task's part of the epoch. Raises WriteError."""
    writer = target.writer(task)
    # One thread computes rows while the event loop sends.
    with _telling(target, writer, f"epoch {epoch} is not written"), ThreadPoolExecutor(1, "rows") as thread:
        written = asyncio.run(write_rows(target, writer, epoch, _InThread(batches, thread)))
    trace("pipeline.epoch_written", sink=target.sink, task=task, epoch=epoch, skipped=written.skipped)
    return written


def take_over(target: TopicTarget, tasks: int) -> None:
    """Fence older runs of the sink's tasks, and write this run's name into the markers. Raises WriteError.

    For a task without a marker, older runs are fenced when it writes its next epoch.
    """
    for task in range(tasks if target.delivery is model.DeliveryGuarantee.EXACTLY_ONCE else 0):
        writer = target.writer(task)
        with _telling(target, writer, "the task is not taken over"):
            asyncio.run(take_over_task(target, writer))


@contextmanager
def _telling(target: TopicTarget, writer: SinkTask, failed: str) -> Iterator[None]:
    """Turn a ClientError into a WriteError, with a text for the person who runs the pipeline."""
    try:
        yield
    except ProducerFenced as error:
        raise fenced(writer, error.cause.what) from error
    except EndUnknown as error:
        raise WriteFailed(
            f"{writer}: whether the transaction was committed is not known ({error.cause.what}). Run the pipeline "
            "again: the marker shows it"
        ) from error
    except ClientError as error:
        if (refusal := _refusal(error)) is not None:
            raise BadRows(f"{writer}: {failed}: {refusal}{_advice(target, refusal)}") from error
        raise WriteFailed(f"{writer}: {failed}: {error}") from error


def _refusal(error: ClientError) -> Declined | None:
    """The broker's refusal of the rows, if that is what made the transaction fail."""
    cause: object = error
    while isinstance(cause, TransactionFailed | DeliveryFailed):
        cause = cause.cause
    return cause if isinstance(cause, Declined) and cause.error in _REFUSED else None


def _advice(target: TopicTarget, refusal: Declined) -> str:
    """What to change when a batch is too large: the topic's limit may be below the sink's batch size."""
    if refusal.error not in _TOO_LARGE:
        return ""
    return f" Batches grow to {target.batch_bytes:,} bytes: if the topic's limit is lower, lower the sink's batch_size"


RowsByTopic = list[tuple[str, "pyarrow.RecordBatch"]]
"""Rows by topic, as `rows_by_topic` gives them."""


class RowInput(Protocol):
    """The rows of a task, in parts."""

    async def next_rows(self) -> RowsByTopic | None:
        """The next part; None at the end."""


class _InThread:
    """Computes rows in a thread, so that the event loop can send batches meanwhile."""

    def __init__(self, batches: Iterator["pyarrow.RecordBatch"], thread: ThreadPoolExecutor) -> None:
        self._batches, self._thread = batches, thread

    async def next_rows(self) -> RowsByTopic | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._next)

    def _next(self) -> RowsByTopic | None:
        batch = next(self._batches, None)
        return None if batch is None else list(rows_by_topic(batch))


async def write_rows(
    target: TopicTarget, writer: SinkTask, epoch: int, rows: RowInput, ports: Ports | None = None
) -> WrittenEpoch:
    """Like `write_epoch`, inside an event loop. Raises ClientError too."""
    async with Client(target.bootstrap, client_id=writer.group_id, ports=ports) as client:
        await client.metadata.topic(target.topic, timeout_ms=_TOPIC_TIMEOUT_MS, create=True)
        sender = BatchSender(client)
        try:
            if target.delivery is model.DeliveryGuarantee.EXACTLY_ONCE:
                return await _write_once(client, target, writer, epoch, rows, sender)
            producer = await client.persist(lambda: new_producer_id(client))
            gathering = _Gathering(client, target, writer, sender, producer)
            await gathering.send_all(rows)
            await sender.flush()
            return gathering.written(epoch)
        finally:
            await sender.discard(Misused("the epoch was given up"))


async def take_over_task(target: TopicTarget, writer: SinkTask, ports: Ports | None = None) -> None:
    """Like `take_over`, for one task and inside an event loop. Raises ClientError too."""
    async with Client(target.bootstrap, client_id=writer.group_id, ports=ports) as client:
        await client.metadata.topic(target.topic, timeout_ms=_TOPIC_TIMEOUT_MS, create=True)
        sender = BatchSender(client)
        transactions = await _taken(client, target, writer, sender, Identities(transactional=True))
        found = await _marker(client, target, writer)
        if found is not None and found.run != writer.run:
            async with transactions.transaction():
                await _commit(transactions, target, writer, replace(found, run=writer.run))


async def _taken(
    client: Client, target: TopicTarget, writer: SinkTask, sender: BatchSender, identities: Identities
) -> Transactions:
    """Take the task's transactional id. Raises WriterFenced if a later run has it."""
    if writer.run:
        check_run(writer, await _marker_of_the_last(client, target, writer))
    transactional_id = target.identity.transactional_id(target.sink, writer.task)
    transactions = Transactions(client, sender, identities, transactional_id, target.transaction_timeout_ms)
    sender.transactions = transactions
    await transactions.init()
    return transactions


async def _commit(transactions: Transactions, target: TopicTarget, writer: SinkTask, marker: EpochMarker) -> None:
    """Commit the marker as part of the open transaction."""
    offset = Committed(marker.epochs, -1, marker.metadata)
    await transactions.send_offsets({_place(target): offset}, GroupMetadata(writer.group_id))


async def _drain(rows: RowInput) -> dict[str, int]:
    """Read all rows without writing them, and count them by topic."""
    counts: dict[str, int] = {}
    while (taken := await rows.next_rows()) is not None:
        for topic, of_topic in taken:
            counts[topic] = counts.get(topic, 0) + of_topic.num_rows
    return counts


async def _write_once(
    client: Client, target: TopicTarget, writer: SinkTask, epoch: int, rows: RowInput, sender: BatchSender
) -> WrittenEpoch:
    identities = Identities(transactional=True)
    transactions = await _taken(client, target, writer, sender, identities)
    if step_for(writer, epoch, await _marker(client, target, writer)) is EpochAction.SKIP:
        counts = await _drain(rows)
        return WrittenEpoch(writer.task, epoch, True, sum(counts.values()), 0, tuple(sorted(counts.items())))
    assert identities.current is not None
    gathering = _Gathering(client, target, writer, sender, identities.current)
    async with transactions.transaction():
        await gathering.send_all(rows)
        await _commit(transactions, target, writer, marker_after(writer, epoch))
    return gathering.written(epoch)


async def _marker_of_the_last(client: Client, target: TopicTarget, writer: SinkTask) -> EpochMarker | None:
    """The marker, before the transactional id is taken.

    Waits for a marker in an open transaction, but not long: its writer may be dead, and then the transaction only ends
    when the id is taken or the transaction times out.
    """
    try:
        async with asyncio.timeout(_PENDING_S):
            return await _marker(client, target, writer)
    except TimeoutError:
        return await _marker(client, target, writer, stable=False)


async def _marker(client: Client, target: TopicTarget, writer: SinkTask, *, stable: bool = True) -> EpochMarker | None:
    groups = [writer.group_id]
    offsets = settled_offsets(client, groups, [_place(target)]) if stable else committed_offsets(client, groups)
    found = (await offsets)[writer.group_id]
    if isinstance(found, ClientError):
        raise found
    committed = found.get(_place(target))
    return None if committed is None else EpochMarker.read(committed.offset, committed.metadata)


def _place(target: TopicTarget) -> TopicPartition:
    """The partition whose committed offset is the marker."""
    return TopicPartition(target.topic, 0)


class _Gathering:
    """Builds batches of rows, topic by topic, and gives them to the sender."""

    def __init__(
        self, client: Client, target: TopicTarget, writer: SinkTask, sender: BatchSender, producer: tuple[int, int]
    ) -> None:
        self._client = client
        self._target = target
        self._writer = writer
        self._sender = sender
        self._producer = producer
        self._choose = partitioner_named(target.partitioner)
        self._topics: dict[str, TopicBatches] = {}
        self._partitions: dict[str, int] = {}
        self._flushed_ms = client.ports.clock.monotonic_ms()
        self._records: dict[str, int] = {}
        self._bytes_sent = 0

    async def send_all(self, rows: RowInput) -> None:
        """Give all rows to the sender, which may still be sending when this returns."""
        while (taken := await rows.next_rows()) is not None:
            for topic, of_topic in taken:
                await self._take(topic, of_topic)
            if self._client.ports.clock.monotonic_ms() - self._flushed_ms >= self._target.linger_ms:
                self._flush()
            await self._sender.room(HELD_BYTES_MAX)
        self._flush()

    def written(self, epoch: int) -> WrittenEpoch:
        by_topic = tuple(sorted(self._records.items()))
        return WrittenEpoch(self._writer.task, epoch, False, sum(self._records.values()), self._bytes_sent, by_topic)

    async def _take(self, topic: str, rows: "pyarrow.RecordBatch") -> None:
        batches = self._topics.get(topic)
        if batches is None:
            batches = self._topics[topic] = await self._batches_of(topic)
        if self._choose is not None and topic == self._target.topic:
            rows = with_partitions(rows, self._choose, self._partitions[topic])
        try:
            self._send(topic, batches.add(rows, now_ms=self._client.ports.clock.wall_ms()))
        except ValueError as error:
            raise BadRows(f"{self._writer}: topic {topic}: {error}") from error
        self._records[topic] = self._records.get(topic, 0) + rows.num_rows

    def _send(self, topic: str, built: list[BuiltBatch]) -> None:
        self._bytes_sent += sum(len(batch.data) for batch in built)
        self._sender.add(topic, built)

    def _flush(self) -> None:
        for topic, batches in self._topics.items():
            self._send(topic, batches.flush())
        self._flushed_ms = self._client.ports.clock.monotonic_ms()

    async def _batches_of(self, topic: str) -> TopicBatches:
        known = await self._client.metadata.topic(topic, timeout_ms=_TOPIC_TIMEOUT_MS, create=True)
        target = self._target
        self._partitions[topic] = len(known.partitions)
        producer_id, producer_epoch = self._producer
        return TopicBatches(
            len(known.partitions),
            batch_bytes=target.batch_bytes,
            codec=Codec[target.codec.name],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=target.delivery is model.DeliveryGuarantee.EXACTLY_ONCE,
            first=self._writer.task,
            round_robin=target.partitioner == ROUND_ROBIN and topic == target.topic,
        )
