"""Opening a log: what was closed is believed, what may be torn is read again, what had been synced is never cut."""

from pathlib import Path

import pytest
from storage_samples import KEY, NOW, Place, in_memory, numbered, on_disk

from ottla.core.log import files
from ottla.core.log.producers import Producer
from ottla.core.log.snapshots import encode_snapshot
from ottla.kernel import HEADER_SIZE, ControlType, read_end_txn_marker, read_header
from ottla.observe.trace import Event, names, recording
from ottla.storage.recovery import LogDamaged

ENDS = (1, 3, 6, 7, 9, 12)
REPAIRS = {"index.rebuilt", "txnindex.rebuilt", "epochs.rebuilt", "log.cut", "log.segments_dropped", "log.restarted"}


def fill(place: Place) -> Place:
    for number in range(6):
        place.append(1 + number % 3, producer_id=5, sequence=(0, *ENDS)[number], timestamp=NOW + number)
    place.commit()
    return place


def repairs(events: list[Event]) -> set[str]:
    return REPAIRS & set(names(events))


def tree(place: Place) -> dict[str, bytes]:
    return {name: place.read_bytes(f"{place.path}/{name}") for name in place.names()}


# Clean.


def test_after_a_clean_shutdown_nothing_is_repaired(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    place.close()
    before = tree(place)
    with recording() as events:
        place.open()
    assert repairs(events) == set()
    assert tree(place) == before
    assert place.offsets() == list(range(12))
    assert place.log.state.recovery_point == 12
    assert place.log.state.high_watermark == 12


def test_a_clean_shutdown_counts_once(tmp_path: Path) -> None:
    """Who crashes after it must be recovered: the marker is gone from the moment of opening."""
    place = fill(on_disk(tmp_path))
    place.close()
    assert place.disk.exists(f"{place.root}/{files.CLEAN_SHUTDOWN}")
    place.open()
    assert not place.disk.exists(f"{place.root}/{files.CLEAN_SHUTDOWN}")
    place.append(2)
    place.kill()
    assert place.open().state.end_offset == 14


def test_a_new_log_is_empty_and_is_left_with_its_files(tmp_path: Path) -> None:
    """Kafka takes a segment without indexes for one that needs recovery."""
    place = on_disk(tmp_path)
    assert place.log.state.end_offset == 0
    place.close()
    assert {files.file_name(0, kind) for kind in (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX)} <= set(
        place.names()
    )


# Torn.


def test_a_tail_torn_at_any_byte_is_cut_after_the_last_whole_batch() -> None:
    place = fill(in_memory())
    place.kill()
    data = place.read_bytes(place.file(0))
    place.open()
    last_batches = [place.log.read(end - 1, 1, end) for end in ENDS]
    sizes = [0, *(found.position + found.length for found in last_batches)]
    place.kill()
    for length in range(len(data) + 1):
        place.write_bytes(place.file(0), data[:length])
        whole = max(size for size in sizes if size <= length)
        with recording() as events:
            place.open()
        end = (0, *ENDS)[sizes.index(whole)]
        assert place.log.state.end_offset == end
        assert place.disk.size(place.file(0)) == whole
        assert ("log.cut" in names(events)) == (whole != length)
        assert place.offsets() == list(range(end))
        assert place.log.state.producers.last_records() == ({5: (end - 1, 0)} if end else {})
        place.kill()


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"garbage"])
@pytest.mark.parametrize("length", [1, 16, 17, 61, 500, 5000])
def test_what_is_no_batch_after_the_end_is_cut(tmp_path: Path, filler: bytes, length: int) -> None:
    """File systems leave zeros where the length was written and the data was not."""
    place = fill(on_disk(tmp_path))
    place.kill()
    data = place.read_bytes(place.file(0))
    place.write_bytes(place.file(0), data + (filler * length)[:length])
    assert place.open().state.end_offset == 12
    assert place.read_bytes(place.file(0)) == data


