"""What the clients did and saw, and whether the node kept its promises.

Rule 1: every record has a unique id in a header, and is recorded before it is sent. A record found without an entry was
        invented; a record found once stays at its offset.
Rule 2: an acknowledgement and a read are the same promise: this record is at this offset. If the topic requires syncs
        it survives a power loss, otherwise only the death of the process.
Rule 3: without a response anything may have happened. Only if every attempt was refused, nothing did.
Rule 4: a check that cannot be sure reports nothing: a response from before a power loss counts only if syncs were
        required.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.sim.node.swarm import TopicPlan
from ottla.sim.node.transaction_history import RecordedTransaction
from ottla.sim.played import Violation
from ottla.sim.records import DecodedRecord
from ottla.wire.uuids import uuid_to_text

Key = tuple[bytes, int]
"""A partition: topic id and number."""

NO_LIFE = -1
"""Used instead of the node's life if the response counts in no life."""
ID = "id"
"""The header that names a record."""


@dataclass(slots=True, eq=False)
class Sent:
    """One record that was sent, and the responses and reads that are known about it."""

    id: bytes
    where: Key
    sender: str
    number: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    once: bool
    """Whether it may be at one offset at most, however often it was sent."""
    attempts: int = 0
    refusals: int = 0
    offset: int | None = None
    """Where it was acknowledged."""
    acked_at: float = 0.0
    refusal: str = ""
    transaction: RecordedTransaction | None = None

    @property
    def may_be_aborted(self) -> bool:
        """Whether it may be aborted: then the cleaner may remove it, and it supersedes no other record."""
        return self.transaction is not None and self.transaction.may_be_aborted

    @property
    def is_refused(self) -> bool:
        """Whether every attempt was refused, so that it must not be found."""
        return self.attempts > 0 and self.refusals == self.attempts


@dataclass(slots=True, eq=False)
class PartitionHistory:
    plan: TopicPlan
    known: dict[int, Sent] = field(default_factory=dict)
    """Records acknowledged or read, by offset."""
    start_asked: int = 0
    """The highest offset of a request to delete records."""
    start_seen: int = 0
    watermark: int = 0
    """The highest watermark reported in this life of the node."""
    since_life: int = 0
    """The life of the node in which its log began; the log before was lost with its disk."""


