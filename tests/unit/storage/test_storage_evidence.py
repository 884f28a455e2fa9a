"""Files that were lost or cut while nobody was looking: checkpoints, snapshots and the summary tell."""

from collections.abc import Callable
from pathlib import Path

import pytest
from storage_samples import KEY, NOW, Place, on_disk

from ottla.core.log import files
from ottla.core.log.checkpoints import encode_offsets
from ottla.kernel import scan
from ottla.observe.trace import names, recording
from ottla.storage.recovery import LogDamaged


def filled(place: Place) -> Place:
    for number in range(12):
        place.append(2, timestamp=NOW + number)
    place.commit()
    return place


def tree(place: Place) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(place.path).iterdir()}


def cut(place: Place, base_offset: int, part: float) -> None:
    data = place.read_bytes(place.file(base_offset))
    place.write_bytes(place.file(base_offset), data[: int(len(data) * part)])


def lose(place: Place, base_offset: int) -> None:
    """The log and all that goes with it."""
    for path in Path(place.path).glob(f"{base_offset:020d}.*"):
        path.unlink()


LOSSES: dict[str, Callable[[Place], None]] = {
    "a closed segment is gone": lambda place: lose(place, place.bases()[1]),
    "only the log of a closed segment is gone": lambda place: place.disk.remove(place.file(place.bases()[1])),
    "the first segment is gone": lambda place: lose(place, place.bases()[0]),
    "the active segment is gone": lambda place: lose(place, place.bases()[-1]),
    "all segments are gone": lambda place: [lose(place, base) for base in place.bases()] and None,
    "a closed segment is cut in half": lambda place: cut(place, place.bases()[1], 0.5),
    "a closed segment is cut at a batch": lambda place: cut(place, place.bases()[1], 2 / 3),
    "the active segment is cut in half": lambda place: cut(place, place.bases()[-1], 0.5),
    "the active segment is cut at a batch": lambda place: cut(place, place.bases()[-1], 2 / 3),
    "the active segment is empty": lambda place: cut(place, place.bases()[-1], 0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_lost_something_after_a_clean_stop_is_refused(tmp_path: Path, loss: str) -> None:
    """It was served with a hole, and offsets were given out again, without a line."""
    place = filled(on_disk(tmp_path, segment_bytes=300))
    place.close()
    before = len(Path(place.file(place.bases()[-1])).read_bytes())
    assert before == 273, "three batches in each segment"
    whole = tree(place)
    LOSSES[loss](place)
    left = tree(place)
    for _ in range(3):
        with pytest.raises(LogDamaged, match=r"(missing|has \d+ bytes|ends at offset).*Restore"):
            place.open()
        told = tree(place)
        assert b"Restore" in told.pop(files.REFUSED)
        assert told == left, "refusing changes nothing"
        place.directory.close(clean=False)  # The next start looks as closely, though nothing was left cleanly then.
    for name, data in whole.items():
        place.write_bytes(f"{place.path}/{name}", data)
    place.open()
    assert place.offsets() == list(range(24))
    assert files.REFUSED not in place.names()


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if "active" in loss or "all" in loss])
@pytest.mark.parametrize("segment_bytes", [300, 10**6], ids=["many segments", "one segment"])
@pytest.mark.parametrize("witness", ["checkpoint", "snapshot"])
def test_one_witness_is_enough(tmp_path: Path, loss: str, segment_bytes: int, witness: str) -> None:
    """Kafka leaves no summary, and any file may be damaged."""
    place = filled(on_disk(tmp_path, segment_bytes=segment_bytes))
    end_offset = place.log.state.end_offset
    place.close()
    (Path(place.root) / files.OWN_CLEAN_SHUTDOWN).unlink()
    if witness == "checkpoint":
        (Path(place.path) / files.file_name(end_offset, files.SNAPSHOT)).unlink()
    else:
        (Path(place.root) / files.RECOVERY_POINTS).write_bytes(b"junk")
    LOSSES[loss](place)
    with pytest.raises(LogDamaged):
        place.open()


@pytest.mark.parametrize("loss", ["the active segment is gone", "all segments are gone", "the active segment is empty"])
def test_a_log_shorter_than_its_recovery_point_is_refused_after_a_crash(tmp_path: Path, loss: str) -> None:
    place = filled(on_disk(tmp_path, segment_bytes=300))
    place.log.flush()
    place.checkpoint()
    place.kill()
    LOSSES[loss](place)
    with pytest.raises(LogDamaged, match="had been synced"):
        place.open()


