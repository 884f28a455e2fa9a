"""An epoch's rows into topics, exactly once: what a task of a topic sink does, wherever the engine runs it.

Rule 1: the task's transactional id is taken first. That fences every older attempt, and ends what it left open.
Rule 2: then the marker is read, and `epochs` decides: write or skip.
Rule 3: rows and marker are written in one transaction, dead letters among the rows. An empty task has a
        marker too.
Rule 4: whatever goes wrong, the transaction is aborted and the same call may be made again, with the same rows: the
        marker says whether it is still to be done. Only `WriterFenced` and `EpochRefused` are final.
Rule 5: at-least-once, where it was chosen, has no transaction and no marker: rows count when they are stored.

Rule 6: a run may take its tasks over before it writes. The markers then carry its name, and an attempt of an older run
        stops when it reads that, before it takes the transactional id away from the newer one.

`write_epoch` returns when all is settled. Inside, a loop of its own sends while the next rows are computed.
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
from ottla.client.core.errors import Declined, DeliveryFailed, Misused, TransactionFailed, refusal_of
from ottla.client.core.identities import Identities
from ottla.client.group_offsets import Committed, committed_offsets, settled_offsets
from ottla.kernel import BuiltBatch, Codec, TopicBatches
from ottla.observe.trace import trace
from ottla.pipelines import spec
from ottla.pipelines.batch_sender import BatchSender
from ottla.pipelines.epochs import Marker, Step, WriteFailed, Writer, check_run, fenced, marker_after, step_for
from ottla.pipelines.identity import Identity
from ottla.pipelines.outgoing import ROUND_ROBIN, BadRows, partitioner_named, rows_by_topic, with_partitions
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import Error

if TYPE_CHECKING:
    import pyarrow

HELD_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much of an epoch waits for brokers at a time; the rest stays where it is computed."""
_TOPIC_TIMEOUT_MS: Final = 60_000
_PENDING_S: Final = 3.0
_UNLIMITED_MS: Final = 2**31 - 1
_TOO_LARGE: Final = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})
_REFUSED: Final = _TOO_LARGE | {Error.INVALID_RECORD, Error.INVALID_TIMESTAMP}
"""What a broker says of rows that it will not take at another time either."""


@dataclass(frozen=True)
class Target:
    """Where a sink writes, and how. Plain values: it travels to whatever machine runs the task."""

    bootstrap: str
    identity: Identity
    sink: str
    topic: str
    """The sink's own. Rows may name others; the markers belong to this one."""
    delivery: spec.Delivery = spec.Delivery.EXACTLY_ONCE
    partitioner: str = "default"
    codec: spec.Codec = spec.Codec.NONE
    batch_bytes: int = 256 * 1024
    linger_ms: int = 5
    transaction_timeout_ms: int = 600_000
    run: str = ""
    """The name of this run: later runs sort after it. Empty: runs do not know each other by their markers."""
    checkpoint: str = ""
    """The name of the checkpoint that counts the epochs; empty: not compared."""

    @classmethod
    def of(
        cls,
        sink: spec.TopicSink,
        *,
        bootstrap: str,
        identity: Identity,
        delivery: spec.Delivery,
        run: str = "",
        checkpoint: str = "",
    ) -> "Target":
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

    def writer(self, task: int) -> Writer:
        group_id = self.identity.marker_group_id(self.sink, task)
        return Writer(self.identity.pipeline, self.sink, task, group_id, self.run, self.checkpoint)


class Written(NamedTuple):
    """What became of a task's epoch. Skipped: the records were written by an attempt before."""

    task: int
    epoch: int
    skipped: bool
    records: int
    bytes_sent: int
    by_topic: tuple[tuple[str, int], ...]


def write_epoch(target: Target, task: int, epoch: int, batches: Iterator["pyarrow.RecordBatch"]) -> Written:
    """Write the rows of `batches` as the task's part of the epoch. Raises WriteError; see the rules."""
    writer = target.writer(task)
    # Rows are computed while the loop sends; always by the same thread.
    with _telling(target, writer, f"epoch {epoch} is not written"), ThreadPoolExecutor(1, "rows") as thread:
        written = asyncio.run(write_rows(target, writer, epoch, _InThread(batches, thread)))
    trace("pipeline.epoch_written", sink=target.sink, task=task, epoch=epoch, skipped=written.skipped)
    return written


