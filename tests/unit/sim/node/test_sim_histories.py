"""Histories of groups and transactions with one planted anomaly each, all found; clean ones, no false alarm."""

from collections.abc import Callable
from random import Random

import pytest

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.network import SimNetwork, Weather
from ottla.sim.node.committed import with_verdict
from ottla.sim.node.coordination_audit import check_exactly_once, check_marked, check_transactions
from ottla.sim.node.group_history import NOTHING, GroupHistory
from ottla.sim.node.group_offsets import INPUT
from ottla.sim.node.ledger import ID, Key, Ledger, Sent
from ottla.sim.node.scene import LiveTopic, Scene
from ottla.sim.node.swarm import TopicPlan
from ottla.sim.node.transaction_history import RecordedTransaction, TransactionHistory
from ottla.sim.node.workers import OUTPUT
from ottla.sim.played import Violation
from ottla.sim.records import TRANSACTIONAL, DecodedRecord, decode, encode, encode_marker
from ottla.wire.api.fetch import AbortedTransaction

KEY: Key = (bytes(16), 0)
WRITTEN: Key = (bytes([1]) * 16, 0)
OTHER: Key = (bytes(16), 1)
GROUP = "consumers"
TRANSFORMERS = "classic-transformers"
SETTINGS = {
    "flush.messages": "1",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}


def found_in(invariant: str, history: Callable[[], object]) -> None:
    with pytest.raises(Violation) as found:
        history()
    assert found.value.invariant == invariant


# Transactions.


def new_transaction() -> RecordedTransaction:
    return TransactionHistory().begin("producer")


def asked() -> RecordedTransaction:
    transaction = new_transaction()
    transaction.commit_asked = True
    return transaction


def test_a_transaction_that_was_asked_to_commit_may_be_seen() -> None:
    transaction = asked()
    transaction.seen("a record")
    transaction.committed(1.0)
    transaction.seen("another")
    transaction.given_up()


def test_what_was_never_asked_to_commit_is_aborted_when_its_producer_is_gone() -> None:
    transaction = new_transaction()
    transaction.given_up()
    found_in("I6", lambda: transaction.committed(1.0))


def test_a_commit_without_an_answer_may_have_been_made_or_not() -> None:
    seen, unseen = asked(), asked()
    seen.given_up()
    unseen.given_up()
    seen.seen("a record")
    assert unseen.may_be_aborted
    assert not seen.may_be_aborted


def test_planted_reads_of_what_is_not_committed_are_found() -> None:
    found_in("I5", lambda: new_transaction().seen("a record"))

    def aborted_then_seen() -> None:
        transaction = asked()
        transaction.aborted()
        transaction.seen("a record")

    def seen_then_aborted() -> None:
        transaction = asked()
        transaction.seen("a record")
        transaction.aborted()

    found_in("I4", aborted_then_seen)
    found_in("I4", seen_then_aborted)


# Groups.


def committed(history: GroupHistory, offset: int, sent_at: float, granted_at: float | None, member: str = "a") -> str:
    commit = history.committing(GROUP, member, KEY, offset, sent_at)
    if granted_at is not None:
        history.granted(commit, granted_at)
    return commit.id


def test_offsets_that_hold_are_no_violation() -> None:
    history = GroupHistory()
    history.fetched(GROUP, KEY, NOTHING, None, 0.0)
    first = committed(history, 5, 1.0, 2.0)
    late = committed(history, 6, 3.0, None)
    history.fetched(GROUP, KEY, 5, first, 4.0)
    history.fetched(GROUP, KEY, 6, late, 5.0)
    second = committed(history, 7, 6.0, 7.0)
    history.fetched(GROUP, KEY, 6, late, 6.5)
    history.fetched(GROUP, KEY, 7, second, 8.0)
    history.fetched(GROUP, KEY, 6, late, 9.0)  # It has arrived now.


def test_commits_at_the_same_time_may_hold_in_either_order() -> None:
    history = GroupHistory()
    one, other = committed(history, 5, 1.0, 4.0), committed(history, 6, 2.0, 3.0)
    history.fetched(GROUP, KEY, 5, one, 5.0)
    history.fetched(GROUP, KEY, 6, other, 5.0)


