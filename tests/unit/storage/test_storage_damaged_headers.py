"""One flipped bit in the header of a batch: whoever meets it is told so (I23)."""

import pytest
from storage_samples import NOW, Place, in_memory

from ottla.core.log import files
from ottla.kernel import HEADER_SIZE, CorruptBatch, scan
from ottla.sim.disk import SimDisk
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


def test_what_lies_past_a_damaged_header_is_served() -> None:
    """Its index leads there; an attempt to make it anew must not take that away."""
    place = in_memory()
    for number in range(4):
        place.append(2, timestamp=NOW + number)
    place.commit()
    place.close()
    data = bytearray(place.read_bytes(place.file(0)))
    data[len(data) // 4 + 16] = 59
    place.write_bytes(place.file(0), bytes(data))
    place.open()
    for _ in range(2):
        with pytest.raises(CorruptBatch, match="is damaged at position"):
            place.log.read(2, 100, 8)
        for offset in (0, 6):
            assert place.log.read(offset, 100, 8).first_offset == offset
