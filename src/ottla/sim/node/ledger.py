"""What the clients did and saw, and whether the node's word held.

Rule 1: every record has an id of its own, in a header, and is entered before it is sent. What is found without an entry
        was invented; what was found once stays where it was found.
Rule 2: an acknowledgement and a read are the same promise: this record stands at this offset. Where the topic asks for
        syncs it outlives a power loss, elsewhere only the death of the process.
Rule 3: no answer means that anything may have happened. Only a refusal of every attempt says that nothing did.
Rule 4: whoever is unsure keeps silent: an answer from before a power loss counts only where syncs were asked for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.sim.checkers import Violation
from ottla.sim.node.swarm import TopicPlan
from ottla.sim.node.transaction_history import Transaction
from ottla.sim.records import Record
from ottla.wire.uuids import uuid_to_text

Key = tuple[bytes, int]
"""A partition: the id of its topic and its number."""

NO_LIFE = -1
"""Instead of the node's life in which something was asked: its answer counts nowhere."""
ID = "id"
"""The header that names a record."""


@dataclass(slots=True, eq=False)
class Sent:
    """One record, and what became of it."""

    id: bytes
    where: Key
    sender: str
    number: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    once: bool
    """Whether it may stand at one offset at most, however often it was sent."""
    attempts: int = 0
    refusals: int = 0
    offset: int | None = None
    """Where it was acknowledged."""
    acked_at: float = 0.0
    refusal: str = ""
    transaction: Transaction | None = None

    @property
    def may_be_aborted(self) -> bool:
        """Whether it counts for nobody, perhaps: a cleaner may remove it, and it takes no other's place."""
        return self.transaction is not None and self.transaction.may_be_aborted

    @property
    def is_refused(self) -> bool:
        """Whether it can be nowhere: every attempt was refused."""
        return self.attempts > 0 and self.refusals == self.attempts