def test_only_a_group_without_offsets_may_be_unknown() -> None:
    history = GroupHistory()
    committed(history, 5, 1.0, None)
    assert history.may_be_forgotten(GROUP, 2.0)
    committed(history, 6, 3.0, 4.0)
    assert history.may_be_forgotten(GROUP, 3.5)
    assert not history.may_be_forgotten(GROUP, 5.0)
    history.power_lost(6.0)
    assert history.may_be_forgotten(GROUP, 7.0)


def test_planted_anomalies_of_offsets_are_found() -> None:
    def lost() -> None:
        history = GroupHistory()
        committed(history, 5, 1.0, 2.0)
        history.fetched(GROUP, KEY, NOTHING, None, 3.0)

    def gone_back() -> None:
        history = GroupHistory()
        first = committed(history, 5, 1.0, 2.0)
        committed(history, 6, 3.0, 4.0)
        history.fetched(GROUP, KEY, 5, first, 5.0)

    def invented() -> None:
        GroupHistory().fetched(GROUP, KEY, 5, "commit-1", 1.0)

    def refused() -> None:
        history = GroupHistory()
        commit = history.committing(GROUP, "a", KEY, 5, 1.0)
        commit.is_refused = True
        history.fetched(GROUP, KEY, 5, commit.id, 2.0)

    for history in (lost, gone_back, invented, refused):
        found_in("I11", history)


def test_offsets_of_a_transaction_hold_with_it() -> None:
    history, transaction = GroupHistory(), asked()
    commit = history.committing(GROUP, "a", KEY, 5, 1.0, transaction)
    history.granted(commit, 2.0)
    history.fetched(GROUP, KEY, NOTHING, None, 3.0)
    transaction.committed(4.0)
    history.fetched(GROUP, KEY, 5, commit.id, 5.0)
    found_in("I11", lambda: history.fetched(GROUP, KEY, NOTHING, None, 6.0))


def test_planted_offsets_of_a_transaction_that_is_not_committed_are_found() -> None:
    def fetched_of(transaction: RecordedTransaction, *, aborted: bool) -> None:
        history = GroupHistory()
        commit = history.committing(GROUP, "a", KEY, 5, 1.0, transaction)
        if aborted:
            transaction.aborted()
        history.fetched(GROUP, KEY, 5, commit.id, 2.0)

    found_in("I6", lambda: fetched_of(asked(), aborted=True))
    found_in("I5", lambda: fetched_of(new_transaction(), aborted=False))


def test_owners_that_follow_each_other_are_no_violation() -> None:
    history = GroupHistory()
    history.assigned(GROUP, 1, "a", [KEY], 1.0)
    history.assigned(GROUP, 2, "b", [KEY], 2.0)
    history.assigned(GROUP, 1, "a", [KEY], 3.0)  # An answer that was late.
    committed(history, 5, 4.0, 5.0, member="b")
    history = GroupHistory()
    history.given(GROUP, "a", [KEY], 1.0, until=3.0)
    history.given(GROUP, "b", [KEY], 4.0, until=9.0)
    history.released(GROUP, "b", [KEY])
    history.extended(GROUP, "b", until=12.0)
    history.given(GROUP, "c", [KEY], 5.0, until=9.0)


def test_members_that_follow_each_other_as_one_instance_are_no_violation() -> None:
    history = GroupHistory()
    history.assigned(GROUP, 1, "a", [KEY], 1.0, instance="i", asked_at=0.5)
    history.assigned(GROUP, 1, "b", [KEY], 3.0, instance="i", asked_at=2.0)
    committed(history, 5, 4.0, 4.1, "b")
    history.assigned(GROUP, 1, "c", [KEY], 6.0, instance="i", asked_at=2.5)  # Before or after b? Nobody knows.
    committed(history, 6, 7.0, 7.1, "b")
    history = GroupHistory()
    history.given(GROUP, "a", [KEY], 1.0, until=4.0, instance="i")
    history.away(GROUP, "a", [KEY], until=5.0, instance="i")
    history.given(GROUP, "b", [KEY], 2.0, until=5.0, instance="i")


