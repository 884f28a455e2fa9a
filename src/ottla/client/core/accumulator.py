"""Records to be sent, gathered into batches by partition.

Rule 1: the records of a partition are sent in the order they were added. At most one batch of a partition is in flight,
        so that a retried batch is never overtaken by the next.
Rule 2: a batch is due when it is full, when its first record has waited `linger_ms`, or after a flush. While one is in
        flight the next one fills up: the slower the broker, the larger the batches.
Rule 3: every record leaves exactly once: by `done`, or in the result of `expired` or `give_up...`.
Rule 4: a batch that was refused as a whole may be split, and its halves take its place; one that was refused for some
        of its records is sent again without them.
"""

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.client.core.errors import DeliveryFailed, DeliveryUnknown, Misused
from ottla.client.core.names import TopicPartition
from ottla.kernel import HEADER_SIZE, TRANSACTIONAL_FLAG, BatchBuilder, Codec
from ottla.rpc.errors import ClientError

# Attributes; varints of length, timestamp, offset, sizes and count.
_RECORD_OVERHEAD: Final = 1 + 5 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD: Final = 10

Bytes = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, Bytes | None]]
SealedHeaders = Sequence[tuple[str, bytes | None]]


class Draft(NamedTuple):
    """A record before it has an offset, as `BatchBuilder.extend` reads it; `token` identifies the caller waiting for
    its delivery."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: SealedHeaders
    token: Any
    size_max: int  # Upper bound of the encoded size.

    @classmethod
    def of(cls, timestamp: int, key: Bytes | None, value: Bytes | None, headers: Headers, token: Any) -> "Draft":
        """Raises Misused for values no record can hold, before they get into a batch with other records."""
        key, value = _as_bytes("key", key), _as_bytes("value", value)
        if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
            raise Misused(f"timestamp is {timestamp!r}", "Give milliseconds since 1970 as an int, or leave it out.")
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        sealed: SealedHeaders = ()
        if headers:
            sealed = tuple(
                (checked_text("header name", name), _as_bytes(f"header {name!r}", held)) for name, held in headers
            )
            # A character takes up to four bytes.
            size += sum(_HEADER_OVERHEAD + 4 * len(name) + len(held or b"") for name, held in sealed)
        return cls(timestamp, key, value, sealed, token, size)


def _as_bytes(what: str, given: object) -> bytes | None:
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)  # A copy: a mutable buffer must not change before it is sent.
    advice = ".encode() makes bytes of it." if isinstance(given, str) else "Records hold bytes, or None."
    raise Misused(f"{what} is {type(given).__name__} {given!r:.60}", advice)


def checked_text(what: str, given: str) -> str:
    """Returns `given` if it is a str that UTF-8 can encode; else raises Misused."""
    try:
        str.encode(given)
    except (TypeError, UnicodeEncodeError) as error:
        raise Misused(f"{what} is {type(given).__name__} {given!r:.60}: {error}", "Give it as str.") from None
    return given


class Stamp(NamedTuple):
    """Producer id, epoch and sequence of a batch, by which a broker detects duplicates; see `identities`."""

    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """The records of one partition that are sent together."""

    partition: TopicPartition
    created_ms: int
    drafts: list[Draft] = field(default_factory=list)
    size_max: int = HEADER_SIZE
    attempts: int = 0
    not_before_ms: int = 0
    maybe_written: bool = False  # An attempt ended without a response: the records may be in the log.
    stamp: Stamp | None = None
    data: bytes = b""  # Encoded for the first attempt and kept: a retry must send the same bytes.

    def attempt_failed(self, error: ClientError) -> None:
        """Count an attempt that did not store the batch, and note whether it may have done so all the same."""
        self.attempts += 1
        self.maybe_written = self.maybe_written or error.unknown_outcome

    def delivery_error(self, error: ClientError) -> ClientError:
        """The error to raise for the batch's records when the batch is given up because of `error`."""
        kind = DeliveryUnknown if self.maybe_written else DeliveryFailed
        return kind(f"partition {self.partition}", error)

    def build(self, codec: Codec, level: int | None) -> bytes:
        if not self.data:
            builder = BatchBuilder()
            builder.extend(self.drafts)
            stamp = self.stamp
            if stamp is None:
                self.data = builder.build(codec=codec, level=level)
            else:
                self.data = builder.build(
                    codec=codec,
                    level=level,
                    producer_id=stamp.producer_id,
                    producer_epoch=stamp.producer_epoch,
                    base_sequence=stamp.sequence,
                    attributes=codec | TRANSACTIONAL_FLAG if stamp.transactional else None,
                )
        return self.data


