"""The index on disk against a list, across pages and the entries that are still in memory."""

from bisect import bisect_right
from itertools import accumulate
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import in_memory

from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.index_file import IndexFile

PATH = "/d/test.index"


def filled(entry: Struct, entries: list[tuple[int, int]], *, reopened_after: int = 0) -> IndexFile:
    disk = in_memory().disk
    index = IndexFile(disk, PATH, entry, 0)
    for number, fields in enumerate(entries):
        if number == reopened_after:
            index.write_out()
            index.close()
            index = IndexFile(disk, PATH, entry, number)
        index.append(fields)
    return index


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
@pytest.mark.parametrize("count", [0, 1, 340, 341, 342, 511, 512, 513, 1024, 1500])
def test_every_look_up_is_that_of_a_list(entry: Struct, count: int) -> None:
    """Around the end of a page, where entries move from memory to the file."""
    entries = [(3 * number, 7 * number) for number in range(count)]
    index = filled(entry, entries)
    assert len(index) == count
    assert [index.at(number) for number in range(count)] == entries
    assert index.last() == (entries[-1] if entries else None)
    keys = [key for key, _ in entries]
    for value in range(-1, 3 * count + 1, 5):
        expected = bisect_right(keys, value)
        assert index.count_at_most(0, value) == expected
        assert index.floor(value) == (entries[expected - 1] if expected else None)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=900),
    st.integers(0, 900),
    st.integers(-1, 8000),
)
def test_an_index_closed_and_continued_is_one_index(
    steps: list[tuple[int, int]], reopened_after: int, value: int
) -> None:
    columns = (accumulate(column) for column in zip(*steps, strict=True))
    entries = list(zip(*columns, strict=True))
    index = filled(OFFSET_ENTRY, entries, reopened_after=reopened_after)
    for column in (0, 1):
        assert index.count_at_most(column, value) == bisect_right([fields[column] for fields in entries], value)
    for number in (0, len(entries) // 2, len(entries) - 1):
        assert index.at(number) == entries[number]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=2500),
    st.lists(st.tuples(st.booleans(), st.floats(-0.1, 1.1)), min_size=1, max_size=30),
)
def test_one_look_up_after_the_other(steps: list[tuple[int, int]], asked: list[tuple[bool, float]]) -> None:
    """What a look-up keeps of the index must not lead the next one astray, further on, further back, or elsewhere."""
    columns = [list(accumulate(column)) for column in zip(*steps, strict=True)]
    index = filled(OFFSET_ENTRY, list(zip(*columns, strict=True)))
    for second, part in asked:
        column = int(second)
        value = int(columns[column][-1] * part)
        assert index.count_at_most(column, value) == bisect_right(columns[column], value)


def test_entries_are_in_the_file_after_writing_out() -> None:
    disk = in_memory().disk
    index = IndexFile(disk, PATH, OFFSET_ENTRY, 0)
    index.append((1, 2))
    assert not disk.exists(PATH)
    index.write_out()
    assert disk.size(PATH) == OFFSET_ENTRY.size


def test_cleared_is_empty() -> None:
    index = filled(OFFSET_ENTRY, [(number, number) for number in range(600)])
    index.clear()
    assert (len(index), index.last(), index.floor(99)) == (0, None, None)
    index.append((5, 6))
    assert index.floor(99) == (5, 6)


def test_a_file_shorter_than_its_entries_is_an_error() -> None:
    """Somebody else cut it while it was in use: nothing it says can be trusted."""
    disk = in_memory().disk
    index = IndexFile(disk, PATH, OFFSET_ENTRY, 0)
    index.append((1, 2))
    index.write_out()
    disk.open(PATH).truncate(3)
    with pytest.raises(OSError, match="shorter"):
        index.last()
