"""Producer state: what may be appended, and that replaying the log gives the state that wrote it."""

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from core_log_samples import NOW, data, end, header
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.log.indexes import AbortedTxn
from ottla.core.log.producers import AppendOrigin, CompletedTxn, Duplicate, Producer, Producers
from ottla.core.log.snapshots import decode_snapshot, encode_snapshot
from ottla.kernel import BatchHeader, EndTxnMarker
from ottla.wire.errors import Error, Refused

SEQUENCE_MAX = 2**31 - 1
P = 7


def replayed(*batches: BatchHeader | tuple[BatchHeader, EndTxnMarker]) -> Producers:
    producers = Producers("t-0")
    for batch in batches:
        producers.replay(*(batch if isinstance(batch, tuple) and not isinstance(batch, BatchHeader) else (batch, None)))
    return producers


def refusal(producers: Producers, batch: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> Error:
    with pytest.raises(Refused) as refused:
        producers.check(batch, origin, batch.base_offset)
    return refused.value.error


# Sequences.


def test_the_next_sequence_is_accepted() -> None:
    producers = replayed(data(0, P, 0, 3))
    assert producers.check(data(3, P, 3), AppendOrigin.CLIENT, 3) is None


@pytest.mark.parametrize("sequence", [4, 5, 2, SEQUENCE_MAX])
def test_another_sequence_is_out_of_order(sequence: int) -> None:
    """A gap means a lost batch, a step back an unknown duplicate: either would break exactly-once."""
    assert refusal(replayed(data(0, P, 0, 3)), data(3, P, sequence)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    producers = replayed(data(0, P, SEQUENCE_MAX))
    assert producers.check(data(1, P, 0), AppendOrigin.CLIENT, 1) is None
    assert refusal(producers, data(1, P, 1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    across = replayed(data(0, P, SEQUENCE_MAX - 1, 4))
    assert across.by_id[P].last_sequence == 1
    assert across.check(data(0, P, SEQUENCE_MAX - 1, 4), AppendOrigin.CLIENT, 4) == Duplicate(0, 3, NOW)


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Its earlier records may have been removed by retention."""
    assert Producers("t-0").check(data(0, P, 4711), AppendOrigin.CLIENT, 0) is None


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    producers = replayed(data(0, P, 0, 3))
    assert producers.check(data(3, P, 0, epoch=1), AppendOrigin.CLIENT, 3) is None
    assert refusal(producers, data(3, P, 3, epoch=1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_a_marker_that_raised_the_epoch_sequences_start_at_zero() -> None:
    """KIP-890: the coordinator raises the epoch with the marker, and the producer goes on in that epoch from 0."""
    producers = replayed(data(0, P, 0, 3, transactional=True), end(3, P, commit=True, epoch=1))
    assert producers.check(data(4, P, 0, epoch=1, transactional=True), AppendOrigin.CLIENT, 4) is None
    assert refusal(producers, data(4, P, 3, epoch=1, transactional=True)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    """Otherwise a zombie writes into its successor's transaction."""
    producers = replayed(data(0, P, 0, epoch=2))
    assert refusal(producers, data(1, P, 1, epoch=1)) is Error.INVALID_PRODUCER_EPOCH
    assert refusal(producers, data(1, P, -1, epoch=1), AppendOrigin.COORDINATOR) is Error.INVALID_PRODUCER_EPOCH


def test_a_coordinator_sends_no_sequences() -> None:
    producers = replayed(data(0, P, 5))
    assert producers.check(data(1, P, -1), AppendOrigin.COORDINATOR, 1) is None


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.RAFT_LEADER])
def test_what_a_leader_has_checked_is_taken(origin: AppendOrigin) -> None:
    producers = replayed(data(0, P, 5, epoch=3))
    assert producers.check(data(1, P, 99, epoch=1), origin, 1) is None


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    producers = replayed(data(0, P, 0, transactional=True))
    assert refusal(producers, data(1, P, 1)) is Error.INVALID_TXN_STATE


def test_check_changes_nothing() -> None:
    producers = replayed(data(0, P, 0))
    producers.check(data(1, P, 1, transactional=True), AppendOrigin.CLIENT, 1)
    assert producers.by_id[P].last_sequence == 0
    assert producers.first_unstable_offset is None
    assert producers.end_offset == 1


def test_the_last_five_batches_are_duplicates_with_their_first_offset() -> None:
    """Five requests may be in flight; each may be sent again and is answered as the first time."""
    batches = [data(offset, P, offset, timestamp=NOW + offset) for offset in range(7)]
    producers = replayed(*batches)
    for offset in range(2, 7):
        assert producers.check(batches[offset], AppendOrigin.CLIENT, 7) == Duplicate(offset, offset, NOW + offset)
    assert refusal(producers, batches[1]) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_other_bounds_is_no_duplicate() -> None:
    producers = replayed(data(0, P, 0, 3))
    assert refusal(producers, data(3, P, 0, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, data(3, P, 1, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_of_an_older_epoch_is_fenced_not_answered() -> None:
    producers = replayed(data(0, P, 0), data(1, P, 0, epoch=1))
    assert refusal(producers, data(0, P, 0)) is Error.INVALID_PRODUCER_EPOCH


# Markers.


def marker_error(producers: Producers, version: int, epoch: int, coordinator_epoch: int = 0) -> Error | None:
    try:
        producers.check_marker(*end(9, P, commit=True, epoch=epoch, coordinator_epoch=coordinator_epoch), version)
    except Refused as refused:
        return refused.error
    return None


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (0, 4, Error.INVALID_PRODUCER_EPOCH),
        (0, 5, None),
        (0, 6, None),
        (1, 5, None),
        (2, 4, Error.INVALID_PRODUCER_EPOCH),
        (2, 5, Error.INVALID_PRODUCER_EPOCH),
        (2, 6, None),
    ],
)
def test_a_marker_must_belong_to_the_open_transaction(version: int, epoch: int, error: Error | None) -> None:
    """From version 2 on an equal epoch is a late marker of an earlier transaction (KAFKA-17754)."""
    assert marker_error(replayed(data(0, P, 0, epoch=5, transactional=True)), version, epoch) is error


def test_the_same_marker_sent_again_is_accepted() -> None:
    """KAFKA-19999: its answer was lost, and the transaction has ended."""
    ended = replayed(data(0, P, 0, epoch=5, transactional=True), end(1, P, commit=True, epoch=6))
    assert marker_error(ended, 2, 6) is None
    assert marker_error(ended, 2, 5) is Error.INVALID_PRODUCER_EPOCH


def test_an_epoch_at_its_end_can_still_be_finished() -> None:
    assert marker_error(replayed(data(0, P, 0, epoch=2**15 - 1, transactional=True)), 2, 2**15 - 1) is None


def test_a_marker_of_a_deposed_coordinator_is_fenced() -> None:
    producers = replayed(end(0, P, commit=True, epoch=1, coordinator_epoch=4))
    assert marker_error(producers, 0, 1, coordinator_epoch=3) is Error.TRANSACTION_COORDINATOR_FENCED
    assert marker_error(producers, 0, 1, coordinator_epoch=4) is None


def test_a_marker_of_an_unknown_producer_is_accepted() -> None:
    assert marker_error(Producers("t-0"), 2, 0) is None


# Transactions and stability.


def test_a_transaction_is_unstable_until_its_marker_is_below_the_watermark() -> None:
    """KAFKA-9807: a reader that knows the end but not the outcome would show aborted records."""
    producers = replayed(header(0), data(1, P, 0, transactional=True), header(2))
    assert producers.first_unstable_offset == 1
    producers.replay(*end(3, P, commit=True))
    assert producers.first_unstable_offset == 1
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 1
    producers.on_high_watermark(4)
    assert producers.first_unstable_offset is None


def test_the_first_unstable_offset_is_the_least_of_open_and_undecided() -> None:
    producers = replayed(data(0, 1, 0, transactional=True), data(1, 2, 0, transactional=True), end(2, 1, commit=False))
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 1
    producers.replay(*end(3, 2, commit=True))
    assert producers.first_unstable_offset == 1


def test_an_aborted_transaction_goes_to_the_index_with_the_stable_offset_of_its_end() -> None:
    producers = replayed(data(0, 1, 0, transactional=True), data(1, 2, 0, transactional=True))
    assert producers.replay(*end(2, 2, commit=False)) == CompletedTxn(2, 1, 2, True, 0)
    completed = producers.replay(*end(3, 1, commit=False))
    assert completed == CompletedTxn(1, 0, 3, True, 4)
    assert completed.as_aborted() == AbortedTxn(1, 0, 3, 4)


def test_a_marker_without_data_completes_nothing() -> None:
    producers = Producers("t-0")
    assert producers.replay(*end(0, P, commit=False)) is None
    assert producers.first_unstable_offset is None
    assert producers.by_id[P].coordinator_epoch == 0


def test_a_marker_emptied_by_the_cleaner_says_nothing() -> None:
    producers = replayed(data(0, P, 0, transactional=True))
    assert producers.replay(header(1, 0, producer_id=P, epoch=0, control=True, transactional=True), None) is None
    assert producers.first_unstable_offset == 0


def test_batches_without_a_producer_leave_no_trace_but_the_end() -> None:
    producers = replayed(header(0, 3))
    assert producers.by_id == {}
    assert producers.end_offset == 3


# Forgetting.


def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    """Forgetting an open one would let the last stable offset pass undecided records."""
    producers = replayed(data(0, 1, 0), data(1, 2, 0, transactional=True), data(2, 3, 0, timestamp=NOW + 1))
    producers.expire(NOW + 99, 100)
    assert list(producers.by_id) == [1, 2, 3]
    producers.expire(NOW + 100, 100)
    assert list(producers.by_id) == [2, 3]


def test_what_the_cleaner_must_leave_is_the_last_data_and_the_epoch() -> None:
    producers = replayed(data(0, 1, 0, 3), end(3, 2, commit=True, epoch=9))
    assert producers.last_records() == {1: (2, 0), 2: (-1, 9)}


def test_the_log_start_settles_what_ended_before_it() -> None:
    producers = replayed(data(0, P, 0, transactional=True), end(1, P, commit=True))
    producers.on_log_start(2)
    assert producers.first_unstable_offset is None
    producers.on_log_start(9)
    assert producers.end_offset == 9


# A model: everything remembered, nothing clever.


@dataclass
class Model:
    """One list of batches per producer, one dict of open transactions."""

    next_offset: int = 0
    epoch: dict[int, int] = field(default_factory=dict)
    sent: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Of the newest epoch: first sequence, last sequence, first offset."""
    open: dict[int, int] = field(default_factory=dict)
    undecided: list[tuple[int, int]] = field(default_factory=list)

    def expected(self, batch: BatchHeader) -> Error | int | None:
        """The error, the first offset of the duplicate, or None."""
        pid = batch.producer_id
        if pid not in self.epoch:
            return None
        mine = [] if batch.producer_epoch != self.epoch[pid] else self.sent[pid]
        for first, last, offset in mine[-5:]:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return offset
        if batch.producer_epoch < self.epoch[pid]:
            return Error.INVALID_PRODUCER_EPOCH
        next_sequence = mine[-1][1] + 1 if mine else 0
        if batch.base_sequence != next_sequence:
            return Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        if pid in self.open and not batch.is_transactional:
            return Error.INVALID_TXN_STATE
        return None

    def write(self, batch: BatchHeader) -> None:
        pid = batch.producer_id
        if self.epoch.get(pid) != batch.producer_epoch:
            self.epoch[pid] = batch.producer_epoch
            self.sent[pid].clear()
        if batch.is_control:
            if pid in self.open:
                self.undecided.append((self.open.pop(pid), batch.base_offset))
        else:
            self.sent[pid].append((batch.base_sequence, batch.last_sequence, batch.base_offset))
            if batch.is_transactional:
                self.open.setdefault(pid, batch.base_offset)
        self.next_offset = batch.next_offset

    def first_unstable(self, high_watermark: int) -> int | None:
        undecided = [first for first, last in self.undecided if last >= high_watermark]
        return min([*self.open.values(), *undecided], default=None)


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "commit", "abort", "watermark"]),
        st.integers(1, 3),
        st.integers(-1, 1),
        st.integers(-3, 1),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(steps)
def test_live_state_is_the_model_and_the_state_rebuilt(
    script: list[tuple[str, int, int, int, int, bool]],
) -> None:
    """I19: what a restart rebuilds, from the start or from a snapshot in the middle, is what was live."""
    live, model, high_watermark = Producers("t-0"), Model(), 0
    written: list[tuple[BatchHeader, EndTxnMarker | None]] = []
    for action, pid, epoch_step, sequence_step, count, transactional in script:
        epoch = max(model.epoch.get(pid, 0) + epoch_step, 0)
        if action == "watermark":
            high_watermark = max(high_watermark, model.next_offset - count)
            live.on_high_watermark(high_watermark)
        elif action == "send":
            sent = model.sent[pid] if model.epoch.get(pid) == epoch else []
            sequence = max((sent[-1][1] + 1 if sent else 0) + min(sequence_step, 0 if count > 1 else 1), 0)
            batch = data(model.next_offset, pid, sequence, count, epoch, transactional=transactional)
            expected = model.expected(batch)
            assert answer(live, batch) == expected
            if expected is None:
                assert live.replay(batch, None) is None
                model.write(batch)
                written.append((batch, None))
        else:
            batch, marker = end(
                model.next_offset, pid, commit=action == "commit", epoch=max(epoch, model.epoch.get(pid, 0))
            )
            completed = live.replay(batch, marker)
            assert (completed.first_offset if completed else None) == model.open.get(pid)
            model.write(batch)
            written.append((batch, marker))
        assert live.first_unstable_offset == model.first_unstable(high_watermark)
    assert {pid: producer.epoch for pid, producer in live.by_id.items()} == model.epoch
    rebuilt = Producers("t-0")
    for each in written:
        rebuilt.replay(*each)
    rebuilt.on_high_watermark(high_watermark)
    assert rebuilt.first_unstable_offset == live.first_unstable_offset
    assert essence(rebuilt) == essence(live)
    for middle in (len(written) // 2, len(written)):
        assert essence(rebuilt_by_snapshot(written, middle)) == essence(live)


def rebuilt_by_snapshot(written: list[tuple[BatchHeader, EndTxnMarker | None]], middle: int) -> Producers:
    before = Producers("t-0")
    for batch, marker in written[:middle]:
        before.replay(batch, marker)
    snapshot = encode_snapshot(list(before.by_id.values()))
    rebuilt = Producers.restore("t-0", before.end_offset, decode_snapshot(snapshot))
    for batch, marker in written[middle:]:
        rebuilt.replay(batch, marker)
    return rebuilt


def answer(producers: Producers, batch: BatchHeader) -> Error | int | None:
    try:
        duplicate = producers.check(batch, AppendOrigin.CLIENT, batch.base_offset)
    except Refused as refused:
        return refused.error
    return duplicate.first_offset if duplicate else None


def essence(producers: Producers) -> object:
    """What a snapshot holds; of the remembered batches that is the last one."""
    known = {
        pid: (p.epoch, p.coordinator_epoch, p.last_timestamp, p.txn_first_offset, list(p.batches)[-1:])
        for pid, p in producers.by_id.items()
    }
    return known, producers.end_offset


def test_open_transactions_come_back_in_order() -> None:
    """Snapshots list producers by id; the first open offset must still be the least."""
    restored = Producers.restore("t-0", 9, [Producer(1, 0, txn_first_offset=5), Producer(2, 0, txn_first_offset=3)])
    assert restored.first_unstable_offset == 3