def take_over(target: Target, tasks: int) -> None:
    """Fence older runs of the sink's tasks, and have the markers say so. Raises WriteError.

    Where a task has no marker yet there is no place for a name: an older run is fenced at the next epoch.
    """
    for task in range(tasks if target.delivery is spec.Delivery.EXACTLY_ONCE else 0):
        writer = target.writer(task)
        with _telling(target, writer, "the task is not taken over"):
            asyncio.run(take_over_task(target, writer))


@contextmanager
def _telling(target: Target, writer: Writer, failed: str) -> Iterator[None]:
    """What goes wrong with the cluster, in words for who runs the pipeline."""
    try:
        yield
    except ProducerFenced as error:
        raise fenced(writer, error.cause.what) from error
    except EndUnknown as error:
        raise WriteFailed(
            f"{writer}: whether the transaction was committed is not known ({error.cause.what}). Do the same again: "
            "the marker tells"
        ) from error
    except ClientError as error:
        if (refusal := _refusal(error)) is not None:
            raise BadRows(f"{writer}: {failed}: {refusal}{_advice(target, refusal)}") from error
        raise WriteFailed(f"{writer}: {failed}: {error}") from error


def _refusal(error: ClientError) -> Declined | None:
    """What a broker has against the rows, if that is why they were not delivered and the transaction failed."""
    cause: object = error
    while isinstance(cause, TransactionFailed | DeliveryFailed):
        cause = cause.cause
    return cause if isinstance(cause, Declined) and cause.error in _REFUSED else None


def _advice(target: Target, refusal: Declined) -> str:
    """A topic that takes less than a batch may grow to refuses rows that are small."""
    if refusal.error not in _TOO_LARGE:
        return ""
    return f" Batches grow to {target.batch_bytes:,} B: for a topic that takes less, lower batch_size of the sink"


Rows = list[tuple[str, "pyarrow.RecordBatch"]]
"""Some rows, by topic, as `rows_by_topic` gives them."""


class Input(Protocol):
    """The rows of a task, as they come."""

    async def next_rows(self) -> Rows | None:
        """Some of them; None at the end."""


class _InThread:
    """Rows that are computed in a thread, so that the loop goes on meanwhile."""

    def __init__(self, batches: Iterator["pyarrow.RecordBatch"], thread: ThreadPoolExecutor) -> None:
        self._batches, self._thread = batches, thread

    async def next_rows(self) -> Rows | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._next)

    def _next(self) -> Rows | None:
        batch = next(self._batches, None)
        return None if batch is None else list(rows_by_topic(batch))


async def write_rows(target: Target, writer: Writer, epoch: int, rows: Input, ports: Ports | None = None) -> Written:
    """The same inside a loop; raises ClientError too."""
    async with Client(target.bootstrap, client_id=writer.group_id, ports=ports) as client:
        await client.metadata.topic(target.topic, timeout_ms=_TOPIC_TIMEOUT_MS, create=True)
        sender = BatchSender(client)
        try:
            if target.delivery is spec.Delivery.EXACTLY_ONCE:
                return await _write_once(client, target, writer, epoch, rows, sender)
            producer = await client.persist(lambda: _producer_id(client))
            gathering = _Gathering(client, target, writer, sender, producer)
            await gathering.send_all(rows)
            await sender.flush()
            return gathering.written(epoch)
        finally:
            await sender.discard(Misused("the epoch was given up"))


async def take_over_task(target: Target, writer: Writer, ports: Ports | None = None) -> None:
    """The same inside a loop; raises ClientError too."""
    async with Client(target.bootstrap, client_id=writer.group_id, ports=ports) as client:
        await client.metadata.topic(target.topic, timeout_ms=_TOPIC_TIMEOUT_MS, create=True)
        sender = BatchSender(client)
        transactions = await _taken(client, target, writer, sender, Identities(transactional=True))
        found = await _marker(client, target, writer)
        if found is not None and found.run != writer.run:
            async with transactions.transaction():
                await _commit(transactions, target, writer, replace(found, run=writer.run))


