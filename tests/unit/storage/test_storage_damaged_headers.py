"""One flipped bit in the header of a batch: whoever meets it is told so (I23)."""

import pytest
from storage_samples import NOW, Place, in_memory, numbered

from ottla.core.log import files
from ottla.kernel import HEADER_SIZE, CorruptBatch, scan
from ottla.sim.machine.disk import SimDisk
from ottla.storage.batches import find_batch
from ottla.storage.recovery import LogDamaged
from ottla.wire.errors import Refused

END = 9


def closed_log(**settings: object) -> Place:
    place = in_memory(**settings)
    for number in range(3):
        place.append(2, producer_id=7, sequence=2 * number, transactional=True, timestamp=NOW + number)
        place.end_txn(7, commit=number == 1, timestamp=NOW + number)
    place.commit()
    place.close()
    return place


def look_at_everything(place: Place) -> list[Refused]:
    """What a reader is told who asks for all there is."""
    told: list[Refused] = []
    log = place.log
    questions = [
        *(lambda at=at: log.find_time(NOW + at) for at in range(4)),
        log.find_max_timestamp,
        lambda: log.aborted_transactions(0, END),
        *(lambda offset=offset: log.read(offset, 100, END) for offset in range(END)),
    ]
    for ask in questions:
        try:
            ask()  # type: ignore[operator]
        except Refused as refused:
            told.append(refused)
    return told


@pytest.mark.parametrize("segment_bytes", [10**6, 300], ids=["active", "closed"])
def test_a_flipped_bit_of_a_header_is_refused_by_name_or_harmless(segment_bytes: int) -> None:
    """A look-up by time raised `BadIndex`, which nobody handles: an index made from a damaged log lies again."""
    original = closed_log(segment_bytes=segment_bytes)
    disk = original.disk
    assert isinstance(disk, SimDisk)
    refusals: list[Refused] = []
    for header in scan(original.read_bytes(original.file(0))).headers[:1]:
        for bit in range(8 * HEADER_SIZE):
            place = Place.__new__(Place)
            place.__dict__.update(original.__dict__)
            place.disk = flipped = disk.copy()
            flipped.flip_bit(place.file(header.base_offset), bit)
            try:
                place.open()
            except LogDamaged as refused:
                refusals.append(refused)
            else:
                refusals += look_at_everything(place)
    assert len(refusals) > 100
    assert all(files.file_name(0, files.LOG) in refused.text for refused in refusals)


@pytest.mark.parametrize("batch", [1, 2], ids=["in the middle", "the last"])
def test_a_damaged_header_is_told_with_its_file_and_position(batch: int) -> None:
    """Nobody can act on "magic is 59 (at 0)"."""
    place = in_memory()
    for _ in range(3):
        place.append(2)
    place.commit()
    place.close()
    data = bytearray(place.read_bytes(place.file(0)))
    position = batch * len(data) // 3
    data[position + 16] = 59
    place.write_bytes(place.file(0), bytes(data))
    with pytest.raises(Refused, match=rf"{place.file(0)} is damaged at position {position}: magic is 59") as told:
        place.open().read(2, 100, 6)
    assert "(at 0)" not in told.value.text


def is_told(place: Place, offset: int) -> bool:
    """Whether a reader of a damaged batch is told so, or finds out by its CRC."""
    try:
        return scan(place.log.read(offset, 100, 10).read()).fault is not None
    except CorruptBatch as told:
        return "is damaged at position" in told.text


@pytest.mark.parametrize("index_interval_bytes", [0, 4096], ids=["indexed", "not indexed"])
@pytest.mark.parametrize("damaged", range(4))
@pytest.mark.parametrize("at", [8, 11, 16, 23], ids=["length", "length, low", "magic", "last offset"])
def test_what_lies_around_a_damaged_batch_is_served(index_interval_bytes: int, damaged: int, at: int) -> None:
    """A consumer that was told of the damage goes on behind it."""
    place = in_memory(index_interval_bytes=index_interval_bytes)
    for number in range(5):
        place.append(2, timestamp=NOW + number)
    place.commit()
    place.close()
    data = bytearray(place.read_bytes(place.file(0)))
    data[damaged * len(data) // 5 + at] ^= 0x80
    place.write_bytes(place.file(0), bytes(data))
    place.open()
    for _ in range(2):
        assert is_told(place, 2 * damaged)
        for offset in set(range(0, 10, 2)) - {2 * damaged}:
            assert place.log.read(offset, 100, 10).first_offset == offset
            assert place.log.read(offset + 1, 100, 10).first_offset == offset
    assert place.append(1, timestamp=NOW + 9).first_offset == 10
    for clean in (False, True):
        place.reopen(clean=clean)
        assert place.log.state.end_offset == 11
        assert place.log.read(10, 100, 11).first_offset == 10


def test_a_batch_is_found_past_damage_of_any_length() -> None:
    """Across the chunks in which a file is looked through, and wherever something looks like a batch and is none."""
    data = bytearray(b"".join(numbered(offset) for offset in range(3)))
    size = len(data) // 3
    disk = in_memory().disk
    for length in (0, 1, 60, 61, (1 << 20) - 61, 1 << 20, (1 << 20) + 5):
        for filler in (b"\0", b"\2", bytes(range(256)), bytes(data[: size - 1])):
            junk = (filler * (length // len(filler) + 1))[:length]
            file = disk.open("/d/file", create=True)
            file.truncate(0)
            file.write(0, [junk, data])
            found = find_batch(file, 0, length + len(data), 1)
            assert found == length + size
            assert find_batch(file, 0, length + len(data), 3) is None
            assert find_batch(file, length + 1, length + 2 * size - 1, 0) is None
