"""Every state in which a swap can be interrupted, finished or undone at the next open."""

from collections.abc import Callable
from itertools import chain, combinations

import pytest
from storage_samples import Place, in_memory, numbered

from ottla.core.log import files
from ottla.observe.trace import names, recording
from ottla.storage.tidying import tidy

KINDS = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX, files.TXN_INDEX)


def segment(place: Place, base: int, suffix: str, *offsets: int, kinds: tuple[str, ...] = KINDS) -> None:
    for kind in kinds:
        data = b"".join(numbered(offset) for offset in offsets) if kind == files.LOG else b""
        place.write_bytes(place.file(base, kind, suffix), data)


@pytest.fixture
def place() -> Place:
    """Offsets 0 to 5 in segments at 0, 2 and 4, closed cleanly."""
    place = in_memory(cleanup_policy="compact")
    for offset in range(6):
        place.log.append_replicated(numbered(offset))
        if offset % 2:
            place.log.roll()
    place.commit()
    place.log.flush()
    place.checkpoint()
    place.directory.cleaner_offsets[place.log.key] = 6
    place.directory.write_offsets(files.CLEANER_OFFSETS, place.directory.cleaner_offsets)
    place.kill()
    return place


def reopened(place: Place) -> list[int]:
    offsets = [] if place.open() is None else place.offsets()
    assert all(file is None or not file.suffix for file in map(files.parse_file, place.names()))
    place.kill()
    once = place.names()
    place.open()
    place.kill()
    assert place.names() == once
    return offsets


def test_nothing_to_do_is_one_listing(place: Place) -> None:
    steps = place.disk.step  # type: ignore[attr-defined]
    with recording() as events:
        listing = tidy(place.disk, place.path)
    assert list(listing) == place.names()
    assert events == []
    assert place.disk.step == steps + 2  # type: ignore[attr-defined]


def test_a_cleaning_that_was_not_done_is_undone(place: Place) -> None:
    for present in chain.from_iterable(combinations(KINDS, n) for n in range(1, 5)):
        segment(place, 0, files.CLEANED, 1, 3, kinds=present)
        assert reopened(place) == list(range(6))


def test_a_half_renamed_swap_is_undone(place: Place) -> None:
    """The originals are whole; which of the new files were renamed is chance."""
    for renamed in chain.from_iterable(combinations(KINDS, n) for n in range(4)):
        segment(place, 0, files.SWAP, 1, 3, kinds=renamed)
        segment(place, 0, files.CLEANED, 1, 3, kinds=tuple(kind for kind in KINDS if kind not in renamed))
        assert reopened(place) == list(range(6))


def test_a_whole_swap_takes_the_place_of_all_it_covers(place: Place) -> None:
    segment(place, 0, files.SWAP, 1, 3)
    assert reopened(place) == [1, 3, 4, 5]
    assert not place.disk.exists(place.file(2))


def interruptions() -> dict[str, Callable[[Place], None]]:
    """What `replace` does, stopped after each of its steps."""

    def retire(place: Place, *paths: tuple[int, str]) -> None:
        for base, kind in paths:
            if place.disk.exists(place.file(base, kind)):
                place.disk.rename(place.file(base, kind), place.file(base, kind, files.DELETED))

    def finish(place: Place, *kinds: str) -> None:
        for kind in kinds:
            place.disk.rename(place.file(0, kind, files.SWAP), place.file(0, kind))

    both = [(base, kind) for base in (0, 2) for kind in KINDS]
    steps: dict[str, Callable[[Place], None]] = {}
    for count in range(len(both) + 1):
        steps[f"{count} retired"] = lambda place, count=count: retire(place, *both[:count])  # type: ignore[misc]
    for count in range(1, 5):

        def renamed(place: Place, count: int = count) -> None:
            retire(place, *both)
            finish(place, *KINDS[:count])

        steps[f"{count} renamed"] = renamed

        def backwards(place: Place, count: int = count) -> None:
            retire(place, *both)
            finish(place, *KINDS[::-1][:count])

        steps[f"{count} renamed, the last first"] = backwards
    return steps


@pytest.mark.parametrize("step", interruptions())
def test_an_interrupted_swap_is_finished(place: Place, step: str) -> None:
    """The originals may be half gone: only the new segment is sure to be whole."""
    segment(place, 0, files.SWAP, 1, 3)
    interruptions()[step](place)
    assert reopened(place) == [1, 3, 4, 5]


def test_a_swap_that_kept_nothing_takes_its_own_segment_away(place: Place) -> None:
    segment(place, 2, files.SWAP)
    assert reopened(place) == [0, 1, 4, 5]


def test_a_swap_below_an_unfinished_cleaning_is_finished(place: Place) -> None:
    """The cleaner was at the next group: the first one is whole."""
    segment(place, 0, files.SWAP, 1)
    segment(place, 2, files.CLEANED, 3, kinds=(files.LOG,))
    assert reopened(place) == [1, 2, 3, 4, 5]


def test_leftovers_of_other_files_go_and_strangers_stay(place: Place) -> None:
    leftovers = ["leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "00000000000000000000.snapshot.deleted"]
    strangers = ["notes.txt", "remote_log_snapshot"]
    for name in leftovers + strangers:
        place.write_bytes(f"{place.path}/{name}", b"x")
    with recording() as events:
        place.open()
    assert "log.tidied" in names(events)
    assert not set(leftovers) & set(place.names())
    assert set(strangers) <= set(place.names())
