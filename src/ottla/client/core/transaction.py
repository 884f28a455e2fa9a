"""A transactional id on its producer's side: what may be done now, and what an end takes.

    NEW --> READY --> OPEN --+-----------> COMMITTING --> READY
                       |     |
                       v     v
                     FAILED -+-----------> ABORTING ----> READY         any --> FENCED

Rule 1: records and offsets are taken while a transaction is open, and at no other time.
Rule 2: what was taken and not delivered fails the transaction. It can be aborted, and nothing else.
Rule 3: when the coordinator may have been told how it ends, only the same end may be asked for again.
Rule 4: in version 2 (KIP-890) every end gives the producer a new identity, and brokers enlist the partitions that it
        writes to. Before, the producer enlists them itself and keeps its identity, unless a batch was lost: then nobody
        knows the partition's next sequence number, and a new epoch makes it 0 (KIP-360).
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ottla.client.core.errors import ClientError, Misused, ProducerFenced, TransactionFailed
from ottla.client.core.names import TopicPartition


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


class Phase(Enum):
    NEW = "new"
    READY = "ready"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FAILED = "failed"
    FENCED = "fenced"


_MISUSES = {
    Phase.NEW: ("the transactional id was not taken yet", "Use `async with`, or call `init` first."),
    Phase.READY: ("no transaction is open", "Begin one first."),
    Phase.OPEN: ("a transaction is open already", "Commit or abort it first."),
    Phase.COMMITTING: ("the transaction is being committed", "Wait for `commit`, or call it again if it failed."),
    Phase.ABORTING: ("the transaction is being aborted", "Wait for `abort`, or call it again if it failed."),
}


class TransactionState:
    def __init__(self, subject: str) -> None:
        """`subject` is what errors call the transactional id."""
        self.subject = subject
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.is_version_2 = False
        self.lost_batch = False
        """A batch of this transaction was not delivered; see rule 4."""
        self._failure: ClientError | None = None
        self._enlisted: set[TopicPartition] = set()
        self._is_told = False
        self._is_decided = False

    # What is asked for.

    def initialized(self, identity: ProducerIdentity, *, is_version_2: bool) -> None:
        """The coordinator knows the producer under this identity, and has ended what was open."""
        self.identity, self.is_version_2 = identity, is_version_2
        self._forget()

    def begin(self) -> None:
        if self.phase is not Phase.READY:
            raise self.refusal()
        self.phase = Phase.OPEN

    def check_open(self) -> None:
        if self.phase is not Phase.OPEN:
            raise self.refusal()

    def prepare_commit(self) -> None:
        """No more records are taken."""
        if self.phase not in (Phase.OPEN, Phase.COMMITTING):
            raise self.refusal()
        self.phase = Phase.COMMITTING

    def decide_commit(self) -> None:
        """All records have their fate. If it is a good one the coordinator is told, and there is no way back."""
        if self.phase is not Phase.COMMITTING:
            raise self.refusal()
        self._is_decided = True

    @property
    def may_abort(self) -> bool:
        if self.phase is Phase.COMMITTING:
            return not self._is_decided
        return self.phase in (Phase.OPEN, Phase.FAILED, Phase.ABORTING)

    def prepare_abort(self) -> None:
        if not self.may_abort:
            raise self.refusal()
        self.phase = Phase.ABORTING

    def ended(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._forget()

    @property
    def must_end(self) -> bool:
        """Whether the coordinator may know of the transaction; otherwise its end is nobody else's business."""
        return self._is_told

    @property
    def must_renew(self) -> bool:
        """Whether the producer needs another epoch before it can go on."""
        return self.lost_batch and not self.is_version_2

    # What becomes part of the transaction.

    def told(self) -> None:
        """Something is on its way that may open the transaction at the coordinator."""
        self._is_told = True

    def to_enlist(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that the coordinator must be told of before they are written to."""
        return [] if self.is_version_2 else [one for one in partitions if one not in self._enlisted]

    def enlisted(self, partitions: Iterable[TopicPartition]) -> None:
        self._enlisted.update(partitions)

    # What goes wrong.

    def failed(self, cause: ClientError) -> None:
        """The first reason is kept; what is being aborted cannot fail any more."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self.phase, self._failure = Phase.FAILED, cause

    def fenced(self, cause: ClientError) -> None:
        if self.phase is not Phase.FENCED:
            self.phase, self._failure = Phase.FENCED, cause

    def refusal(self) -> ClientError:
        """Why what was asked for is not possible now."""
        if self.phase in _MISUSES:
            what, advice = _MISUSES[self.phase]
            return Misused(f"{self.subject}: {what}", advice)
        assert self._failure is not None
        kind = ProducerFenced if self.phase is Phase.FENCED else TransactionFailed
        return kind(self.subject, self._failure)

    def _forget(self) -> None:
        self.phase, self._failure = Phase.READY, None
        self._enlisted.clear()
        self._is_told = self._is_decided = self.lost_batch = False
