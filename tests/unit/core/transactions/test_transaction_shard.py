"""The transactional ids of one shard: who may do what, and what the log says afterwards."""

from dataclasses import replace

import pytest
from transaction_samples import NOW, P0, P1, TIMEOUT_MS, Desk, refusal

from ottla.core.transactions.shard import ProducerIdWanted
from ottla.core.transactions.transaction import EPOCH_MAX, ProducerIdentity, TransactionState
from ottla.wire.errors import Error

VERSIONS = [0, 2]


# InitProducerId.


def test_a_new_id_begins_in_epoch_0() -> None:
    desk = Desk()
    assert desk.init() == ProducerIdentity(1000, 0)
    assert desk.state() is TransactionState.EMPTY
    assert desk.known.previous_producer_id == 1000, "as Kafka writes it"


def test_every_init_raises_the_epoch_and_fences_the_one_before() -> None:
    """Two producers with the same id: the later one wins, the zombie can neither write nor end anything."""
    desk = Desk()
    zombie, current = desk.init(), desk.init()
    assert current == ProducerIdentity(zombie.producer_id, zombie.epoch + 1)
    assert refusal(lambda: desk.add(zombie, P0)) is Error.PRODUCER_FENCED
    assert refusal(lambda: desk.end(zombie, commit=True)) is Error.PRODUCER_FENCED
    assert refusal(lambda: desk.init(expected=zombie)) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("version", VERSIONS)
def test_init_aborts_what_was_left_open_first(version: int) -> None:
    """The new producer must not begin before the records of the old one are decided (CONCURRENT_TRANSACTIONS)."""
    desk = Desk(version=version)
    old = desk.init()
    desk.add(old, P0)
    assert desk.shard_init() is None
    assert desk.state() is TransactionState.PREPARE_ABORT
    assert desk.known.producer_epoch == old.epoch + 1
    assert refusal(desk.init) is Error.CONCURRENT_TRANSACTIONS
    desk.write_markers()
    assert desk.init() == ProducerIdentity(old.producer_id, old.epoch + 2)


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch() -> None:
    """KIP-360; asked again because the answer was lost, it gets the same."""
    desk = Desk()
    first = desk.init()
    second = desk.init(expected=first)
    assert second == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert desk.init(expected=first) == second
    assert desk.init(expected=second).epoch == second.epoch + 1
    assert refusal(lambda: desk.init(expected=first)) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("version", VERSIONS)
def test_an_outdated_producer_is_fenced_once_what_is_open_is_aborted(version: int) -> None:
    """As Kafka does: the epoch is looked at when nothing is open any more; another producer id is refused at once."""
    desk = Desk(version=version)
    outdated, current = desk.init(), desk.init()
    desk.add(current, P0)
    stranger = current._replace(producer_id=current.producer_id + 1)
    assert refusal(lambda: desk.init(expected=stranger)) is Error.PRODUCER_FENCED
    assert desk.state() is TransactionState.ONGOING
    assert desk.shard_init(expected=outdated) is None
    assert desk.state() is TransactionState.PREPARE_ABORT
    assert refusal(lambda: desk.init(expected=outdated)) is Error.CONCURRENT_TRANSACTIONS
    desk.write_markers()
    assert refusal(lambda: desk.init(expected=outdated)) is Error.PRODUCER_FENCED


def test_init_by_another_voids_the_repeated_one() -> None:
    desk = Desk()
    first = desk.init()
    desk.init(expected=first)
    desk.init()
    assert refusal(lambda: desk.init(expected=first)) is Error.PRODUCER_FENCED


def test_epochs_that_are_used_up_give_a_new_producer_id() -> None:
    desk = Desk(producer_ids=[1000, 2000])
    first = desk.init()
    last = desk.at_epoch(EPOCH_MAX - 1)
    assert desk.init() == ProducerIdentity(2000, 0)
    assert desk.known.previous_producer_id == first.producer_id
    assert refusal(lambda: desk.add(last, P0)) is Error.INVALID_PRODUCER_ID_MAPPING


def test_a_new_producer_id_is_told_again_to_one_that_missed_it() -> None:
    desk = Desk(producer_ids=[1000, 2000])
    desk.init()
    last = desk.at_epoch(EPOCH_MAX - 1)
    rotated = desk.init(expected=last)
    assert rotated == ProducerIdentity(2000, 0)
    assert desk.init(expected=last) == rotated


