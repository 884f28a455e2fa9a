"""Index entries are hints: a wrong one is noticed by who follows it, and mended from the log."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW, Place, in_memory, on_disk, records_in

from ottla.core.log import files
from ottla.core.log.indexes import AbortedTxn
from ottla.kernel import CorruptBatch
from ottla.observe.trace import names, recording

END = 20


def fill(place: Place) -> Place:
    for number in range(10):
        place.append(2, timestamp=NOW + number)
    place.commit()
    place.close()
    return place


def check(place: Place) -> None:
    """Every offset and every time is answered rightly."""
    for offset in range(END):
        records, _ = records_in(place.log.read(offset, 1, END))
        assert records[0].offset == offset // 2 * 2
    for number in range(10):
        found = place.log.find_time(NOW + number)
        assert found is not None
        assert found[:2] == (2 * number, NOW + number)
    assert place.log.find_time(NOW + 10) is None


def closed_segment(place: Place) -> int:
    assert len(place.bases()) > 2
    return place.bases()[1]


LIES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "position past the end": (files.OFFSET_INDEX, lambda data: data[:-4] + pack(">i", 10**6)),
    "position inside a batch": (files.OFFSET_INDEX, lambda data: data[:-4] + pack(">i", 77)),
    "negative position": (files.OFFSET_INDEX, lambda data: data[:-4] + pack(">i", -1)),
    "another offset": (files.OFFSET_INDEX, lambda data: data[:-8] + pack(">i", 2) + data[-4:]),
    "zeros": (files.OFFSET_INDEX, lambda data: bytes(len(data))),
    "torn": (files.OFFSET_INDEX, lambda data: data[:-3]),
    "timestamp too large": (files.TIME_INDEX, lambda data: data[:-12] + pack(">q", NOW + 10**6) + data[-4:]),
    "timestamp too small": (files.TIME_INDEX, lambda data: pack(">q", NOW - 10**6) + data[8:]),
    "offset of another batch": (files.TIME_INDEX, lambda data: data[:-4] + pack(">i", 0)),
    "offset past the end": (files.TIME_INDEX, lambda data: data[:-4] + pack(">i", 10**6)),
    "time zeros": (files.TIME_INDEX, lambda data: bytes(len(data))),
    "time torn": (files.TIME_INDEX, lambda data: data[:-5]),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("active", [False, True])
def test_a_lying_entry_is_noticed_and_mended_for_good(tmp_path: Path, lie: str, active: bool) -> None:
    """I23. After a clean shutdown the indexes are believed, so this is the only moment to notice."""
    place = fill(on_disk(tmp_path, segment_bytes=400 if not active else 10**6))
    base = 0 if active else closed_segment(place)
    kind, patch = LIES[lie]
    path = place.file(base, kind)
    place.write_bytes(path, patch(place.read_bytes(path)))
    with recording() as events:
        place.open()
        check(place)
    if "zeros" not in lie:
        assert "index.rebuilt" in names(events)
    place.close()
    with recording() as events:
        place.open()
        check(place)
    if "zeros" not in lie:
        assert "index.rebuilt" not in names(events)


@settings(max_examples=150)
@given(st.sampled_from([files.OFFSET_INDEX, files.TIME_INDEX]), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_any_flipped_bit_of_an_index_is_harmless(kind: str, bit: int, active: bool, backwards: bool) -> None:
    place = fill(in_memory(segment_bytes=400 if not active else 10**6))
    base = 0 if active else closed_segment(place)
    path = place.file(base, kind)
    data = bytearray(place.read_bytes(path))
    bit %= len(data) * 8
    data[bit // 8] ^= 1 << bit % 8
    place.write_bytes(path, bytes(data))
    place.open()
    offsets = reversed(range(END)) if backwards else range(END)
    for offset in offsets:
        records, _ = records_in(place.log.read(offset, 1, END))
        assert records[0].offset == offset // 2 * 2
    check(place)


def aborted_log(place: Place) -> Place:
    for number in range(6):
        place.append(2, producer_id=7, sequence=2 * number, transactional=True)
        place.end_txn(7, commit=number % 2 == 0)
    place.commit()
    place.close()
    return place


EXPECTED = [(7, 3, 5), (7, 9, 11), (7, 15, 17)]

TXN_LIES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda data: data[:-1],
    "another producer": lambda data: AbortedTxn(8, 3, 5, 6).encode() + data[34:],
    "no marker there": lambda data: AbortedTxn(7, 3, 4, 5).encode() + data[34:],
    "begins elsewhere": lambda data: AbortedTxn(7, 4, 5, 6).encode() + data[34:],
    "ends with a commit": lambda data: AbortedTxn(7, 1, 2, 3).encode() + data[34:],
    "stable offset past itself": lambda data: AbortedTxn(7, 3, 5, 600).encode() + data[34:],
    "another version": lambda data: b"\\x00\\x01" + data[2:],
    "zeros": lambda data: bytes(len(data)),
    "past the end": lambda data: data + AbortedTxn(7, 50, 60, 61).encode(),
}


@pytest.mark.parametrize("lie", TXN_LIES)
@pytest.mark.parametrize("vouched", [True, False], ids=["checksum", "no checksum"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_lying_transaction_index_is_noticed_and_mended(tmp_path: Path, policy: str, vouched: bool, lie: str) -> None:
    """I4: believed, it would show aborted records or hide committed ones."""
    place = aborted_log(on_disk(tmp_path, cleanup_policy=policy))
    path = place.file(0, files.TXN_INDEX)
    place.write_bytes(path, TXN_LIES[lie](place.read_bytes(path)))
    if not vouched:
        place.disk.remove(f"{place.path}/{files.SEGMENT_SUMMARY}")
    place.open()
    with recording() as events:
        found = place.log.aborted_transactions(0, 18)
    assert [txn[:3] for txn in found] == EXPECTED
    assert names(events) in (["txnindex.rebuilt"], ["txnindex.renewed"])
    place.reopen(clean=True)
    with recording() as events:
        assert [txn[:3] for txn in place.log.aborted_transactions(0, 18)] == EXPECTED
    assert events == []


SIZE_AT, RECORDS_AT = 9, 60


@pytest.mark.parametrize("damaged_at", [SIZE_AT, RECORDS_AT])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_transaction_index_is_not_made_anew_from_a_damaged_log(tmp_path: Path, policy: str, damaged_at: int) -> None:
    """The aborts after the damage would be left out, and their records served as if they were committed."""
    place = aborted_log(on_disk(tmp_path, cleanup_policy=policy))
    place.disk.remove(f"{place.path}/{files.SEGMENT_SUMMARY}")
    index, log = place.file(0, files.TXN_INDEX), place.file(0, files.LOG)
    if policy == "delete":
        place.write_bytes(index, TXN_LIES["another producer"](place.read_bytes(index)))
    data = bytearray(place.read_bytes(log))
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + damaged_at] ^= 1
    place.write_bytes(log, bytes(data))
    before = place.read_bytes(index)
    place.open()
    with pytest.raises(CorruptBatch, match="damaged"):
        place.log.aborted_transactions(0, 18)
    assert place.read_bytes(index) == before


def test_a_transaction_index_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Where a checksum says that there was one; and those that come after it are found, too."""
    place = aborted_log(on_disk(tmp_path, segment_bytes=300))
    there = [name for name in place.disk.list(place.path) if name.endswith(files.TXN_INDEX)]
    assert len(there) > 1
    place.disk.remove(f"{place.path}/{there[0]}")
    place.open()
    with recording() as events:
        assert place.log.aborted_transactions(12, 18)[0][:3] == EXPECTED[-1]
        assert events == []
        first = place.append(2, producer_id=7, sequence=12, transactional=True).first_offset
        last = place.end_txn(7, commit=False).first_offset
        place.commit()
        assert [txn[:3] for txn in place.log.aborted_transactions(0, last + 1)] == [*EXPECTED, (7, first, last)]
    assert "txnindex.rebuilt" in names(events)


@pytest.mark.parametrize("vouched", [True, False], ids=["checksum", "no checksum"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_an_honest_transaction_index_is_left_alone(tmp_path: Path, policy: str, vouched: bool) -> None:
    place = aborted_log(on_disk(tmp_path, segment_bytes=300, cleanup_policy=policy))
    if not vouched:
        place.disk.remove(f"{place.path}/{files.SEGMENT_SUMMARY}")
    place.open()
    with recording() as events:
        assert [txn[:3] for txn in place.log.aborted_transactions(0, 18)] == EXPECTED
    assert events == []