def test_a_flipped_bit_ends_the_log_before_its_batch() -> None:
    """I23: an error or a repair, never wrong bytes. Only the base offset and the leader epoch lie outside the CRC."""
    place = fill(in_memory())
    place.kill()
    data = place.read_bytes(place.file(0))
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big") + 12)
    for bit in range(0, len(data) * 8, 7):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        place.write_bytes(place.file(0), bytes(flipped))
        place.open()
        number = max(index for index, start in enumerate(starts) if start <= bit // 8)
        end, within = (0, *ENDS)[number], bit // 8 - starts[number]
        assert place.offsets()[:end] == list(range(end))
        if not (within < 8 or 12 <= within < 16):
            assert place.log.state.end_offset == end
            assert place.read_bytes(place.file(0)) == data[: starts[number]]
        place.kill()


def test_segments_after_the_cut_are_dropped(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=200))
    bases = place.bases()
    assert len(bases) > 2
    place.kill()
    place.write_bytes(place.file(bases[1]), place.read_bytes(place.file(bases[1]))[:-1])
    place.open()
    assert place.bases() == bases[:2]
    assert not place.disk.exists(place.file(bases[2]))
    assert place.append().first_offset == place.log.state.end_offset - 1


def test_recovering_twice_is_recovering_once() -> None:
    """I22, also when the first time was interrupted by another crash."""
    place = fill(in_memory(segment_bytes=300))
    place.kill()
    last = place.file(place.bases()[-1])
    place.write_bytes(last, place.read_bytes(last)[:-3])
    place.open()
    first = tree(place)
    place.kill()
    with recording() as events:
        place.open()
    assert "log.cut" not in names(events)
    assert {name: data for name, data in tree(place).items() if name.endswith(files.LOG)} == {
        name: data for name, data in first.items() if name.endswith(files.LOG)
    }
    assert place.log.state.producers.last_records() == {5: (place.log.state.end_offset - 1, 0)}


def test_after_recovery_the_indexes_are_those_of_a_log_that_never_crashed() -> None:
    crashed, calm = fill(in_memory(segment_bytes=300)), fill(in_memory(segment_bytes=300))
    crashed.kill()
    crashed.open()
    for place in (crashed, calm):
        place.close()
    assert tree(crashed) == tree(calm)


# Damaged.


@pytest.mark.parametrize("field", [slice(8, 12), slice(16, 17)], ids=["length", "magic"])
def test_damage_below_the_recovery_point_is_refused_not_cut(tmp_path: Path, field: slice) -> None:
    """What was synced and acknowledged is not thrown away: a person decides."""
    place = fill(on_disk(tmp_path))
    second = place.log.read(1, 1, 12).position
    place.log.flush()
    place.checkpoint()
    place.append(2)
    place.kill()
    data = bytearray(place.read_bytes(place.file(0)))
    data[second + field.start : second + field.stop] = bytes(field.stop - field.start)
    place.write_bytes(place.file(0), bytes(data))
    with pytest.raises(LogDamaged, match="verify"):
        place.open()
    place.directory.close(clean=False)
    assert place.read_bytes(place.file(0)) == bytes(data)