class Accumulator:
    """The batches of a producer."""

    def __init__(self, *, batch_bytes: int, linger_ms: int, delivery_timeout_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._under_way: dict[TopicPartition, Batch] = {}
        self._flush_before_ms = -1
        self.held_bytes = 0

    @property
    def empty(self) -> bool:
        return not self._queues and not self._under_way

    def add(self, partition: TopicPartition, draft: Draft, now_ms: int) -> bool:
        """Add a record; true if that made a batch due, or is the partition's first one."""
        size = draft.size_max
        queue = self._queues.setdefault(partition, deque())
        first = not queue
        # A batch that was tried once is closed: its bytes were sent.
        closed = first or queue[-1].attempts > 0 or bool(queue[-1].data)
        if closed or queue[-1].size_max + size > self._batch_bytes:
            queue.append(Batch(partition, now_ms))
        batch = queue[-1]
        batch.drafts.append(draft)
        batch.size_max += size
        self.held_bytes += size
        return first or len(queue) > 1 or batch.size_max >= self._batch_bytes

    def flush(self, now_ms: int) -> None:
        """Make everything added so far due."""
        self._flush_before_ms = now_ms

    def take(
        self, now_ms: int, leader_of: Callable[[TopicPartition], int | None], limit_bytes: int
    ) -> tuple[dict[int, list[list[Batch]]], list[str]]:
        """The due requests, as lists of batches by leader, and the topics of due batches without a leader."""
        requests: dict[int, list[list[Batch]]] = {}
        leaderless: dict[str, None] = {}
        sizes: dict[int, int] = {}
        for partition, queue in list(self._queues.items()):
            if partition in self._under_way or not self._due(queue, now_ms):
                continue
            leader = leader_of(partition)
            if leader is None:
                leaderless[partition.topic] = None
                continue
            batch = queue.popleft()
            if not queue:
                del self._queues[partition]
            self._under_way[partition] = batch
            groups = requests.setdefault(leader, [[]])
            if groups[-1] and sizes.get(leader, 0) + batch.size_max > limit_bytes:
                groups.append([])
                sizes[leader] = 0
            groups[-1].append(batch)
            sizes[leader] = sizes.get(leader, 0) + batch.size_max
        return requests, list(leaderless)

    def next_deadline(self, leaderless: Container[str] = ()) -> int | None:
        """When something becomes due or expires. A batch that is due but has no leader only expires."""
        moments: list[int] = []
        for partition, queue in self._queues.items():
            if queue and partition not in self._under_way:
                moments.append(queue[0].created_ms + self._delivery_timeout_ms)
                if partition.topic not in leaderless:
                    moments.append(self._due_at(queue))
        return min(moments, default=None)

    def done(self, batch: Batch) -> None:
        """Remove a batch whose records were delivered or failed."""
        self._left(batch)
        self._under_way.pop(batch.partition, None)

    def again(self, batch: Batch, at_ms: int) -> None:
        """Retry the batch, not before `at_ms`."""
        batch.not_before_ms = at_ms
        self._put_back([batch])

    def split(self, batch: Batch) -> None:
        """Replace the batch by two of half its records."""
        half = len(batch.drafts) // 2
        halves = [Batch(batch.partition, batch.created_ms), Batch(batch.partition, batch.created_ms)]
        for part, drafts in zip(halves, (batch.drafts[:half], batch.drafts[half:]), strict=True):
            part.drafts = drafts
            part.size_max += sum(draft.size_max for draft in drafts)
            part.attempts = batch.attempts
        self._put_back(halves)

    def without(self, batch: Batch, refused: Container[int]) -> list[Draft]:
        """Remove the records at the given indexes from the batch and send the rest again; returns the removed ones."""
        rest = Batch(batch.partition, batch.created_ms, attempts=batch.attempts)
        gone: list[Draft] = []
        for number, draft in enumerate(batch.drafts):
            (gone if number in refused else rest.drafts).append(draft)
        rest.size_max += sum(draft.size_max for draft in rest.drafts)
        self.held_bytes -= batch.size_max - rest.size_max
        if rest.drafts:
            self._put_back([rest])
        else:
            self._under_way.pop(batch.partition, None)
        return gone

    def expired(self, now_ms: int) -> list[Batch]:
        """Remove and return the batches that were not delivered in time. The one in flight has its own time-out and
        leaves first, so that failures are reported in the order of records."""
        gone: list[Batch] = []
        for partition, queue in list(self._queues.items()):
            while (
                queue and partition not in self._under_way and now_ms - queue[0].created_ms >= self._delivery_timeout_ms
            ):
                batch = queue.popleft()
                self._left(batch)
                gone.append(batch)
            if not queue:
                del self._queues[partition]
        return gone

    def give_up_waiting(self) -> list[Batch]:
        """Remove and return everything that is not in flight."""
        gone = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        for batch in gone:
            self._left(batch)
        return gone

    def give_up(self) -> list[Batch]:
        """Remove and return everything, in flight or not."""
        gone = [*self._under_way.values(), *(batch for queue in self._queues.values() for batch in queue)]
        self._queues.clear()
        self._under_way.clear()
        self.held_bytes = 0
        return gone

    def may_retry(self, batch: Batch, at_ms: int) -> bool:
        return at_ms - batch.created_ms < self._delivery_timeout_ms

    def left_ms(self, batches: Sequence[Batch], now_ms: int) -> int:
        """The time left of the newest of these batches, at least 1 ms, as the time-out of an attempt."""
        return max(max(batch.created_ms for batch in batches) + self._delivery_timeout_ms - now_ms, 1)

    def _due(self, queue: deque[Batch], now_ms: int) -> bool:
        return bool(queue) and now_ms >= self._due_at(queue)

    def _due_at(self, queue: deque[Batch]) -> int:
        first = queue[0]
        if first.attempts or first.not_before_ms:
            return first.not_before_ms
        full = len(queue) > 1 or first.size_max >= self._batch_bytes
        if full or first.created_ms <= self._flush_before_ms:
            return first.created_ms
        return first.created_ms + self._linger_ms

    def _put_back(self, batches: list[Batch]) -> None:
        partition = batches[0].partition
        self._under_way.pop(partition, None)
        self._queues.setdefault(partition, deque()).extendleft(reversed(batches))

    def _left(self, batch: Batch) -> None:
        self.held_bytes -= batch.size_max - HEADER_SIZE


def by_topic(batches: Sequence[Batch]) -> Mapping[str, list[Batch]]:
    topics: dict[str, list[Batch]] = {}
    for batch in batches:
        topics.setdefault(batch.partition.topic, []).append(batch)
    return topics