async def _taken(
    client: Client, target: Target, writer: Writer, sender: BatchSender, identities: Identities
) -> Transactions:
    """The task's transactional id, taken from whoever had it, unless that is a later run."""
    if writer.run:
        check_run(writer, await _marker_of_the_last(client, target, writer))
    transactional_id = target.identity.transactional_id(target.sink, writer.task)
    transactions = Transactions(client, sender, identities, transactional_id, target.transaction_timeout_ms)
    sender.transactions = transactions
    await transactions.init()
    return transactions


async def _commit(transactions: Transactions, target: Target, writer: Writer, marker: Marker) -> None:
    """The marker as a part of the open transaction."""
    offset = Committed(marker.epochs, -1, marker.metadata)
    await transactions.send_offsets({_place(target): offset}, GroupMetadata(writer.group_id))


async def _drain(rows: Input) -> dict[str, int]:
    """Take all rows; how many of each topic there were."""
    counts: dict[str, int] = {}
    while (taken := await rows.next_rows()) is not None:
        for topic, of_topic in taken:
            counts[topic] = counts.get(topic, 0) + of_topic.num_rows
    return counts


async def _write_once(
    client: Client, target: Target, writer: Writer, epoch: int, rows: Input, sender: BatchSender
) -> Written:
    identities = Identities(transactional=True)
    transactions = await _taken(client, target, writer, sender, identities)
    if step_for(writer, epoch, await _marker(client, target, writer)) is Step.SKIP:
        counts = await _drain(rows)
        return Written(writer.task, epoch, True, sum(counts.values()), 0, tuple(sorted(counts.items())))
    assert identities.current is not None
    gathering = _Gathering(client, target, writer, sender, identities.current)
    async with transactions.transaction():
        await gathering.send_all(rows)
        await _commit(transactions, target, writer, marker_after(writer, epoch))
    return gathering.written(epoch)


async def _marker_of_the_last(client: Client, target: Target, writer: Writer) -> Marker | None:
    """The marker before the id is taken. One that is about to be committed is waited for, but only for a moment: who
    sent it may be dead, and then nothing ends its transaction but taking the id, or its time-out."""
    try:
        async with asyncio.timeout(_PENDING_S):
            return await _marker(client, target, writer)
    except TimeoutError:
        return await _marker(client, target, writer, stable=False)


async def _marker(client: Client, target: Target, writer: Writer, *, stable: bool = True) -> Marker | None:
    groups = [writer.group_id]
    offsets = settled_offsets(client, groups, [_place(target)]) if stable else committed_offsets(client, groups)
    found = (await offsets)[writer.group_id]
    if isinstance(found, ClientError):
        raise found
    committed = found.get(_place(target))
    return None if committed is None else Marker.read(committed.offset, committed.metadata)


def _place(target: Target) -> TopicPartition:
    """Where markers are: offsets belong to partitions, and this one is there."""
    return TopicPartition(target.topic, 0)


async def _producer_id(client: Client) -> tuple[int, int]:
    """An identity without transactions: what is sent again is stored once all the same."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_UNLIMITED_MS)
    connection, answer = await client.call_any(request)
    refusal = refusal_of(answer.error_code, connection.address, "producer id")
    if refusal is not None:
        raise refusal
    return answer.producer_id, answer.producer_epoch


class _Gathering:
    """Rows into batches, topic by topic, and on to the sender."""

    def __init__(
        self, client: Client, target: Target, writer: Writer, sender: BatchSender, producer: tuple[int, int]
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

    async def send_all(self, rows: Input) -> None:
        """All rows to the sender, which may still be sending them when this returns."""
        while (taken := await rows.next_rows()) is not None:
            for topic, of_topic in taken:
                await self._take(topic, of_topic)
            if self._client.ports.clock.monotonic_ms() - self._flushed_ms >= self._target.linger_ms:
                self._flush()
            await self._sender.room(HELD_BYTES_MAX)
        self._flush()

    def written(self, epoch: int) -> Written:
        by_topic = tuple(sorted(self._records.items()))
        return Written(self._writer.task, epoch, False, sum(self._records.values()), self._bytes_sent, by_topic)

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
            transactional=target.delivery is spec.Delivery.EXACTLY_ONCE,
            first=self._writer.task,
            round_robin=target.partitioner == ROUND_ROBIN and topic == target.topic,
        )
