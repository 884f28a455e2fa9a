"""The requests of transactional producers, and whether what was seen of their transactions is consistent.

Rule 1: a transaction is aborted if its commit was never requested, or if every request to commit was refused; it is
        committed if one succeeded. Otherwise the outcome is unknown until part of it is seen.
Rule 2: at read_committed nothing is seen of a transaction whose commit was not requested (I5), or that was aborted
        (I4).
Rule 3: of a committed transaction everything is seen, of others nothing (I6).
Rule 4: a power loss removes unsynced records from each log separately: nothing is known any more of transactions begun
        before it, nor of one whose producer has an identity returned before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ottla.sim.played import Violation

if TYPE_CHECKING:
    from ottla.sim.node.ledger import Sent


class TransactionOutcome(Enum):
    UNKNOWN = "is undecided"
    COMMITTED = "was committed"
    ABORTED = "was aborted"


@dataclass(slots=True, eq=False)
class RecordedTransaction:
    name: str
    writes: "list[Sent]" = field(default_factory=list)
    commit_asked: bool = False
    outcome: TransactionOutcome = TransactionOutcome.UNKNOWN
    ended_at: float = float("inf")
    """When its commit was confirmed."""
    witness: str = ""
    """What was seen of it first by a reader of committed records."""
    is_void: bool = False
    """Whether nothing is known of it (rule 4)."""

    @property
    def may_be_aborted(self) -> bool:
        return self.is_void or (self.outcome is not TransactionOutcome.COMMITTED and not self.witness)

    @property
    def is_aborted(self) -> bool:
        return self.outcome is TransactionOutcome.ABORTED and not self.is_void

    def committed(self, now: float) -> None:
        if self.is_aborted:
            raise Violation("I6", f"{self.name} was aborted, and then its commit was granted")
        self.outcome, self.ended_at = TransactionOutcome.COMMITTED, now

    def aborted(self) -> None:
        if self.witness and not self.is_void:
            raise Violation("I4", f"{self.name} was aborted, but {self.witness} of it was seen")
        self.outcome = TransactionOutcome.ABORTED

    def given_up(self) -> None:
        """Its producer does nothing more about it."""
        if not self.commit_asked:
            self.aborted()

    def seen(self, what: str) -> None:
        """A reader of committed records got this."""
        if self.is_void:
            return
        if not self.commit_asked:
            raise Violation("I5", f"{what} was seen before anybody asked to commit {self.name}")
        if self.is_aborted:
            raise Violation("I4", f"{what} was seen, though {self.name} was aborted")
        self.witness = self.witness or what


class TransactionHistory:
    def __init__(self) -> None:
        self.all: list[RecordedTransaction] = []

    def begin(self, producer: str) -> RecordedTransaction:
        transaction = RecordedTransaction(f"transaction {len(self.all) + 1} of {producer}")
        self.all.append(transaction)
        return transaction

    def power_lost(self) -> None:
        """Record a power loss: unsynced records of all transactions may be gone."""
        for transaction in self.all:
            transaction.is_void = True

    def audited(self, visible: Iterable[bytes], missing: Iterable[bytes]) -> None:
        """Everything was read at read_committed: `visible` records are there; `missing` ones must not be committed."""
        seen, unseen = set(visible), set(missing)
        for transaction in self.all:
            there = [sent for sent in transaction.writes if sent.id in seen]
            lacking = [sent for sent in transaction.writes if sent.id in unseen]
            for sent in there:
                transaction.seen(f"record {sent.id.decode()}")
            if lacking and not transaction.may_be_aborted:
                why = transaction.witness and f"{transaction.witness} was seen"
                raise Violation(
                    "I6", f"record {lacking[0].id.decode()} is missing: {transaction.name} was committed {why}".rstrip()
                )