def test_who_comes_in_the_name_of_an_instance_has_given_back_what_that_had() -> None:
    history = GroupHistory()
    history.given(GROUP, "a", [KEY, OTHER], 1.0, until=4.0, instance="i")
    history.away(GROUP, "a", [KEY, OTHER], until=5.0, instance="i")
    history.coming(GROUP, "i", "x", is_classic=False)
    history.given(GROUP, "b", [KEY], 2.0, until=5.0, instance="i")
    history.given(GROUP, "c", [OTHER], 2.1, until=5.0)
    history.coming(GROUP, "i", "y", is_classic=True)  # It fences b, which does not know it yet.
    history.given(GROUP, "c", [KEY], 2.2, until=5.0)
    history.given(GROUP, "b", [KEY], 5.2, until=8.0, instance="i")  # Perhaps it was fenced before it heard of this.
    history.given(GROUP, "c", [KEY], 5.3, until=8.0)


def test_a_group_without_offsets_may_be_forgotten() -> None:
    """Its generations begin anew; an answer of the group before it says nothing about this one."""
    history = GroupHistory()
    history.assigned(GROUP, 2, "a", [KEY], 1.0)
    history.assigned(GROUP, 1, "b", [KEY], 9.0, asked_at=8.0)
    history.assigned(GROUP, 2, "c", [KEY], 9.5, asked_at=0.5)
    committed(history, 5, 10.0, 10.1, "b")


def test_planted_anomalies_of_instances_and_forgotten_groups_are_found() -> None:
    def older_commits() -> None:
        history = GroupHistory()
        history.assigned(GROUP, 1, "a", [KEY], 1.0, instance="i", asked_at=0.5)
        history.assigned(GROUP, 1, "b", [KEY], 3.0, instance="i", asked_at=2.0)
        committed(history, 5, 4.0, 4.1, "a")

    def another_instance() -> None:
        history = GroupHistory()
        history.assigned(GROUP, 1, "a", [KEY], 1.0, instance="i", asked_at=0.5)
        history.assigned(GROUP, 1, "b", [KEY], 3.0, instance="j", asked_at=0.6)

    def given_while_away() -> None:
        history = GroupHistory()
        history.given(GROUP, "a", [KEY], 1.0, until=4.0, instance="i")
        history.away(GROUP, "a", [KEY], until=5.0, instance="i")
        history.given(GROUP, "b", [KEY], 2.0, until=5.0, instance="j")

    def taken_from_one_that_is_there() -> None:
        history = GroupHistory()
        history.given(GROUP, "a", [KEY], 1.0, until=4.0, instance="i")
        history.coming(GROUP, "i", "x", is_classic=False)
        history.coming(GROUP, "i", "y", is_classic=False)
        history.coming(GROUP, "j", "z", is_classic=True)
        history.given(GROUP, "b", [KEY], 2.0, until=5.0)

    def forgotten_with_offsets() -> None:
        history = GroupHistory()
        history.assigned(GROUP, 2, "a", [KEY], 1.0)
        committed(history, 5, 2.0, 2.1, "a")
        history.assigned(GROUP, 1, "b", [KEY], 9.0, asked_at=8.0)

    for history in (
        older_commits,
        another_instance,
        given_while_away,
        taken_from_one_that_is_there,
        forgotten_with_offsets,
    ):
        found_in("I11", history)


def test_planted_owners_at_the_same_time_are_found() -> None:
    def in_one_generation() -> None:
        history = GroupHistory()
        history.assigned(GROUP, 1, "a", [KEY], 1.0)
        history.assigned(GROUP, 1, "b", [KEY], 2.0)

    def before_it_was_returned() -> None:
        history = GroupHistory()
        history.given(GROUP, "a", [KEY], 1.0, until=3.0)
        history.extended(GROUP, "a", until=5.0)
        history.given(GROUP, "b", [KEY], 4.0, until=9.0)

    def stale_commit() -> None:
        history = GroupHistory()
        history.assigned(GROUP, 1, "a", [KEY], 1.0)
        history.assigned(GROUP, 2, "b", [KEY], 2.0)
        committed(history, 5, 3.0, 4.0, member="a")

    for history in (in_one_generation, before_it_was_returned, stale_commit):
        found_in("I11", history)


