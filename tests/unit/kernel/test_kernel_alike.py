"""Records checked by columns: the same verdict as record by record, only sooner."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import kernel
from ottla.kernel import InvalidRecords, ProduceRules, Record
from ottla.kernel.batch import CRC_AT, HEADER_SIZE
from ottla.kernel.reference import produce
from ottla.kernel.reference.alike import DELTA_MIN, Skipped, skip_alike


@pytest.fixture(scope="module", autouse=True)
def implementation() -> None:
    """The native kernel needs no columns."""


NOW_MS = 1_700_000_000_000


def batch(count: int, key: bytes | None, value_sizes: list[int], headers: bool = False) -> bytearray:
    given = (("name", b"value"),) if headers else ()
    records = [
        Record(index, NOW_MS + index // 200, key, bytes(value_sizes[index % len(value_sizes)]), given)
        for index in range(count)
    ]
    return bytearray(kernel.build_batch(records))


@contextmanager
def record_by_record() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "skip_alike", lambda *_, **__: Skipped(0, 0, DELTA_MIN))
        yield


def verdict(made: bytearray, *, compacted: bool) -> object:
    """What the check says: the header, or the words of the refusal."""
    copy = bytearray(made)
    copy[CRC_AT : CRC_AT + 4] = kernel.batch_crc(copy, 0, len(copy)).to_bytes(4, "big")
    try:
        return kernel.check_produced(copy, ProduceRules(compacted=compacted), NOW_MS)[1:]
    except InvalidRecords as refusal:
        return refusal.error, refusal.text, refusal.record_errors


@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 67, 68, 200, 8191, 8193, 8200])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_records_of_one_size_are_taken_by_columns(count: int, key: bytes | None) -> None:
    """The offset delta takes a byte more from 64 and from 8192 on: there a new run begins, or the walk takes over."""
    made = batch(count, key, [100])
    skipped = skip_alike(bytes(made[HEADER_SIZE:]), count, key_needed=False)
    left = min(count, 8192) - skipped.records
    assert left < 4
    assert skipped.records < 4 or skipped.latest == (skipped.records - 1) // 200
    with record_by_record():
        expected = verdict(made, compacted=False)
    assert verdict(made, compacted=False) == expected


def test_long_timestamps_are_left_to_the_walk() -> None:
    """Where a run has the key's size stand the last bytes of a long delta: read as a size they are out of bounds."""
    first, *late = (Record(index, index and 2**45, None, b"") for index in range(8))
    made = kernel.build_batch([first, *late])
    assert skip_alike(made[HEADER_SIZE + 7 :], len(late), key_needed=False).records == 0


def test_records_without_the_key_they_need_are_left_to_the_walk() -> None:
    made = batch(10, None, [100])
    assert skip_alike(bytes(made[HEADER_SIZE:]), 10, key_needed=True).records == 0


@settings(max_examples=150)
@given(
    count=st.integers(1, 80),
    key=st.sampled_from([None, b"", b"key", bytes(70)]),
    value_sizes=st.lists(st.integers(0, 70), min_size=1, max_size=2),
    headers=st.booleans(),
    compacted=st.booleans(),
    data=st.data(),
)
def test_verdict_is_that_of_the_walk(
    count: int, key: bytes | None, value_sizes: list[int], headers: bool, compacted: bool, data: st.DataObject
) -> None:
    """Whatever was changed in the records: a fault that columns hide would reach every consumer."""
    made = batch(count, key, value_sizes, headers)
    for at in data.draw(st.lists(st.integers(HEADER_SIZE, len(made) - 1), max_size=3)):
        made[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255, made[at] ^ 1, made[at] ^ 2]))
    with record_by_record():
        expected = verdict(made, compacted=compacted)
    assert verdict(made, compacted=compacted) == expected


@settings(max_examples=150)
@given(at=st.integers(0, 70 * 18 - 1), byte=st.integers(0, 255))
def test_one_changed_byte_in_a_run_gets_the_verdict_of_the_walk(at: int, byte: int) -> None:
    made = batch(70, None, [10])
    made[HEADER_SIZE + at % (len(made) - HEADER_SIZE)] = byte
    with record_by_record():
        expected = verdict(made, compacted=False)
    assert verdict(made, compacted=False) == expected