@dataclass(slots=True, eq=False)
class PartitionHistory:
    plan: TopicPlan
    known: dict[int, Sent] = field(default_factory=dict)
    """By offset: what was acknowledged or read there."""
    start_asked: int = 0
    """The highest offset before which somebody asked to delete records."""
    start_seen: int = 0
    watermark: int = 0
    """The highest that anyone was told in this life of the node."""
    since_life: int = 0
    """The life of the node in which its log began: the one before it went with its disk."""


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.partitions: dict[Key, PartitionHistory] = {}
        self.lives = 0
        """How often power was lost, or a sync failed: what was not synced may be gone since."""
        self.latest_ms = 0
        """The latest moment that the wall clock has shown."""
        self._tombstones: dict[tuple[Key, bytes | None], None] = {}

    def partition(self, key: Key) -> PartitionHistory:
        return self.partitions[key]

    def made(self, topic_id: bytes, partitions: int, plan: TopicPlan) -> None:
        for index in range(partitions):
            self.partitions.setdefault((topic_id, index), PartitionHistory(plan))

    # Writing.

    def entered(self, sent: Sent) -> Sent:
        self.sent[sent.id] = sent
        if sent.value is None:
            self._tombstones[sent.where, sent.key] = None
        return sent

    def acked(self, sent: Sent, offset: int, *, life: int, now: float) -> None:
        """An answer said that it stands there."""
        if offset < 0 or not self.counts(sent.where, life):
            return
        sent.offset, sent.acked_at = offset, sent.acked_at or now
        self._stands(sent, offset, "acknowledged")

    def refused(self, sent: Sent, reason: str) -> None:
        """An answer said that this attempt was turned away."""
        sent.refusals += 1
        sent.refusal = reason
        if sent.is_refused:
            at = [offset for offset, known in self.partition(sent.where).known.items() if known is sent]
            if at:
                raise Violation("I10", f"{told(sent)} was read at {at[0]} and refused: {reason}")

    # Reading.

    def read(self, key: Key, record: Record, *, life: int) -> Sent:
        """A reader was given this record."""
        ids = [value for name, value in record.headers if name == ID]
        sent = self.sent.get(ids[0] or b"") if ids else None
        if sent is None:
            raise Violation("I2", f"{name_of(key)} offset {record.offset} holds {record}, which nobody sent")
        if sent.where != key:
            raise Violation("I2", f"{told(sent)} was sent to {name_of(sent.where)} and stands in {name_of(key)}")
        if (sent.key, sent.value) != (record.key, record.value):
            raise Violation("I23", f"{told(sent)} reads {record}")
        plan = self.partition(key).plan
        if plan.settings["message.timestamp.type"] == "CreateTime" and record.timestamp != sent.timestamp:
            raise Violation("I23", f"{told(sent)} was of {sent.timestamp} and reads {record}")
        if sent.is_refused:
            raise Violation("I10", f"{told(sent)} was refused ({sent.refusal}) and stands at {record.offset}")
        if self.counts(key, life):
            self._stands(sent, record.offset, "read")
        return sent

    def counts(self, key: Key, life: int) -> bool:
        """Whether what was said of a partition in a life of the node still holds."""
        history = self.partition(key)
        return life >= history.since_life and life != NO_LIFE and (life == self.lives or history.plan.is_synced)

    def _stands(self, sent: Sent, offset: int, how: str) -> None:
        history = self.partition(sent.where)
        before = history.known.get(offset)
        if before is not None and before is not sent:
            raise Violation("I2", f"{name_of(sent.where)} {offset} was {told(before)}, now {told(sent)} is {how} there")
        if sent.once and before is None:
            others = [at for at, known in history.known.items() if known is sent and at >= history.start_seen]
            if others:
                raise Violation("I3", f"{told(sent)} stands at {others[0]} and is {how} at {offset}")
        history.known[offset] = sent

    def told_offsets(self, key: Key, *, start: int, watermark: int, life: int) -> None:
        """What an answer said of a partition's bounds."""
        history = self.partition(key)
        history.start_seen = max(history.start_seen, start)
        if self.counts(key, life):
            history.watermark = max(history.watermark, watermark)

    def went_on(self, key: Key, position: int, offset: int, *, committed: bool, life: int) -> None:
        """A reader at `position` was given the record at `offset` next (I8)."""
        history = self.partition(key)
        if history.plan.compacts or history.plan.retention_ms >= 0 or not self.counts(key, life):
            return
        for skipped in range(max(position, history.start_asked), offset):
            sent = history.known.get(skipped)
            if sent is not None and not (committed and sent.may_be_aborted):
                raise Violation(
                    "I8", f"{name_of(key)}: {told(sent)} at {skipped} was skipped from {position} to {offset}"
                )

    # What a node found when it came back.

    def emptied(self, keys: Iterable[Key]) -> None:
        """The logs of these are gone, with their disk: they begin anew."""
        for key in keys:
            history = self.partition(key)
            for sent in history.known.values():
                sent.offset = None
            history.known.clear()
            history.start_asked = history.start_seen = history.watermark = 0
            history.since_life = self.lives + 1

    def found(self, ends: Mapping[Key, int], *, lossy: bool) -> None:
        """A node has opened its logs; they end here. `lossy` after a power loss or a disk that failed."""
        for key, end in ends.items():
            history = self.partitions.get(key)
            if history is None:
                continue
            lost = [offset for offset in history.known if offset >= end]
            if lost and (not lossy or history.plan.is_synced):
                sent = history.known[min(lost)]
                raise Violation("I1", f"{name_of(key)} came back up to {end}; {told(sent)} stood at {min(lost)}")
            for offset in lost:
                sent = history.known.pop(offset)
                sent.offset = None
            history.watermark = min(history.watermark, end)

    # Looking at everything.

    def audited(
        self, key: Key, found: Mapping[int, Record], start: int, end: int, *, expected: Iterable[int], quiet: bool
    ) -> None:
        """All from `start` to `end` was read; `expected` was known before that. `quiet` if nobody wrote meanwhile."""
        history = self.partition(key)
        self._check_start(key, start)
        for record in found.values():
            self.read(key, record, life=self.lives)
        self._check_once(key, found)
        for offset in (offset for offset in expected if start <= offset and offset not in found):
            if not history.plan.compacts or offset >= end:
                raise Violation(
                    "I1", f"{name_of(key)} from {start} to {end} lacks {told(history.known[offset])} at {offset}"
                )
            if quiet:
                self._check_superseded(key, offset, found)
        self._check_order(key)

    def _check_start(self, key: Key, start: int) -> None:
        history = self.partition(key)
        if start <= history.start_asked:
            return
        retention_ms = history.plan.retention_ms
        if retention_ms >= 0 and history.plan.settings["message.timestamp.type"] == "LogAppendTime":
            return  # By the node's clock, which may have jumped.
        newest = {sent.key: offset for offset, sent in sorted(history.known.items())}
        early = [
            offset
            for offset, sent in history.known.items()
            if history.start_asked <= offset < start
            and (retention_ms < 0 or sent.timestamp + retention_ms > self.latest_ms)
            and not (history.plan.compacts and newest[sent.key] > offset)  # The cleaner took it before.
            and not (history.plan.compacts and sent.may_be_aborted)
        ]
        if early:
            raise Violation(
                "I1", f"{name_of(key)} begins at {start}; {told(history.known[early[0]])} at {early[0]} was not due"
            )

    def _check_once(self, key: Key, found: Mapping[int, Record]) -> None:
        at: dict[bytes, int] = {}
        for offset, record in found.items():
            id_ = self.id_of(record)
            if id_ in at and self.sent[id_].once:
                raise Violation("I3", f"{name_of(key)}: {told(self.sent[id_])} stands at {at[id_]} and at {offset}")
            at[id_] = offset

    def _check_superseded(self, key: Key, offset: int, found: Mapping[int, Record]) -> None:
        """What a cleaner removed has a newer record of its key, unless that said to delete it and is gone, too."""
        sent = self.partition(key).known[offset]
        if (key, sent.key) in self._tombstones or sent.may_be_aborted:
            return
        if not any(
            at > offset and record.key == sent.key and not self._is_aborted(record) for at, record in found.items()
        ):
            raise Violation("I20", f"{name_of(key)} lost {told(sent)} at {offset}, the newest of its key")

    def _is_aborted(self, record: Record) -> bool:
        transaction = self.sent[self.id_of(record)].transaction
        return transaction is not None and transaction.is_aborted

    def _check_order(self, key: Key) -> None:
        newest: dict[str, tuple[int, int]] = {}
        for offset, sent in sorted(self.partition(key).known.items()):
            if sent.offset != offset:
                continue
            number, at = newest.get(sent.sender, (-1, -1))
            if sent.number < number:
                raise Violation("I9", f"{name_of(key)}: {told(sent)} at {offset} was sent before the one at {at}")
            newest[sent.sender] = (sent.number, offset)

    @staticmethod
    def id_of(record: Record) -> bytes:
        return next(value or b"" for name, value in record.headers if name == ID)

    def acknowledged(self) -> Iterable[Sent]:
        return (sent for sent in self.sent.values() if sent.offset is not None)


def name_of(key: Key) -> str:
    return f"{uuid_to_text(key[0])}/{key[1]}"


def told(sent: Sent) -> str:
    return f"record {sent.id.decode()}"