# Where power is lost before a sync.


def test_what_was_committed_before_a_loss_may_be_gone() -> None:
    history = GroupHistory()
    first, second = committed(history, 5, 1.0, 1.1), committed(history, 6, 2.0, 2.1)
    history.power_lost(3.0)
    history.fetched(GROUP, KEY, NOTHING, "", 4.0)
    history.fetched(GROUP, KEY, 5, first, 5.0)
    history.fetched(GROUP, KEY, 6, second, 6.0)


def test_a_commit_whose_answer_outlived_the_power_may_be_gone() -> None:
    history = GroupHistory()
    commit = history.committing(GROUP, "a", KEY, 5, 1.0)
    history.power_lost(2.0)
    history.granted(commit, 2.1)
    history.fetched(GROUP, KEY, NOTHING, "", 3.0)
    committed(history, 6, 4.0, 4.1)
    found_in("I11", lambda: history.fetched(GROUP, KEY, NOTHING, "", 5.0))


def test_what_an_earlier_loss_took_is_not_missed_because_later_commits_outlive_the_next() -> None:
    def elsewhere(offset: int, sent_at: float) -> str:
        commit = history.committing(GROUP, "a", OTHER, offset, sent_at)
        history.granted(commit, sent_at + 0.1)
        return commit.id

    history = GroupHistory()
    committed(history, 5, 1.0, 1.1)
    history.power_lost(2.0)
    later = elsewhere(6, 3.0)
    history.power_lost(4.0)
    history.fetched(GROUP, OTHER, 6, later, 5.0)
    history.fetched(GROUP, KEY, NOTHING, "", 6.0)
    committed(history, 7, 7.0, 7.1)
    latest = elsewhere(8, 7.5)
    history.power_lost(8.0)
    history.fetched(GROUP, OTHER, 8, latest, 9.0)
    found_in("I11", lambda: history.fetched(GROUP, KEY, NOTHING, "", 10.0))


def test_owners_from_before_a_loss_are_none() -> None:
    """The coordinator may have lost that it gave out the partition, and a member keep it until it is told."""
    history = GroupHistory()
    history.given(GROUP, "a", [KEY], 1.0, until=9.0)
    history.power_lost(2.0)
    history.given(GROUP, "b", [KEY], 3.0, until=9.0)
    committed(history, 5, 4.0, 4.1, "a")


def test_a_group_whose_offsets_were_lost_may_begin_anew_more_than_once() -> None:
    history = GroupHistory()
    committed(history, 5, 1.0, 1.1)
    history.power_lost(2.0)
    history.assigned(GROUP, 3, "a", [KEY], 3.0, asked_at=2.5)
    history.assigned(GROUP, 1, "b", [KEY], 5.0, asked_at=4.0)
    committed(history, 6, 6.0, 6.1, "b")
    found_in("I11", lambda: history.assigned(GROUP, 1, "c", [KEY], 8.0, asked_at=7.0))


def test_planted_anomalies_after_a_loss_are_found() -> None:
    def after_it(history: GroupHistory) -> None:
        committed(history, 7, 4.0, 4.1)
        history.fetched(GROUP, KEY, 5, first, 5.0)

    def what_nobody_committed(history: GroupHistory) -> None:
        history.fetched(GROUP, KEY, 8, "invented", 5.0)

    def lost_though_a_later_one_is_there(history: GroupHistory) -> None:
        history.fetched(GROUP, OTHER, 6, later, 5.0)
        history.fetched(GROUP, KEY, NOTHING, "", 6.0)

    for planted in (after_it, what_nobody_committed, lost_though_a_later_one_is_there):
        history = GroupHistory()
        first = committed(history, 5, 1.0, 1.1)
        commit = history.committing(GROUP, "a", OTHER, 6, 2.0)
        history.granted(commit, 2.1)
        later = commit.id
        history.power_lost(3.0)
        found_in("I11", lambda planted=planted, history=history: planted(history))  # type: ignore[misc]