def test_a_log_shorter_than_what_was_synced_is_refused(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.log.flush()
    place.checkpoint()
    place.kill()
    place.write_bytes(place.file(0), place.read_bytes(place.file(0))[:-1])
    with pytest.raises(LogDamaged):
        place.open()


def test_partition_metadata_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.append()
    place.log.flush()
    place.checkpoint()
    place.kill()
    place.write_bytes(f"{place.path}/{files.PARTITION_METADATA}", b"junk")
    with pytest.raises(LogDamaged, match="topic"):
        place.open()


def test_partition_metadata_torn_before_the_first_sync_is_no_damage(tmp_path: Path) -> None:
    """A new partition is made durable with its first records; until then a crash may leave anything."""
    place = on_disk(tmp_path)
    place.kill()
    place.write_bytes(f"{place.path}/{files.PARTITION_METADATA}", b"vers")
    place.open()
    assert place.log.topic_id is None


# What stands beside the log.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_bad_snapshot_is_made_up_for_by_the_log(tmp_path: Path, clean: bool, damage: str) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    before = place.log.state.producers.last_records()
    if clean:
        place.close()
    else:
        place.kill()
    for name in place.names():
        if name.endswith(files.SNAPSHOT):
            path = f"{place.path}/{name}"
            data = place.read_bytes(path)
            place.disk.remove(path)
            if damage != "missing":
                place.write_bytes(path, data[:-1] if damage == "torn" else bytes([*data[:-1], data[-1] ^ 1]))
    assert place.open().state.producers.last_records() == before


def test_epochs_are_rebuilt_from_the_batches(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=200)
    for number in range(6):
        place.append(leader_epoch=number // 2)
    before = list(place.log.state.epochs.entries)
    place.close()
    place.write_bytes(f"{place.path}/{files.LEADER_EPOCHS}", b"0\n9\n")
    with recording() as events:
        place.open()
    assert "epochs.rebuilt" in names(events)
    assert place.log.state.epochs.entries == before


def test_index_files_without_a_log_go(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.close()
    place.write_bytes(place.file(99, files.OFFSET_INDEX), b"x" * 8)
    place.open()
    assert not place.disk.exists(place.file(99, files.OFFSET_INDEX))


def test_a_log_start_past_the_end_restarts_the_log_there(tmp_path: Path) -> None:
    """The records up to it were deleted, and the rest was lost: what is left lies before the log."""
    place = fill(on_disk(tmp_path))
    place.kill()
    place.write_offsets(files.LOG_STARTS, 50)
    for _ in range(2):
        place.open()
        assert (place.log.state.log_start_offset, place.log.state.end_offset) == (50, 50)
        assert place.log.state.epochs.entries == []
        place.kill()


def test_an_unreadable_checkpoint_only_means_more_work(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.log.flush()
    place.checkpoint()
    place.kill()
    for name in (files.RECOVERY_POINTS, files.HIGH_WATERMARKS, files.LOG_STARTS):
        place.write_bytes(f"{place.root}/{name}", b"junk")
    with recording() as events:
        place.open()
    assert names(events).count("checkpoint.unreadable") == 3
    assert place.offsets() == list(range(12))


def test_the_watermark_comes_back_and_never_past_the_end(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.log.flush()
    place.checkpoint()
    place.kill()
    place.write_offsets(files.HIGH_WATERMARKS, 5)
    assert place.open().state.high_watermark == 5
    place.kill()
    place.write_offsets(files.HIGH_WATERMARKS, 500)
    assert place.open().state.high_watermark == 12


def test_a_gap_inside_a_segment_is_legal(tmp_path: Path) -> None:
    """Compaction leaves them, and followers of a compacted log receive them."""
    place = on_disk(tmp_path)
    place.log.append_replicated(numbered(0) + numbered(5) + numbered(9))
    place.reopen(clean=False)
    assert place.offsets() == [0, 5, 9]
    assert place.directory.recovery_points.get(KEY, 0) == 0


def snapshot_of_a_stranger(place: Place, offset: int) -> None:
    """A snapshot that can be read and contradicts the batches, as one may that was written before a crash: what it knew
    is lost, and other records have taken its place."""
    place.write_bytes(place.file(offset, files.SNAPSHOT), encode_snapshot([Producer(66, epoch=9, last_timestamp=NOW)]))


def test_a_snapshot_where_a_segment_begins_above_the_recovery_point_is_not_believed(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    place.kill()
    snapshot_of_a_stranger(place, place.bases()[1])
    place.open()
    assert list(place.log.state.producers.by_id) == [5]


def test_a_snapshot_within_a_segment_above_the_recovery_point_is_not_believed(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.reopen(clean=True)
    place.append(1, producer_id=5, sequence=12)
    place.log.roll()
    place.kill()
    place.write_offsets(files.RECOVERY_POINTS, 11)
    snapshot_of_a_stranger(place, 12)
    place.open()
    assert list(place.log.state.producers.by_id) == [5]


def test_a_flipped_marker_below_the_recovery_point_commits_nothing() -> None:
    """A wrong CRC there is no reason to cut, but what was aborted must not be shown."""
    place = in_memory()
    place.append(2, producer_id=7, transactional=True)
    marker = place.end_txn(7, commit=False).first_offset
    place.append(1)
    place.commit()
    place.log.flush()
    place.checkpoint()
    place.kill()
    data = bytearray(place.read_bytes(place.file(0)))
    at = read_header(bytes(data)).size
    assert read_header(bytes(data), at).base_offset == marker
    data[at + HEADER_SIZE + 8] ^= 1  # Abort becomes commit.
    assert read_end_txn_marker(memoryview(data)[at:]).control_type is ControlType.COMMIT
    place.write_bytes(place.file(0), bytes(data))
    with pytest.raises(LogDamaged, match="wrong CRC"):
        place.open()
