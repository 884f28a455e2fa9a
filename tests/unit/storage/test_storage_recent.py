"""The newest batches are found without the index, and never where they no longer are."""

from random import Random

from storage_samples import Place, in_memory

from ottla.storage.recent import RecentBatches


def reads(place: Place) -> list[tuple[int, int, int]]:
    """What a reader gets at every offset under every bound."""
    end = place.log.log.end_offset
    start = place.log.log.log_start_offset
    slices = [place.log.read(offset, 150, upper) for offset in range(start, end) for upper in (end, end - 1, end - 5)]
    return [(found.position, found.length, found.first_offset) for found in slices]


def test_reads_are_those_of_the_index_whatever_happens_to_the_log() -> None:
    """After a roll or a truncation the same offset stands elsewhere: a stale position would be another's bytes."""
    choices, place = Random(7), in_memory(segment_bytes=3000)
    for _ in range(60):
        match choices.randrange(12):
            case 0:
                place.log.truncate(max(place.log.log.end_offset - choices.randrange(8), 0))
            case 1:
                place.log.roll()
            case 2:
                place.log.restart(place.log.log.end_offset + choices.randrange(3))
            case _:
                place.append(1 + choices.randrange(3), value=bytes(choices.randrange(40)))
        place.commit()
        with_memory, remembered = reads(place), place.log._recent
        place.log._recent = RecentBatches()
        assert with_memory == reads(place)
        place.log._recent = remembered


def test_only_the_newest_are_remembered() -> None:
    place = in_memory()
    for _ in range(100):
        place.append()
    remembered = [offset for offset in range(100) if place.log._recent.beginning_at(offset)]
    assert remembered == list(range(68, 100))
