"""Appending, and reading back from every offset."""

from itertools import accumulate
from pathlib import Path

import pytest
from storage_samples import NOW, Place, batch, in_memory, numbered, on_disk, records_in

from ottla.core.log import files
from ottla.core.log.indexes import AbortedTxn
from ottla.core.log.producers import AppendOrigin
from ottla.kernel import CorruptBatch, scan
from ottla.observe.trace import recording
from ottla.storage.segment_files import SegmentFiles
from ottla.wire.errors import Error, Refused

EVERYTHING = 1 << 30


@pytest.fixture
def filled(tmp_path: Path) -> Place:
    """Batches of 1, 2, 3, 1, 2, 3 ... records, over several segments."""
    place = on_disk(tmp_path, segment_bytes=300)
    for number in range(12):
        place.append(1 + number % 3, timestamp=NOW + number)
    place.commit()
    assert len(place.bases()) > 3
    return place


def bounds(place: Place) -> list[tuple[int, int]]:
    """First and last offset of every batch, from the files themselves."""
    return [
        (header.base_offset, header.last_offset)
        for base in place.bases()
        for header in scan(place.read_bytes(place.file(base))).headers
    ]


def test_offsets_are_given_without_gaps(filled: Place) -> None:
    assert filled.offsets() == list(range(24))
    assert filled.log.state.end_offset == 24


def test_the_answer_names_the_offsets(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    assert place.append(3)[:3] == (0, 2, -1)
    assert place.append(2)[:3] == (3, 4, -1)


def test_log_append_time_is_in_the_answer_and_in_the_records(tmp_path: Path) -> None:
    place = on_disk(tmp_path, message_timestamp_type="LogAppendTime")
    place.clock.advance(77)
    assert place.append(2, timestamp=5).log_append_time == NOW + 77
    records, _ = records_in(place.log.read(0, EVERYTHING, 2))
    assert [record.timestamp for record in records] == [NOW + 77] * 2


def test_reading_at_any_offset_begins_with_its_batch(filled: Place) -> None:
    for first, last in bounds(filled):
        for offset in range(first, last + 1):
            found = filled.log.read(offset, EVERYTHING, 24)
            assert found.first_offset == first
            records, _ = records_in(found)
            assert records[0].offset == first


def test_nothing_at_or_past_the_upper_offset_comes(filled: Place) -> None:
    """Above the watermark it may still be taken back; above the last stable offset it may be aborted."""
    ends = [last + 1 for _, last in bounds(filled)]
    for upper in range(25):
        for offset in range(upper):
            records, _ = records_in(filled.log.read(offset, EVERYTHING, upper))
            assert all(record.offset < upper for record in records)
            if upper in ends:
                assert records[-1].offset >= offset


def test_at_and_above_the_upper_offset_there_is_nothing_yet(filled: Place) -> None:
    """No refusal: after a change of leader the watermark lags behind what a consumer has read."""
    for offset in range(10, 25):
        assert filled.log.read(offset, EVERYTHING, 10).length == 0


@pytest.mark.parametrize("offset", [-1, 25, 10**9])
def test_outside_of_the_log_is_refused(filled: Place, offset: int) -> None:
    with pytest.raises(Refused) as refused:
        filled.log.read(offset, EVERYTHING, 24)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_is_refused(filled: Place) -> None:
    filled.log.delete_records(7)
    with pytest.raises(Refused):
        filled.log.read(6, EVERYTHING, 24)
    assert records_in(filled.log.read(7, EVERYTHING, 24))[0]


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 100, 150, 10_000])
def test_the_first_batch_comes_whole_if_asked(filled: Place, max_bytes: int) -> None:
    """Otherwise a consumer whose limit is too small would never get on."""
    for offset in range(24):
        whole = filled.log.read(offset, max_bytes, 24)
        assert scan(whole.read()).headers
        first_size = scan(whole.read()).headers[0].size
        assert whole.length <= max(max_bytes, first_size)
        bounded = filled.log.read(offset, max_bytes, 24, whole_batch=False)
        assert bounded.length <= max_bytes
        assert bool(scan(bounded.read()).headers) == (max_bytes >= first_size)


