"""Random requests of current and outdated producers against a small model of one transactional id.

The model knows who owns the id, whether a transaction is open, and what the last one's end was. It knows nothing of
epochs, rotation and records; those are checked by what must hold of the log:

- an identity is never given to two producers, and epochs of a producer id never fall;
- each transaction ends once, and every completion has its decision before it;
- the shard loaded from any prefix of the log is the shard that wrote it.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from transaction_samples import ID, NOW, TIMEOUT_MS, Desk

from ottla.core.transactions.transaction import (
    EPOCH_MAX,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from ottla.wire.errors import Error, Refused

PARTITIONS = [(topic, index) for topic in "ab" for index in range(2)]


class TransactionMachine(RuleBasedStateMachine):
    @initialize(version=st.sampled_from([0, 1, 2]), epoch=st.sampled_from([0, 0, EPOCH_MAX - 3]))
    def begin(self, version: int, epoch: int) -> None:
        self.version = 2 if version == 2 else 0
        self.desk = Desk(version=version, producer_ids=list(range(1000, 1500)))
        self.owner = self.desk.init()
        self.given = [self.owner]
        if epoch:
            self.owner = self.desk.at_epoch(epoch)
            self.given.append(self.owner)
        self.open: frozenset[tuple[str, int]] | None = None
        self.ending: bool | None = None
        self.last_end: bool | None = None
        self.before_end: ProducerIdentity | None = None
        self.now = NOW
        self.written: list[Transaction] = []

    def ask(self, act: Callable[..., Any], *args: Any, **more: Any) -> Any:
        try:
            return act(*args, **more)
        except Refused as refusal:
            return refusal.error

    # Clients.

    @rule()
    def init(self) -> None:
        reply = self.ask(self.desk.shard_init)
        if self.ending is not None:
            assert reply is Error.CONCURRENT_TRANSACTIONS
        elif self.open is not None:
            assert reply is None
            self.aborted_for_owner()
        else:
            assert isinstance(reply, ProducerIdentity)
            self.new_owner(reply)

    @rule(number=st.integers(0, 1_000))
    def init_as(self, number: int) -> None:
        """Somebody goes on after an error, who may have been replaced meanwhile."""
        who = self.given[-1 - number % min(len(self.given), 4)]
        reply = self.ask(self.desk.shard_init, expected=who)
        if self.ending is not None:
            assert reply is Error.CONCURRENT_TRANSACTIONS
        elif self.open is not None:
            if who.producer_id != self.owner.producer_id:
                assert reply is Error.PRODUCER_FENCED
            else:
                assert reply is None
                self.aborted_for_owner()
        elif who == self.owner or (self.owner_is_nobody and reply == self.owner):
            self.new_owner(reply)
        else:
            assert reply in (Error.PRODUCER_FENCED, self.owner), "an outdated one gets nothing that is new"

    @precondition(lambda self: self.ending is None and self.open is None)
    @rule()
    def go_on_after_an_error(self) -> None:
        reply = self.desk.init(expected=self.owner)
        assert self.desk.init(expected=self.owner) == reply, "sent again"
        self.new_owner(reply)

    @rule(number=st.integers(0, 1_000), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, number: int, partitions: set[tuple[str, int]]) -> None:
        who = self.given[-1 - number % min(len(self.given), 4)]
        reply = self.ask(self.desk.add, who, *partitions, version=self.version, at_ms=self.now)
        if self.ending is not None:
            assert reply is Error.CONCURRENT_TRANSACTIONS
        elif who != self.owner:
            assert reply in (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING)
        else:
            assert reply is None
            self.open = (self.open or frozenset()) | partitions

    @rule(number=st.integers(0, 1_000), commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        who = self.given[-1 - number % min(len(self.given), 4)]
        reply = self.ask(self.desk.end, who, commit=commit, version=self.version)
        if isinstance(reply, ProducerIdentity) and self.desk.known.state.is_prepared and self.ending is None:
            assert who == self.owner, "only the owner decides"
            assert self.open is not None or (self.version == 2 and not commit)
            self.ending, self.open, self.before_end = commit, None, who
            if self.version == 2:
                self.new_owner(reply)
            else:
                assert reply == who
        elif isinstance(reply, ProducerIdentity):
            assert self.open is None
            assert self.ending is None
            assert commit == self.last_end, "told again how it ended"
            assert who == (self.before_end if self.version == 2 else self.owner)
            assert reply == self.owner
            if self.owner_is_nobody:
                # Ended without its doing, it may go on: until the next one asks for the id, it is still the only one.
                self.new_owner(reply)
        elif who == self.owner and self.ending is None:
            assert self.open is None, f"the owner may end what is open: {reply}"
            assert reply is Error.INVALID_TXN_STATE

    # The broker.

    @precondition(lambda self: self.ending is not None)
    @rule(count=st.integers(1, 4))
    def write_markers(self, count: int) -> None:
        markers = self.desk.shard.markers(ID)
        assert markers is not None
        assert markers.committed == self.ending
        self.desk.written(*markers.partitions[:count])
        if self.desk.shard.markers(ID) is None:
            self.last_end, self.ending = self.ending, None
            assert self.desk.state() is (
                TransactionState.COMPLETE_COMMIT if self.last_end else TransactionState.COMPLETE_ABORT
            )
            if self.owner_is_nobody:
                self.owner = self.desk.known.producer

    @rule(passed_ms=st.sampled_from([5_000, TIMEOUT_MS, 10 * TIMEOUT_MS]))
    def time_passes(self, passed_ms: int) -> None:
        self.now += passed_ms
        was_open = self.open is not None
        self.desk.tick(self.now)
        if was_open and self.desk.known.state is TransactionState.PREPARE_ABORT:
            assert self.now > self.desk.known.start_ms + TIMEOUT_MS
            self.aborted_for_owner()

    @rule()
    def coordinator_restarts(self) -> None:
        spare, rules = self.desk.shard.spare_producer_ids, self.desk.rules
        self.desk = self.desk.reloaded()
        self.desk.rules, self.desk.shard.spare_producer_ids = rules, spare
        assert (self.desk.prepared == [ID]) == (self.ending is not None)

    # What changes with the owner.

    owner_is_nobody = False

    def new_owner(self, owner: ProducerIdentity) -> None:
        assert owner not in self.given, "an identity is given once"
        assert owner.epoch < EPOCH_MAX, "no client ever has the epoch that is kept for fencing"
        self.owner = owner
        self.owner_is_nobody = False
        self.given.append(owner)

    def aborted_for_owner(self) -> None:
        """The owner is fenced, and nobody has the identity that took its place."""
        assert self.desk.known.producer not in self.given
        self.before_end = self.owner if self.version == 2 else None
        self.owner, self.owner_is_nobody = self.desk.known.producer, True
        self.ending, self.open = False, None

    # What must hold.

    @invariant()
    def the_log_rebuilds_the_shard(self) -> None:
        if not hasattr(self, "desk"):
            return
        again = self.desk.reloaded()
        assert again.shard.transactions == self.desk.shard.transactions
        while len(self.written) < len(self.desk.log):
            prefix = len(self.written) + 1
            self.written.append(copy.copy(self.desk.reloaded(prefix).known))
        assert self.desk.known == self.written[-1]

    def teardown(self) -> None:
        if not hasattr(self, "written"):
            return
        for before, after in zip(self.written, self.written[1:], strict=False):
            if before.producer_id == after.producer_id:
                assert after.producer_epoch >= before.producer_epoch
            else:
                assert after.producer_epoch == 0
            if after.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
                assert before.state.is_prepared
                assert before.is_commit == (after.state is TransactionState.COMPLETE_COMMIT)
            elif before.state.is_prepared:
                pytest.fail(f"{before.state.label} was followed by {after.state.label}: the decision did not stand")


TransactionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestTransactions = TransactionMachine.TestCase


def test_a_directory_of_kafkas_goes_on() -> None:
    """Records with value version 0, of clusters before KIP-890, are read, and written again while that level holds."""
    old = Desk(version=0)
    producer = old.init()
    old.add(producer, PARTITIONS[0], version=0)
    assert {record.value_version for record in old.log} == {0}
    new = Desk(version=2, log=list(old.log))
    assert new.known == replace(old.known, previous_producer_id=-1)
    new.end(producer, commit=True, version=0)
    assert new.log[-1].value_version == 1
