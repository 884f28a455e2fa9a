"""What is remembered of batches is found without the index, and never where it no longer is."""

from copy import copy
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from storage_samples import Place, in_memory, records_in

from ottla.kernel import BatchHeader, Record, build_batch, read_header
from ottla.storage.reading import LogReader
from ottla.storage.recent import RecentBatches
from ottla.storage.segment_files import BatchFound


def reads(place: Place) -> list[tuple[int, int, int, bytes]]:
    """What a reader gets at every offset under every bound, twice, since what one has read helps the next."""
    end = place.log.state.end_offset
    start = place.log.state.log_start_offset
    found = []
    for offset in range(start, end):
        for upper in (end, end, end - 1, end - 5):
            for max_bytes in (150, 400):
                part = place.log.read(offset, max_bytes, upper)
                assert place.log.is_warm(part)
                found.append((part.position, part.length, part.first_offset, part.read()))
    return found


def test_reads_are_those_of_the_index_whatever_happens_to_the_log() -> None:
    """After a roll or a truncation the same offset stands elsewhere: a stale position would be another's bytes."""
    choices, place = Random(7), in_memory(segment_bytes=3000)
    for _ in range(60):
        match choices.randrange(12):
            case 0:
                place.log.truncate(max(place.log.state.end_offset - choices.randrange(8), 0))
            case 1:
                place.log.roll()
            case 2:
                place.log.restart(place.log.state.end_offset + choices.randrange(3))
            case _:
                place.append(1 + choices.randrange(3), value=bytes(choices.randrange(40)))
        place.commit()
        log = place.log
        with_memory, remembered = reads(place), log._reading
        log._reading = LogReader(log.state, log.here, log._look_ups, RecentBatches())
        assert with_memory == reads(place)
        log._reading = remembered


def test_only_the_newest_are_remembered() -> None:
    place = in_memory()
    for _ in range(100):
        place.append()
    remembered = [offset for offset in range(100) if place.log._recent.beginning_at(offset)]
    assert remembered == list(range(68, 100))


def header(offset: int, size: int) -> BatchHeader:
    return read_header(build_batch([Record(offset, 0, None, bytes(size))]))


@given(st.lists(st.tuples(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.booleans()), max_size=20))
def test_batches_noted_together_are_remembered_as_one_by_one(runs: list[tuple[list[int], bool]]) -> None:
    """Also those that nobody asked for before others came."""
    recent, noted, position = RecentBatches(), [], 0
    for sizes, is_asked in runs:
        headers = [header(len(noted) + number, size) for number, size in enumerate(sizes)]
        recent.note(headers, position)
        for written in headers:
            noted.append(BatchFound(position, written))
            position += written.size
        if is_asked:
            assert recent.beginning_at(noted[-1].header.base_offset) == noted[-1]
    expected = [found if len(noted) - offset <= 32 else None for offset, found in enumerate(noted)]
    assert [recent.beginning_at(offset) for offset in range(len(noted))] == expected


def test_who_catches_up_needs_the_index_once() -> None:
    """Each slice is cut within a batch, and the look at its end finds where the next begins."""
    place = in_memory(index_interval_bytes=100)
    for _ in range(200):
        place.append(3, value=bytes(50))
    place.commit()
    log, asked = place.log, []
    locate = log._look_ups.locate
    log._look_ups.locate = lambda segment, offset: asked.append(offset) or locate(segment, offset)  # type: ignore[func-returns-value,method-assign]
    offset, end = 0, log.state.end_offset
    while offset < end:
        part = log.read(offset, 1000, end)
        assert log.is_warm(part)
        following = records_in(part)[1]
        assert following is not None
        offset = following
    assert asked == [0]


def cut_at_the_first_batch_after(place: Place, offset: int) -> int:
    """Have a reader's slice end within a batch; the offset that it goes on from."""
    part = place.log.read(offset, 1000, place.log.state.end_offset)
    assert place.log.is_warm(part)
    following = records_in(part)[1]
    assert following in place.log._reading._cuts
    return following


def test_where_a_slice_was_cut_is_forgotten_when_batches_are_cut_off() -> None:
    """Others take their places, and of the newest no more than a few are remembered otherwise."""
    place = in_memory()
    for _ in range(20):
        place.append(value=bytes(50))
    following = cut_at_the_first_batch_after(place, 0)
    place.log.truncate(1)
    for _ in range(60):
        place.append(value=bytes(20))
    assert place.log.read(following, 1000, 60).first_offset == following
    assert records_in(place.log.read(following, 1000, 60))[0][0].offset == following


def test_where_a_slice_was_cut_is_not_believed_of_another_segment() -> None:
    """One that was cleaned has other batches at other positions."""
    place = in_memory()
    for _ in range(60):
        place.append(value=bytes(50))
    following = cut_at_the_first_batch_after(place, 0)
    segments = place.log.state.segments
    assert place.log._reading._where_cut(following)[0] is place.log._reading._cuts[following][1]
    segments[0] = copy(segments[0])
    assert place.log._reading._where_cut(following)[0] is None


def test_readers_who_wait_together_get_the_same_slice() -> None:
    place = in_memory()
    place.append()
    place.commit()
    first = place.log.read(0, 1000, 1)
    assert place.log.read(0, 1000, 1) is first
    place.append()
    place.commit()
    assert place.log.read(0, 1000, 2).length > first.length


def test_what_readers_shared_is_forgotten_when_it_is_cut_off() -> None:
    place = in_memory()
    place.append(value=b"old")
    place.commit()
    assert records_in(place.log.read(0, 1000, 1))[0][0].value == b"old"
    place.log.truncate(0)
    place.append(value=b"new")
    place.commit()
    assert records_in(place.log.read(0, 1000, 1))[0][0].value == b"new"
