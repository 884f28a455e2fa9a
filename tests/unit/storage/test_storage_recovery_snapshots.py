"""Which snapshots a recovery may begin with: those of a clean close, as far as everything was synced."""

import pytest
from storage_samples import Place, in_memory

from ottla.core.log import files


def left_with_a_snapshot_at_6(*, rolled: bool) -> Place:
    """Six batches of one record, one producer; a close has left a snapshot inside their segment. Then the process died,
    `rolled` after it had begun another segment."""
    place = in_memory()
    for number in range(6):
        place.append(1, producer_id=5, sequence=number)
    place.commit()
    place.close()
    snapshot = place.file(6, files.SNAPSHOT)
    data = place.read_bytes(snapshot)
    place.open()
    if rolled:
        for number in range(6, 9):
            place.append(1, producer_id=5, sequence=number)
        place.log.roll()
        place.append(1, producer_id=5, sequence=9)
    place.kill()
    place.write_bytes(snapshot, data)
    return place


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("synced", [0, 1, 3, 4])
def test_a_snapshot_above_the_recovery_point_is_not_believed(synced: int, rolled: bool) -> None:
    """What lies between the two may be torn: it is read again, and the log ends before what is wrong."""
    place = left_with_a_snapshot_at_6(rolled=rolled)
    place.write_offsets(files.RECOVERY_POINTS, synced)
    data = bytearray(place.read_bytes(place.file(0)))
    batch = len(data) // (9 if rolled else 6)
    data[5 * batch - 1] ^= 1
    place.write_bytes(place.file(0), bytes(data))
    log = place.open().state
    assert (log.end_offset, place.offsets()) == (4, [0, 1, 2, 3])
    assert log.producers.by_id[5].last_sequence == 3


@pytest.mark.parametrize("rolled", [False, True])
def test_nothing_is_lost_where_the_snapshot_is_at_the_recovery_point(rolled: bool) -> None:
    place = left_with_a_snapshot_at_6(rolled=rolled)
    log = place.open().state
    assert (log.end_offset, log.producers.by_id[5].last_sequence) == ((10, 9) if rolled else (6, 5))