@pytest.mark.parametrize("ends", [False, True])
def test_who_asks_again_after_its_successor_has_begun_is_fenced(ends: bool) -> None:
    """The change of producer id is told again only as long as nobody has done anything with the new one."""
    desk = Desk(producer_ids=[1000, 2000])
    desk.init()
    last = desk.at_epoch(EPOCH_MAX - 1)
    rotated = desk.init(expected=last)
    desk.add(rotated, P0)
    if ends:
        desk.end(rotated, commit=True)
    error = refusal(lambda: desk.init(expected=last))
    assert error is (Error.CONCURRENT_TRANSACTIONS if ends else Error.PRODUCER_FENCED)
    assert desk.state() is (TransactionState.PREPARE_COMMIT if ends else TransactionState.ONGOING)


def test_a_shard_without_a_spare_producer_id_asks_for_one() -> None:
    desk = Desk(producer_ids=[])
    with pytest.raises(ProducerIdWanted):
        desk.init()
    desk.shard.spare_producer_ids.append(7)
    assert desk.init() == ProducerIdentity(7, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_beyond_the_brokers_is_refused(timeout_ms: int) -> None:
    assert refusal(lambda: Desk().init(timeout_ms=timeout_ms)) is Error.INVALID_TRANSACTION_TIMEOUT


# Partitions.


def test_partitions_open_a_transaction_and_add_up() -> None:
    desk = Desk()
    producer = desk.init()
    desk.add(producer, P0, at_ms=NOW + 5)
    desk.add(producer, P1, at_ms=NOW + 9)
    assert desk.known.partitions == {P0, P1}
    assert (desk.known.start_ms, desk.known.last_update_ms) == (NOW + 5, NOW + 9)
    written = len(desk.log)
    desk.add(producer, P0, P1)
    assert len(desk.log) == written, "what is known is not written again"


def test_only_what_was_added_is_verified() -> None:
    desk = Desk()
    producer = desk.init()
    assert desk.verify(producer, P0) == {P0: Error.TRANSACTION_ABORTABLE}
    desk.add(producer, P0)
    assert desk.verify(producer, P0, P1) == {P0: Error.NONE, P1: Error.TRANSACTION_ABORTABLE}
    desk.end(producer, commit=True)
    assert refusal(lambda: desk.verify(desk.known.producer, P0)) is Error.CONCURRENT_TRANSACTIONS
    desk.write_markers()
    assert desk.verify(desk.known.producer, P0) == {P0: Error.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize(
    "ask",
    [
        lambda desk, who: desk.add(who, P0),
        lambda desk, who: desk.verify(who, P0),
        lambda desk, who: desk.end(who, commit=True),
    ],
)
def test_who_is_not_known_is_told_so(ask) -> None:  # type: ignore[no-untyped-def]
    desk = Desk()
    assert refusal(lambda: ask(desk, ProducerIdentity(1000, 0))) is Error.INVALID_PRODUCER_ID_MAPPING
    producer = desk.init()
    stranger = ProducerIdentity(producer.producer_id + 1, producer.epoch)
    assert refusal(lambda: ask(desk, stranger)) is Error.INVALID_PRODUCER_ID_MAPPING
    assert refusal(lambda: ask(desk, producer._replace(epoch=producer.epoch + 1))) is Error.PRODUCER_FENCED


# Ends before version 2.


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_prepared_marked_and_completed(commit: bool) -> None:
    desk = Desk(version=0)
    producer = desk.init()
    desk.add(producer, P0, P1)
    assert desk.end(producer, commit=commit, version=0) == producer
    assert desk.state() is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    markers = desk.shard.markers("id")
    assert markers is not None
    assert (markers.producer, markers.committed, markers.partitions) == (producer, commit, (P0, P1))
    desk.written(P0)
    assert desk.known.state.is_prepared, "one marker is missing"
    desk.written(P1)
    assert desk.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert (desk.known.partitions, desk.known.producer) == (frozenset(), producer)
    assert desk.shard.markers("id") is None


def test_before_version_2_an_end_sent_again_hears_the_same_and_the_other_end_is_refused() -> None:
    desk = Desk(version=0)
    producer = desk.init()
    assert refusal(lambda: desk.end(producer, commit=True, version=0)) is Error.INVALID_TXN_STATE
    assert refusal(lambda: desk.end(producer, commit=False, version=0)) is Error.INVALID_TXN_STATE
    desk.add(producer, P0)
    desk.end(producer, commit=True, version=0)
    assert refusal(lambda: desk.end(producer, commit=True, version=0)) is Error.CONCURRENT_TRANSACTIONS
    desk.write_markers()
    desk.end(producer, commit=True, version=0)
    assert refusal(lambda: desk.end(producer, commit=False, version=0)) is Error.INVALID_TXN_STATE


# Ends in version 2.


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_2_every_end_raises_the_epoch(commit: bool) -> None:
    desk = Desk()
    producer = desk.init()
    desk.add(producer, P0)
    after = desk.end(producer, commit=commit)
    assert after == ProducerIdentity(producer.producer_id, producer.epoch + 1)
    markers = desk.shard.markers("id")
    assert markers is not None
    assert markers.producer == after, "the marker fences what comes late"
    desk.write_markers()
    assert desk.known.producer == after


OUTCOMES = {
    # (state, is it the last end sent again, commit): the error, or None for "raises the epoch", or the same answer.
    ("Empty", True, False): Error.PRODUCER_FENCED,
    ("Empty", True, True): Error.PRODUCER_FENCED,
    ("Empty", False, False): None,
    ("Empty", False, True): Error.INVALID_TXN_STATE,
    ("CompleteAbort", True, False): Error.NONE,
    ("CompleteAbort", True, True): Error.INVALID_TXN_STATE,
    ("CompleteAbort", False, False): None,
    ("CompleteAbort", False, True): Error.INVALID_TXN_STATE,
    ("CompleteCommit", True, False): Error.INVALID_TXN_STATE,
    ("CompleteCommit", True, True): Error.NONE,
    ("CompleteCommit", False, False): None,
    ("CompleteCommit", False, True): Error.INVALID_TXN_STATE,
}


@pytest.mark.parametrize(("case", "expected"), OUTCOMES.items(), ids=lambda case: str(case))
def test_in_version_2_an_end_without_a_transaction(case: tuple[str, bool, bool], expected: Error | None) -> None:
    """The epoch tells a repeated end from one about the next transaction (KAFKA-17754)."""
    state, is_retry, commit = case
    desk = Desk()
    producer = desk.init()
    if state != "Empty":
        desk.add(producer, P0)
        desk.end(producer, commit=state == "CompleteCommit")
        desk.write_markers()
    current = desk.known.producer
    who = current._replace(epoch=current.epoch - 1) if is_retry else current
    if expected is None:
        assert desk.end(who, commit=commit).epoch == current.epoch + 1
        assert desk.state() is TransactionState.PREPARE_ABORT
        desk.write_markers()
        assert desk.state() is TransactionState.COMPLETE_ABORT
    elif expected is Error.NONE:
        assert desk.end(who, commit=commit) == current
    else:
        assert refusal(lambda: desk.end(who, commit=commit)) is expected


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754: the commit of one transaction, delivered late, must not commit the next."""
    desk = Desk()
    producer = desk.init()
    desk.add(producer, P0)
    desk.end(producer, commit=True)
    desk.write_markers()
    desk.add(desk.known.producer, P1)
    assert refusal(lambda: desk.end(producer, commit=True)) is Error.PRODUCER_FENCED
    assert desk.state() is TransactionState.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_2_the_last_epoch_ends_with_a_new_producer_id(commit: bool) -> None:
    """The marker takes the epoch that no client ever has; the client goes on as somebody else."""
    desk = Desk(producer_ids=[1000, 2000])
    desk.init()
    last = desk.at_epoch(EPOCH_MAX - 1)
    desk.add(last, P0)
    after = desk.end(last, commit=commit)
    assert after == ProducerIdentity(2000, 0)
    markers = desk.shard.markers("id")
    assert markers is not None
    assert markers.producer == ProducerIdentity(1000, EPOCH_MAX)
    assert refusal(lambda: desk.add(after, P0)) is Error.CONCURRENT_TRANSACTIONS
    desk.write_markers()
    assert desk.known.producer == after
    assert desk.known.next_producer_id == -1, "as Kafka writes it; every end says anew whether there is one"
    assert desk.end(last, commit=commit) == after, "asked again by a client that missed it"
    desk.add(after, P1)
    assert desk.state() is TransactionState.ONGOING


# Time.


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    """Without a new epoch its producer could go on writing into the next one (KAFKA-6119)."""
    desk = Desk(version=version)
    producer = desk.init()
    desk.add(producer, P0, at_ms=NOW)
    desk.tick(NOW + TIMEOUT_MS)
    assert desk.state() is TransactionState.ONGOING
    desk.tick(NOW + TIMEOUT_MS + 20_000)
    assert desk.state() is TransactionState.PREPARE_ABORT
    assert desk.known.producer_epoch == producer.epoch + 1
    desk.write_markers()
    assert refusal(lambda: desk.add(producer, P0)) is Error.PRODUCER_FENCED


def test_a_timed_out_producer_in_its_last_epoch_waits_for_a_new_producer_id() -> None:
    desk = Desk(producer_ids=[1000])
    desk.init()
    last = desk.at_epoch(EPOCH_MAX - 1)
    desk.add(last, P0, at_ms=NOW)
    late = NOW + TIMEOUT_MS + 20_000
    desk.tick(late)
    assert desk.state() is TransactionState.ONGOING
    assert desk.shard.wants_producer_id
    desk.shard.spare_producer_ids.append(2000)
    desk.tick(late + 20_000)
    desk.write_markers()
    assert desk.known.producer == ProducerIdentity(2000, 0)


def test_an_id_that_nobody_uses_is_forgotten_but_never_one_with_a_transaction() -> None:
    desk = Desk(expiration_ms=1_000)
    producer = desk.init()
    desk.add(producer, P0)
    later = NOW + 3_600_000
    desk.replaced(replace(desk.known, timeout_ms=2**31 - 1))
    desk.tick(later)
    assert desk.state() is TransactionState.ONGOING
    desk.end(producer, commit=True)
    desk.write_markers(at_ms=later)
    desk.tick(later + 3_600_000)
    assert "id" not in desk.shard.transactions
    assert desk.log[-1].value is None
    desk.shard.spare_producer_ids.append(4711)
    assert desk.init() == ProducerIdentity(4711, 0)


def test_nothing_is_due_without_transactions() -> None:
    desk = Desk()
    assert desk.shard.next_deadline() is None
    producer = desk.init()
    until_forgotten = desk.shard.next_deadline()
    desk.add(producer, P0)
    until_aborted = desk.shard.next_deadline()
    assert until_forgotten is not None
    assert until_aborted is not None
    assert until_aborted < until_forgotten


# Loading.


def test_what_was_prepared_is_told_when_the_shard_is_loaded() -> None:
    """Whoever takes over writes the markers: the decision stands (recovery at any point)."""
    desk = Desk()
    producer = desk.init()
    desk.add(producer, P0)
    desk.end(producer, commit=True)
    assert desk.prepared == ["id"]
    again = desk.reloaded()
    assert again.prepared == ["id"]
    again.write_markers()
    assert again.state() is TransactionState.COMPLETE_COMMIT
    assert again.reloaded().prepared == []


def test_a_marker_written_for_an_earlier_end_does_not_count() -> None:
    desk = Desk()
    producer = desk.init()
    desk.add(producer, P0)
    desk.end(producer, commit=True)
    desk.apply(desk.shard.markers_written("id", producer, [P0], NOW))
    assert desk.state() is TransactionState.PREPARE_COMMIT


# What a power loss took from the log.


def test_a_producer_of_which_a_partition_knows_a_later_epoch_is_used_up() -> None:
    """The epochs that would come next were given out once before: only a new producer id is safe."""
    desk = Desk(producer_ids=[1000, 1001])
    producer = desk.init()
    desk.add(producer, P0, P1)
    after = desk.end(producer, commit=False)
    desk.apply(desk.shard.markers_written("id", desk.known.producer, [P0], NOW, outdated=[P1]))
    assert desk.state() is TransactionState.COMPLETE_ABORT
    assert refusal(lambda: desk.add(after, P0)) is Error.PRODUCER_FENCED
    assert desk.init() == ProducerIdentity(1001, 0)
    assert desk.reloaded().known == desk.known


def test_a_marker_that_came_too_late_in_one_partition_does_not_end_the_wait_for_the_others() -> None:
    desk = Desk(producer_ids=[1000, 1001])
    producer = desk.init()
    desk.add(producer, P0, P1)
    desk.end(producer, commit=True)
    desk.apply(desk.shard.markers_written("id", desk.known.producer, [], NOW, outdated=[P1]))
    assert desk.state() is TransactionState.PREPARE_COMMIT
    desk.write_markers()
    assert desk.state() is TransactionState.COMPLETE_COMMIT
    assert desk.init() == ProducerIdentity(1001, 0)
