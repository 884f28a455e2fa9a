"""The producer's state of a transactional id: which operations are allowed, and how a transaction ends.

    NEW --> READY --> OPEN --+-----------> COMMITTING --> READY
                       |     |
                       v     v
                     FAILED -+-----------> ABORTING ----> READY         any --> FENCED

Rule 1: records and offsets are accepted only while a transaction is open.
Rule 2: a record that was accepted and not delivered fails the transaction. It can only be aborted then.
Rule 3: once a commit or abort may have reached the coordinator, only the same one may be requested again.
Rule 4: in version 2 (KIP-890) every end gives the producer a new identity, and brokers add the partitions it writes to.
        Before, the producer adds them itself and keeps its identity, unless a batch was lost: then the partition's next
        sequence number is unknown, and a new epoch resets it to 0 (KIP-360).
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ottla.client.core.errors import Misused, ProducerFenced, TransactionFailed
from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import ClientError


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
        """`subject` is the transactional id as error messages name it."""
        self.subject = subject
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.is_version_2 = False
        self.lost_batch = False
        """A batch of this transaction was not delivered; see rule 4."""
        self._failure: ClientError | None = None
        self._enlisted: set[TopicPartition] = set()
        self._is_known_there = False
        self._is_decided = False

    # Requests of the caller.

    def initialized(self, identity: ProducerIdentity, *, is_version_2: bool) -> None:
        """The coordinator has accepted the producer's identity, and ended what was open."""
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
        """Accept no more records."""
        if self.phase not in (Phase.OPEN, Phase.COMMITTING):
            raise self.refusal()
        self.phase = Phase.COMMITTING

    def decide_commit(self) -> None:
        """Called when all records were delivered or failed. If all were delivered the coordinator is asked to commit,
        which cannot be undone."""
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
        """Whether the coordinator may know of the transaction; if not, it needs no EndTxn."""
        return self._is_known_there

    @property
    def must_renew(self) -> bool:
        """Whether the producer needs a new epoch before it can continue."""
        return self.lost_batch and not self.is_version_2

    # Contents of the transaction.

    def request_sent(self) -> None:
        """A request was sent that may open the transaction at the coordinator."""
        self._is_known_there = True

    def to_enlist(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that must be added at the coordinator before they are written to."""
        return [] if self.is_version_2 else [one for one in partitions if one not in self._enlisted]

    def enlisted(self, partitions: Iterable[TopicPartition]) -> None:
        self._enlisted.update(partitions)

    # Failures.

    def failed(self, cause: ClientError) -> None:
        """Record the first cause; an aborting transaction cannot fail any more."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self.phase, self._failure = Phase.FAILED, cause

    def fenced(self, cause: ClientError) -> None:
        if self.phase is not Phase.FENCED:
            self.phase, self._failure = Phase.FENCED, cause

    def refusal(self) -> ClientError:
        """Why the requested operation is not possible now."""
        if self.phase in _MISUSES:
            what, advice = _MISUSES[self.phase]
            return Misused(f"{self.subject}: {what}", advice)
        assert self._failure is not None
        kind = ProducerFenced if self.phase is Phase.FENCED else TransactionFailed
        return kind(self.subject, self._failure)

    def _forget(self) -> None:
        self.phase, self._failure = Phase.READY, None
        self._enlisted.clear()
        self._is_known_there = self._is_decided = self.lost_batch = False