def test_what_kafka_did_since_is_no_loss(tmp_path: Path) -> None:
    """Its retention takes segments, its cleaner makes them shorter; it knows nothing of the summary."""
    place = filled(on_disk(tmp_path, segment_bytes=300))
    place.close()
    (Path(place.root) / files.CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":57}')
    place.write_bytes(f"{place.root}/{files.LOG_STARTS}", encode_offsets({}))
    lose(place, place.bases()[0])
    with recording() as events:
        place.open()
    assert place.offsets() == list(range(place.bases()[0], 24))
    assert place.bases()[0] > 0
    assert not any(event.warning for event in events)


def test_nothing_is_missing_where_nothing_was_lost(tmp_path: Path) -> None:
    """Retention, compaction and truncation change the segments; each clean stop says how they are then."""
    place = filled(on_disk(tmp_path, segment_bytes=300))
    place.reopen(clean=True)
    place.log.delete_records(9)
    place.log.retain(NOW)
    place.reopen(clean=True)
    assert place.offsets() == list(range(9, 24))
    place.log.truncate(20)
    place.reopen(clean=True)
    assert place.offsets() == list(range(9, 20))
    place.log.restart(50)
    place.append(3)
    place.reopen(clean=True)
    assert place.offsets() == [50, 51, 52]


@pytest.mark.parametrize("start", [25, 10**18])
def test_a_log_start_that_cannot_be_is_refused(tmp_path: Path, start: int) -> None:
    """A huge number in the checkpoint dropped the whole log."""
    place = filled(on_disk(tmp_path))
    place.close()
    before = tree(place)
    place.write_offsets(files.LOG_STARTS, start)
    with pytest.raises(LogDamaged, match=rf"{files.LOG_STARTS} says that .* starts at offset {start}, .*ends at 24"):
        place.open()
    left = tree(place)
    del left[files.REFUSED]
    assert left == before


def test_a_recovery_point_past_the_end_is_told_with_its_file(tmp_path: Path) -> None:
    place = filled(on_disk(tmp_path))
    place.close()
    place.write_offsets(files.RECOVERY_POINTS, 10**12)
    with pytest.raises(LogDamaged, match=rf"ends at offset 24, .*{10**12}.*{files.RECOVERY_POINTS}"):
        place.open()


def test_a_flipped_base_offset_of_the_last_batch_is_noticed(tmp_path: Path) -> None:
    """No checksum covers it; what is appended next would be numbered from there."""
    place = filled(on_disk(tmp_path))
    place.close()
    data = bytearray(place.read_bytes(place.file(0)))
    data[len(data) * 11 // 12 + 5] ^= 1
    place.write_bytes(place.file(0), bytes(data))
    with pytest.raises(LogDamaged, match="it was closed at 24"):
        place.open()


# The last batch.


def damage_last(place: Place, at: int) -> None:
    data = bytearray(place.read_bytes(place.file(0)))
    data[len(data) * 11 // 12 + at] ^= 1
    place.write_bytes(place.file(0), bytes(data))


@pytest.mark.parametrize("at", [17, 30, 70, 85], ids=["crc", "timestamp", "record", "value"])
def test_a_wrong_crc_in_the_last_batch_costs_that_batch(tmp_path: Path, at: int) -> None:
    """Two other files say where the log ended, so the rest is served, and nothing is numbered twice. A reader of the
    batch finds the wrong CRC."""
    place = filled(on_disk(tmp_path))
    place.close()
    damage_last(place, at)
    with recording() as events:
        place.open()
    assert names([event for event in events if event.warning])[-1:] == ["log.damaged"]
    assert place.log.state.end_offset == 24
    assert place.append(2, timestamp=NOW + 12).first_offset == 24
    for offset in (0, 20, 24):
        assert scan(place.log.read(offset, 1, 26).read()).fault is None
    assert "CRC" in str(scan(place.log.read(22, 1, 26).read()).fault)
    for clean in (True, False):
        place.reopen(clean=clean)
        assert place.log.state.end_offset == 26
        assert scan(place.log.read(24, 1, 26).read()).fault is None


def test_a_last_batch_that_claims_another_end_is_refused(tmp_path: Path) -> None:
    """Its header is damaged, and everything that is appended would be numbered from there."""
    place = filled(on_disk(tmp_path))
    place.close()
    damage_last(place, 26)  # In the last offset delta.
    with pytest.raises(LogDamaged, match="wrong CRC"):
        place.open()


def test_a_wrong_crc_in_the_last_batch_is_refused_where_nothing_says_where_the_log_ended(tmp_path: Path) -> None:
    place = filled(on_disk(tmp_path))
    place.close()
    damage_last(place, 70)
    (Path(place.root) / files.RECOVERY_POINTS).unlink()
    for path in Path(place.path).glob(f"*{files.SNAPSHOT}"):
        path.unlink()
    with pytest.raises(LogDamaged, match="wrong CRC"):
        place.open()
    assert KEY not in place.directory.recovery_points