def test_nothing_is_known_of_transactions_from_before_a_loss() -> None:
    history = TransactionHistory()
    before = history.begin("p")
    before.aborted()
    history.power_lost()
    before.seen("a record of it")
    before.committed(4.0)
    assert before.may_be_aborted
    found_in("I5", lambda: history.begin("p").seen("a record of it"))


# When all is over.


def new_scene() -> Scene:
    random, clock = Random(0), SimClock()
    scene = Scene(random, clock, SimNetwork(random, Weather()), Ledger(), lambda _: None)
    for name, key in ((INPUT, KEY), (OUTPUT, WRITTEN)):
        plan = TopicPlan(name, 1, SETTINGS, kept=True)
        scene.topics[name] = LiveTopic(plan, key[0], 1)
        scene.ledger.made(key[0], 1, plan)
    return scene


def write(scene: Scene, transaction: RecordedTransaction, offset: int) -> Sent:
    sent = scene.new_record(WRITTEN, "producer")
    sent.transaction, sent.offset = transaction, offset
    transaction.writes.append(sent)
    return sent


def stored(sent: Sent, offset: int) -> DecodedRecord:
    return DecodedRecord(offset, sent.timestamp, sent.key, sent.value, ((ID, sent.id),))


@pytest.mark.parametrize("visible", [0, 1, 2])
def test_of_a_transaction_all_is_there_or_nothing(visible: int) -> None:
    scene = new_scene()
    transaction = scene.transactions.begin("producer")
    transaction.commit_asked = True
    writes = [write(scene, transaction, offset) for offset in (0, 1)]
    found = {offset: stored(sent, offset) for offset, sent in enumerate(writes[:visible])}
    if visible == 1:
        found_in("I6", lambda: check_transactions(scene, {WRITTEN: found}))
    else:
        check_transactions(scene, {WRITTEN: found})


def test_a_committed_transaction_that_is_not_there_is_found() -> None:
    scene = new_scene()
    transaction = scene.transactions.begin("producer")
    transaction.commit_asked = True
    write(scene, transaction, 0)
    transaction.committed(1.0)
    found_in("I6", lambda: check_transactions(scene, {WRITTEN: {}}))


def test_a_transaction_whose_marker_is_gone_before_its_data_is_found() -> None:
    check_marked(KEY, {})
    found_in("I20", lambda: check_marked(KEY, {7: 3}))


@pytest.mark.parametrize(
    ("position", "sources", "violated"),
    [
        (2, [0, 1], False),
        (1, [0], False),
        (2, [0], True),
        (2, [0, 1, 1], True),
        (1, [0, 1], True),
    ],
    ids=["all", "all before its offset", "one is missing", "one twice", "one too early"],
)
def test_what_was_transformed_is_there_exactly_once(position: int, sources: list[int], violated: bool) -> None:
    scene = new_scene()
    inputs = {offset: stored(scene.new_record(KEY, "sender"), offset) for offset in range(3)}
    outputs = {}
    for offset, source in enumerate(sources):
        sent = scene.new_record(WRITTEN, "worker")
        scene.sources[sent.id] = TRANSFORMERS, KEY, source
        outputs[offset] = stored(sent, offset)
    found = {KEY: inputs, WRITTEN: outputs}
    if violated:
        found_in("I12", lambda: check_exactly_once(scene, TRANSFORMERS, {KEY: position}, found))
    else:
        check_exactly_once(scene, TRANSFORMERS, {KEY: position}, found)


def test_a_reader_drops_what_was_aborted_up_to_its_marker() -> None:
    record = DecodedRecord(0, 1, None, b"v")
    data = decode(encode([record], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0))
    plain = decode(encode([record]))
    marker = decode(encode_marker(False, 7, 0, 0, 1))
    told = [AbortedTransaction(producer_id=7, first_offset=0)]
    verdicts = [kept for _, kept in with_verdict([data, plain, marker, data], told)]
    assert verdicts == [False, True, False, True]
