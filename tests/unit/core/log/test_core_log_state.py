"""A log's offsets: numbering, what readers may see, how the ends move."""

import pytest
from core_log_samples import config, data, end, header, log_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import Config
from ottla.core.log.checkpoints import EpochStart
from ottla.core.log.producers import Producers
from ottla.core.log.segment import RollReason, Segment
from ottla.core.log.state import LogState
from ottla.wire.errors import Error, Refused


def empty(settings: Config | None = None, start: int = 0) -> LogState:
    return LogState("t-0", settings or Config.of(), [Segment(start)], end_offset=start)


def error_of(call, *arguments) -> Error:  # type: ignore[no-untyped-def]
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return refused.value.error


def test_offsets_only_grow() -> None:
    log = empty()
    log.appended(header(0, 5), None)
    assert error_of(log.placement, header(4), 0) is Error.OFFSET_OUT_OF_RANGE
    assert log.placement(header(5), 0) is None
    assert log.placement(header(9), 0) is None  # A follower of a compacted log skips.


def test_a_batch_must_fit_into_a_segment() -> None:
    log = empty(config(segment_bytes=100))
    assert error_of(log.placement, header(0, size=101), 0) is Error.RECORD_LIST_TOO_LARGE
    assert log.placement(header(0, size=100), 0) is None


def test_placement_changes_nothing() -> None:
    log = empty(config(segment_bytes=100))
    log.appended(header(0, size=90), None)
    assert log.placement(header(1, size=90), 0) is RollReason.SIZE
    assert (len(log.segments), log.active.size, log.end_offset) == (1, 90, 1)


def test_a_batch_moves_the_end_the_epochs_and_the_producers() -> None:
    log = empty()
    effects = log.appended(data(0, 7, 0, 3, leader_epoch=4), None)
    assert effects.new_epoch
    assert not log.appended(data(3, 7, 3, leader_epoch=4), None).new_epoch
    assert (log.end_offset, log.producers.end_offset) == (4, 4)
    assert log.epochs.entries == [EpochStart(4, 0)]
    assert log.producers.by_id[7].last_sequence == 3


def test_an_aborted_transaction_is_reported() -> None:
    log = empty()
    log.appended(data(0, 7, 0, transactional=True), None)
    completed = log.appended(*end(1, 7, commit=False)).completed
    assert completed is not None
    assert completed.aborted


def test_segments_cover_the_log_without_overlap() -> None:
    log = log_of([(0, 10), (5, 10), (9, 0)], 12)
    assert [log.segment_at(offset) for offset in (0, 4, 5, 8, 9, 11, 99)] == [0, 0, 1, 1, 2, 2, 2]
    assert log.segment_at(-1) == 0
    assert [log.end_of(index) for index in range(3)] == [5, 9, 12]
    assert log.size == 20


def test_a_rolled_segment_is_active_and_the_producer_state_is_as_of_its_start() -> None:
    log = log_of([(0, 10)], 12)
    log.rolled(Segment(12))
    assert log.active.base_offset == 12
    assert log.producers.end_offset == 12


def test_the_watermark_moves_up_and_never_past_the_end() -> None:
    log = empty()
    log.appended(header(0, 5), None)
    assert log.advance_high_watermark(3) == 3
    assert log.advance_high_watermark(2) == 3
    assert log.advance_high_watermark(99) == 5


def test_the_last_stable_offset_waits_for_the_outcome() -> None:
    log = empty()
    log.appended(header(0), None)
    log.appended(data(1, 7, 0, transactional=True), None)
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 1
    log.appended(*end(2, 7, commit=True))
    assert log.last_stable_offset == 1
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


@pytest.mark.parametrize("offset", [-1, 2, 11])
def test_only_what_is_in_the_log_can_be_read(offset: int) -> None:
    log = log_of([(0, 10)], 10)
    log.advance_log_start(3)
    assert error_of(log.check_readable, offset) is Error.OFFSET_OUT_OF_RANGE


def test_an_offset_above_the_watermark_is_readable() -> None:
    """It is in the log. Called out of range, a consumer would reset its position after a change of leader."""
    log = empty()
    log.appended(header(0, 10), None)
    for offset in range(11):
        log.check_readable(offset)


def test_records_above_the_watermark_cannot_be_deleted() -> None:
    log = empty()
    log.appended(header(0, 10), None)
    log.advance_high_watermark(4)
    assert error_of(log.advance_log_start, 5) is Error.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def test_the_log_start_only_moves_up_and_takes_the_epochs_along() -> None:
    log = empty()
    for offset in range(6):
        log.appended(header(offset, leader_epoch=offset // 2), None)
    log.advance_high_watermark(6)
    assert log.advance_log_start(3)
    assert not log.advance_log_start(3)
    assert not log.advance_log_start(1)
    assert log.epochs.entries == [EpochStart(1, 3), EpochStart(2, 4)]


def test_truncation_takes_every_offset_back() -> None:
    log = empty()
    for offset in range(6):
        log.appended(header(offset, leader_epoch=offset // 2), None)
    log.advance_high_watermark(6)
    log.flushed(6)
    log.truncated(3, Producers("t-0", 3))
    assert (log.end_offset, log.high_watermark, log.recovery_point, log.last_stable_offset) == (3, 3, 3, 3)
    assert log.epochs.entries == [EpochStart(0, 0), EpochStart(1, 2)]


def test_the_recovery_point_moves_up_and_never_past_the_end() -> None:
    log = empty(config(flush_messages=3))
    log.appended(header(0, 5), None)
    waiting = [log.must_flush]
    log.flushed(3)
    waiting.append(log.must_flush)
    assert waiting == [True, False]
    log.flushed(2)
    assert log.recovery_point == 3
    log.flushed(99)
    assert log.recovery_point == 5


def test_a_restarted_log_is_empty_at_its_new_start() -> None:
    log = empty()
    log.appended(data(0, 7, 0, transactional=True), None)
    log.restarted(Segment(40))
    offsets = (log.log_start_offset, log.end_offset, log.high_watermark, log.recovery_point, log.last_stable_offset)
    assert offsets == (40,) * 5
    assert (log.producers.by_id, log.epochs.entries) == ({}, [])


@given(
    st.lists(st.tuples(st.sampled_from(["append", "watermark", "start", "end", "txn"]), st.integers(0, 6)), max_size=30)
)
def test_start_stable_watermark_end_stay_in_order(script: list[tuple[str, int]]) -> None:
    """I14, whatever happens in whatever order."""
    log, sequence = empty(), 0
    for action, number in script:
        before = log.high_watermark
        if action == "append":
            log.appended(header(log.end_offset, number + 1), None)
        elif action == "txn":
            log.appended(data(log.end_offset, 7, sequence, transactional=True), None)
            sequence += 1
        elif action == "end":
            log.appended(*end(log.end_offset, 7, commit=bool(number % 2)))
        elif action == "watermark":
            log.advance_high_watermark(log.high_watermark + number)
        else:
            log.advance_log_start(min(log.log_start_offset + number, log.high_watermark))
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
        assert log.high_watermark >= before