class Ledger:
    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.partitions: dict[Key, PartitionHistory] = {}
        self.lives = 0
        """How often power was lost or a sync failed, so that unsynced records may be gone."""
        self.latest_ms = 0
        """The latest wall-clock time so far."""
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
        """Record that a response has acknowledged the record at this offset."""
        if offset < 0 or not self.counts(sent.where, life):
            return
        sent.offset, sent.acked_at = offset, sent.acked_at or now
        self._stands(sent, offset, "acknowledged")

    def refused(self, sent: Sent, reason: str) -> None:
        """Record that a response has refused one attempt to send the record."""
        sent.refusals += 1
        sent.refusal = reason
        if sent.is_refused:
            at = [offset for offset, known in self.partition(sent.where).known.items() if known is sent]
            if at:
                raise Violation("I10", f"{text_of(sent)} was read at {at[0]} and refused: {reason}")

    # Reading.

    def read(self, key: Key, record: DecodedRecord, *, life: int) -> Sent:
        """Check a record that a reader got, and record that it is at its offset."""
        ids = [value for name, value in record.headers if name == ID]
        sent = self.sent.get(ids[0] or b"") if ids else None
        if sent is None:
            raise Violation("I2", f"{name_of(key)} offset {record.offset} holds {record}, which nobody sent")
        if sent.where != key:
            raise Violation("I2", f"{text_of(sent)} was sent to {name_of(sent.where)} and stands in {name_of(key)}")
        if (sent.key, sent.value) != (record.key, record.value):
            raise Violation("I23", f"{text_of(sent)} reads {record}")
        plan = self.partition(key).plan
        if plan.settings["message.timestamp.type"] == "CreateTime" and record.timestamp != sent.timestamp:
            raise Violation("I23", f"{text_of(sent)} was of {sent.timestamp} and reads {record}")
        if sent.is_refused:
            raise Violation("I10", f"{text_of(sent)} was refused ({sent.refusal}) and stands at {record.offset}")
        if self.counts(key, life):
            self._stands(sent, record.offset, "read")
        return sent

    def counts(self, key: Key, life: int) -> bool:
        """Whether a statement about a partition in a life of the node still holds."""
        history = self.partition(key)
        return life >= history.since_life and life != NO_LIFE and (life == self.lives or history.plan.is_synced)

    def _stands(self, sent: Sent, offset: int, how: str) -> None:
        history = self.partition(sent.where)
        before = history.known.get(offset)
        if before is not None and before is not sent:
            raise Violation(
                "I2",
                f"{name_of(sent.where)} {offset} was {text_of(before)}, now {text_of(sent)} is {how} there",
            )
        if sent.once and before is None:
            others = [at for at, known in history.known.items() if known is sent and at >= history.start_seen]
            if others:
                raise Violation("I3", f"{text_of(sent)} stands at {others[0]} and is {how} at {offset}")
        history.known[offset] = sent

    def bounds_reported(self, key: Key, *, start: int, watermark: int, life: int) -> None:
        """Record the bounds of a partition that a response has reported."""
        history = self.partition(key)
        history.start_seen = max(history.start_seen, start)
        if self.counts(key, life):
            history.watermark = max(history.watermark, watermark)

    def went_on(self, key: Key, position: int, offset: int, *, committed: bool, life: int) -> None:
        """Check that a reader at `position` has missed no record if `offset` is the next one it got (I8)."""
        history = self.partition(key)
        if history.plan.compacts or history.plan.retention_ms >= 0 or not self.counts(key, life):
            return
        for skipped in range(max(position, history.start_asked), offset):
            sent = history.known.get(skipped)
            if sent is not None and not (committed and sent.may_be_aborted):
                raise Violation(
                    "I8", f"{name_of(key)}: {text_of(sent)} at {skipped} was skipped from {position} to {offset}"
                )

    # What a restarted node found.

    def emptied(self, keys: Iterable[Key]) -> None:
        """Record that the logs of these partitions were lost with their disk, and begin again empty."""
        for key in keys:
            history = self.partition(key)
            for sent in history.known.values():
                sent.offset = None
            history.known.clear()
            history.start_asked = history.start_seen = history.watermark = 0
            history.since_life = self.lives + 1

    def found(self, ends: Mapping[Key, int], starts: Mapping[Key, int], *, lossy: bool) -> None:
        """Check the bounds of the logs that a restarted node has opened. `lossy`: power was lost or a disk failed.

        Then records that were not synced may be lost, and with them the producer state. That includes producers before
        the log start, whose records retention had just removed."""
        for key, end in ends.items():
            history = self.partitions.get(key)
            if history is None:
                continue
            lost = [offset for offset in history.known if offset >= end]
            if lost and (not lossy or history.plan.is_synced):
                sent = history.known[min(lost)]
                raise Violation("I1", f"{name_of(key)} came back up to {end}; {text_of(sent)} stood at {min(lost)}")
            for offset in lost:
                sent = history.known.pop(offset)
                sent.offset = None
            if lossy and not history.plan.is_synced:
                history.start_seen = max(history.start_seen, starts[key])
            history.watermark = min(history.watermark, end)

    # Auditing.

    def audited(
        self,
        key: Key,
        found: Mapping[int, DecodedRecord],
        start: int,
        end: int,
        *,
        expected: Iterable[int],
        quiet: bool,
    ) -> None:
        """Check a read of everything from `start` to `end`. `expected` are the offsets that were known before the read.
        `quiet`: nothing was written during it."""
        history = self.partition(key)
        self._check_start(key, start)
        for record in found.values():
            self.read(key, record, life=self.lives)
        self._check_once(key, found)
        for offset in (offset for offset in expected if start <= offset and offset not in found):
            if not history.plan.compacts or offset >= end:
                raise Violation(
                    "I1",
                    f"{name_of(key)} from {start} to {end} lacks {text_of(history.known[offset])} at {offset}",
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
            and not (history.plan.compacts and newest[sent.key] > offset)  # The cleaner removed it before.
            and not (history.plan.compacts and sent.may_be_aborted)
        ]
        if early:
            raise Violation(
                "I1",
                f"{name_of(key)} begins at {start}; {text_of(history.known[early[0]])} at {early[0]} was not due",
            )

    def _check_once(self, key: Key, found: Mapping[int, DecodedRecord]) -> None:
        at: dict[bytes, int] = {}
        for offset, record in found.items():
            id_ = self.id_of(record)
            if id_ in at and self.sent[id_].once:
                raise Violation("I3", f"{name_of(key)}: {text_of(self.sent[id_])} stands at {at[id_]} and at {offset}")
            at[id_] = offset

    def _check_superseded(self, key: Key, offset: int, found: Mapping[int, DecodedRecord]) -> None:
        """A record that the cleaner removed has a newer record of its key, unless that one was a tombstone and is gone,
        too."""
        sent = self.partition(key).known[offset]
        if (key, sent.key) in self._tombstones or sent.may_be_aborted:
            return
        if not any(
            at > offset and record.key == sent.key and not self._is_aborted(record) for at, record in found.items()
        ):
            raise Violation("I20", f"{name_of(key)} lost {text_of(sent)} at {offset}, the newest of its key")

    def _is_aborted(self, record: DecodedRecord) -> bool:
        transaction = self.sent[self.id_of(record)].transaction
        return transaction is not None and transaction.is_aborted

    def _check_order(self, key: Key) -> None:
        newest: dict[str, tuple[int, int]] = {}
        for offset, sent in sorted(self.partition(key).known.items()):
            if sent.offset != offset:
                continue
            number, at = newest.get(sent.sender, (-1, -1))
            if sent.number < number:
                raise Violation("I9", f"{name_of(key)}: {text_of(sent)} at {offset} was sent before the one at {at}")
            newest[sent.sender] = (sent.number, offset)

    @staticmethod
    def id_of(record: DecodedRecord) -> bytes:
        return next(value or b"" for name, value in record.headers if name == ID)

    def acknowledged(self) -> Iterable[Sent]:
        return (sent for sent in self.sent.values() if sent.offset is not None)


def name_of(key: Key) -> str:
    return f"{uuid_to_text(key[0])}/{key[1]}"


def text_of(sent: Sent) -> str:
    return f"record {sent.id.decode()}"