def test_gaps_of_compaction_are_skipped(tmp_path: Path) -> None:
    """The offset asked for is gone: what comes is the next there is, in this segment or a later one."""
    place = on_disk(tmp_path)
    for offset in (0, 5, 20):
        place.log.append_replicated(numbered(offset, 2))
        if offset == 5:
            place.log.roll()
    following = {**dict.fromkeys(range(2), 0), **dict.fromkeys(range(2, 7), 5), **dict.fromkeys(range(7, 22), 20)}
    for offset, first in following.items():
        assert place.log.read(offset, EVERYTHING, 22).first_offset == first
    assert place.log.read(2, EVERYTHING, 5).length == 0


def test_what_a_leader_sends_is_taken_as_it_is_numbered(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    sent = numbered(3, 2, leader_epoch=1) + numbered(9, leader_epoch=2)
    assert place.log.append_replicated(sent + numbered(10)[:-5])[:2] == (3, 9)  # type: ignore[index]
    assert place.read_bytes(place.file(0)) == sent
    assert [tuple(entry) for entry in place.log.state.epochs.entries] == [(1, 3), (2, 9)]
    assert place.log.append_replicated(b"") is None


def test_a_damaged_batch_of_a_leader_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    damaged = bytearray(numbered(0) + numbered(1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        place.log.append_replicated(damaged)
    assert place.log.state.end_offset == 0


def test_a_follower_refuses_what_lies_before_its_end(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.append_replicated(numbered(0, 5))
    with pytest.raises(Refused) as refused:
        place.log.append_replicated(numbered(4))
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
    assert place.offsets() == list(range(5))


def test_a_refused_batch_leaves_no_trace(tmp_path: Path) -> None:
    place = on_disk(tmp_path, max_message_bytes=200)
    place.append()
    before = place.read_bytes(place.file(0))
    with pytest.raises(Refused) as refused:
        place.append(value=bytes(300))
    assert refused.value.error is Error.MESSAGE_TOO_LARGE
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        place.log.append(damaged, 0)
    place.append(producer_id=7, sequence=0)
    with pytest.raises(Refused):
        place.append(producer_id=7, sequence=5)
    assert place.read_bytes(place.file(0))[: len(before)] == before
    assert place.offsets() == [0, 1]


# Duplicates.


@pytest.mark.parametrize("clean", [True, False])
def test_a_batch_sent_again_is_answered_as_the_first_time_also_after_a_restart(tmp_path: Path, clean: bool) -> None:
    """I3: the answer was lost, not the batch."""
    place = on_disk(tmp_path)
    place.append(5)
    first = place.append(3, producer_id=7, sequence=0)
    again = place.append(3, producer_id=7, sequence=0)
    assert (again.first_offset, again.last_offset, again.duplicate) == (*first[:2], True)
    place.reopen(clean=clean)
    again = place.append(3, producer_id=7, sequence=0)
    assert (again.first_offset, again.last_offset, again.duplicate) == (*first[:2], True)
    assert place.append(2, producer_id=7, sequence=3).first_offset == 8
    assert place.offsets() == list(range(10))


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_over_segments_and_restarts(tmp_path: Path, clean: bool) -> None:
    """Snapshots stand at every roll: the state need not be read from the whole log."""
    place = on_disk(tmp_path, segment_bytes=250)
    for number in range(10):
        place.append(producer_id=number % 2, sequence=number // 2)
    before = place.log.state.producers.last_records()
    assert place.reopen(clean=clean).state.producers.last_records() == before
    for base in place.bases()[1:]:
        assert place.disk.exists(place.file(base, files.SNAPSHOT))


def test_coordinators_append_without_sequences(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.append(producer_id=7, sequence=0, transactional=True)
    place.log.append(
        bytearray(batch(producer_id=7, sequence=-1, transactional=True)), 0, origin=AppendOrigin.COORDINATOR
    )
    place.end_txn(7, commit=True)
    place.commit()
    assert place.log.state.last_stable_offset == 3


# Transactions.


@pytest.mark.parametrize("clean", [None, True, False])
def test_aborted_transactions_are_found_for_every_range(tmp_path: Path, clean: bool | None) -> None:
    """I4: a reader leaves out what these say, wherever it begins and ends."""
    place = on_disk(tmp_path, segment_bytes=300)
    expected = []
    for number in range(6):
        pid = number % 3
        first = place.append(2, producer_id=pid, sequence=2 * (number // 3), transactional=True).first_offset
        other = place.append(producer_id=9, sequence=number, transactional=True).first_offset
        last = place.end_txn(pid, commit=number % 2 == 0).first_offset
        place.end_txn(9, commit=True)
        if number % 2:
            expected.append((pid, first, last))
        assert other > first
    place.commit()
    if clean is not None:
        place.checkpoint()
        place.reopen(clean=clean)
    end = place.log.state.end_offset
    for first in range(end):
        for upper in range(first + 1, end + 1):
            found = [txn[:3] for txn in place.log.aborted_transactions(first, upper)]
            assert found == [txn for txn in expected if txn[2] >= first and txn[1] < upper]


@pytest.mark.parametrize("index_interval_bytes", [0, 4096])
def test_only_the_aborted_transactions_among_what_was_read_are_told(tmp_path: Path, index_interval_bytes: int) -> None:
    """As Kafka has it. A reader that is far behind would be told of all up to the end of the log with every answer."""
    place = on_disk(tmp_path, segment_bytes=600, index_interval_bytes=index_interval_bytes)
    aborted = []
    for number in range(9):
        first = place.append(2, producer_id=7, sequence=2 * number, transactional=True).first_offset
        place.append(1 + number % 3)
        last = place.end_txn(7, commit=number % 3 == 0).first_offset
        if number % 3:
            aborted.append((first, last))
    place.commit()
    end = place.log.state.end_offset
    for offset in range(end):
        for max_bytes in (1, 200, 350, EVERYTHING):
            records = place.log.read(offset, max_bytes, end)
            begun = [first for first, last in bounds(place) if records.first_offset <= first]
            sizes = [header.size for header in scan(place.log.read(offset, EVERYTHING, end).read()).headers]
            ends = list(accumulate(sizes, initial=0))
            last_read = [first for first, position in zip(begun, ends, strict=False) if position < records.length][-1]
            told = place.log.aborted_among(records, offset, end)
            assert [txn.first_offset for txn in told] == [
                first for first, last in aborted if last >= offset and first <= last_read
            ]


@pytest.mark.parametrize("clean", [None, True, False])
def test_aborted_transactions_are_looked_for_only_where_there_are_any(
    tmp_path: Path, clean: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may have thousands of segments, and nearly every consumer asks."""
    place = on_disk(tmp_path, segment_bytes=300)
    asked: list[int] = []
    original = SegmentFiles.aborted

    def counted(files: SegmentFiles) -> list[AbortedTxn]:
        asked.append(files.segment.base_offset)
        return original(files)

    def told(offset: int) -> list[int]:
        """The aborted transactions among one batch."""
        asked.clear()
        end = place.log.state.end_offset
        return [txn.first_offset for txn in place.log.aborted_among(place.log.read(offset, 1, end), offset, end)]

    def go_on() -> None:
        place.commit()
        if clean is not None:
            place.checkpoint()
            place.reopen(clean=clean)

    for _ in range(20):
        place.append(2)
    go_on()
    monkeypatch.setattr(SegmentFiles, "aborted", counted)
    assert len(place.log.state.segments) > 5
    assert (told(0), asked) == ([], [])

    first = place.append(producer_id=7, sequence=0, transactional=True).first_offset
    place.end_txn(7, commit=False)
    ends_in = place.log.state.active.base_offset
    for _ in range(20):
        place.append(2)
    go_on()
    assert (told(0), set(asked)) == ([], {ends_in})
    assert (told(first), set(asked)) == ([first], {ends_in})
    after = place.log.state.segments[place.log.state.segment_at(first) + 2].base_offset
    assert (told(after), asked) == ([], [])


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_holds_the_last_stable_offset_after_a_restart(tmp_path: Path, clean: bool) -> None:
    place = on_disk(tmp_path)
    place.append(3)
    place.append(producer_id=7, sequence=0, transactional=True)
    place.append()
    place.commit()
    place.log.flush()
    place.checkpoint()
    place.reopen(clean=clean)
    assert place.log.state.high_watermark == 5
    assert place.log.state.last_stable_offset == 3


# Rolling.


def test_size_rolls_and_the_trace_says_why(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=200)
    with recording() as events:
        for _ in range(3):
            place.append(value=bytes(80))
    rolled = [event.fields for event in events if event.name == "log.rolled"]
    assert [(one["base_offset"], one["reason"]) for one in rolled] == [(1, "size"), (2, "size")]


def test_time_rolls(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_ms=100)
    for timestamp in (0, 100, 101, 150):
        place.append(timestamp=NOW + timestamp)
    assert place.bases() == [0, 2]


def test_time_goes_on_counting_after_a_restart(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_ms=100)
    place.append(timestamp=NOW)
    place.reopen(clean=True)
    place.append(timestamp=NOW + 101)
    assert place.bases() == [0, 1]


def test_a_full_index_rolls_and_holds_no_more_than_allowed(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_index_bytes=60)
    for number in range(30):
        place.append(timestamp=NOW + number)
    place.close()
    assert len(place.bases()) > 2
    for base in place.bases():
        assert place.disk.size(place.file(base, files.OFFSET_INDEX)) <= 60
        assert place.disk.size(place.file(base, files.TIME_INDEX)) <= 60


def test_jitter_is_drawn_for_every_segment() -> None:
    """Otherwise all partitions of a node roll, and sync, in the same second."""
    place = in_memory(segment_ms=1000, segment_jitter_ms=1000)
    for _ in range(5):
        place.append()
        place.log.roll()
    drawn = [segment.roll_jitter_ms for segment in place.log.state.segments[1:]]
    assert all(0 <= jitter < 1000 for jitter in drawn)
    assert len(set(drawn)) > 1


def test_an_offset_too_far_for_relative_offsets_begins_a_segment(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.append_replicated(numbered(5))
    place.log.append_replicated(numbered(2**32))
    assert place.bases() == [0, 2**32]
    assert place.offsets() == [5, 2**32]


def test_a_segment_begins_where_the_log_ended_also_before_a_gap(tmp_path: Path) -> None:
    """Between segments recovery takes a gap for a loss."""
    place = on_disk(tmp_path)
    place.log.append_replicated(numbered(5))
    place.log.append_replicated(numbered(2**31 + 5))
    assert place.bases() == [0, 6]


def test_an_empty_segment_gives_way_to_one_that_can_hold_the_offset(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.append_replicated(numbered(2**40))
    assert place.bases() == [2**40]
    assert not place.disk.exists(place.file(0))


def test_rolling_an_empty_segment_does_nothing(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.roll()
    place.append()
    place.log.roll()
    place.log.roll()
    assert place.bases() == [0, 1]


# Epochs and identity.


def test_an_epoch_is_known_even_if_nothing_is_written_in_it(tmp_path: Path) -> None:
    """KAFKA-7415: otherwise the next leader does not know where this one began."""
    place = on_disk(tmp_path)
    place.append(leader_epoch=1)
    place.log.assign_epoch(2)
    place.log.flush()
    place.reopen(clean=False)
    assert [tuple(entry) for entry in place.log.state.epochs.entries] == [(1, 0), (2, 1)]


def test_a_log_belongs_to_one_topic_id(tmp_path: Path) -> None:
    """KAFKA-12257: a topic made again under its name must not find the old one's records."""
    place = on_disk(tmp_path)
    place.log.set_topic_id(bytes([1] * 16))
    place.log.set_topic_id(bytes([1] * 16))
    assert place.reopen(clean=False).topic_id == bytes([1] * 16)
    with pytest.raises(Refused) as refused:
        place.log.set_topic_id(bytes([2] * 16))
    assert refused.value.error is Error.INCONSISTENT_TOPIC_ID


def test_settings_can_change_while_the_log_is_open(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.reconfigure(place.config.for_topic({"max.message.bytes": "80", "internal.segment.bytes": "100"}))
    with pytest.raises(Refused):
        place.append(value=bytes(100))
    place.append()
    place.append()
    assert place.bases() == [0, 1]
