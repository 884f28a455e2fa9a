"""Look-ups by offset and by time in logs of very many segments."""

import os
import random
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from bench.batches import Place
from bench.measure import Cost, Work, lowest, open_files, timed
from bench.report import Section, Table, growth
from bench.sizes import Sizes
from ottla import kernel
from ottla.core.log import files
from ottla.core.log.files import file_name
from ottla.kernel import Record
from ottla.storage.partition_log import PartitionLog

_TIME_ENTRY = Struct(">qi")
_STEP_MS = 60_000


def run(sizes: Sizes) -> Section:
    section = Section(
        "Look-up",
        "Logs of real segments, three files each, one small batch in each; the page cache is warm. `anywhere` asks for "
        "random offsets or times, so that most look-ups open the files of their segment; `again` repeats one of them. "
        "By time, the first look-up after an open is shown apart: after a clean close it asks the summary that was "
        "left; where there is none, as in a directory that Kafka wrote, it asks every segment, which a node does in a "
        "thread.",
    )
    table = Table(
        "Looking up",
        [
            *("segments", "open ms", "by offset: anywhere µs", "again µs"),
            *("by time: very first ms", "anywhere µs", "again µs", "files open at most", "first without summary ms"),
        ],
    )
    section.tables.append(table)
    for segments in sizes.lookup_segments:
        with TemporaryDirectory() as path:
            _write_segments(Path(path) / "bench-0", segments)
            _measure(path, segments, table, sizes)
    section.findings += _findings(table)
    return section


def _findings(table: Table) -> list[str]:
    few, more, many = table.rows[0], table.rows[-2], table.rows[-1]
    segments, opening_ms, gathering_ms = many[0], many[1], many[8]
    assert isinstance(segments, int)
    assert isinstance(opening_ms, float)
    assert isinstance(gathering_ms, float)
    return [
        f"From {few[0]} to {segments:,} segments, by offset: {growth(few[3], many[3])}; by time: "
        f"{growth(few[6], many[6])}. Segments are found by halving a list in memory, then one index is asked.",
        f"Anywhere, {more[0]:,} to {segments:,} segments, by offset: {growth(more[2], many[2])}; by time: "
        f"{growth(more[5], many[5])}. A log holds a bounded number of segments open, so most of these open the files "
        "they need.",
        f"The very first look-up by time after a clean close: {growth(few[4], many[4])}. It reads the index of a file "
        "and one block of it.",
        f"Without a summary: {gathering_ms * 1e3 / segments:.0f} µs a segment, once. Timestamps need not rise from "
        "segment to segment, so the end of every time index is read.",
        f"Opening takes {opening_ms * 1e3 / segments:.0f} µs a segment: the directory is listed with sizes and every "
        "name is parsed.",
    ]


def _measure(path: str, segments: int, table: Table, sizes: Sizes) -> None:
    (Path(path) / files.CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":-1}')
    (Path(path) / files.HIGH_WATERMARKS).write_text(f"0\n1\nbench 0 {segments}\n")
    place = Place(path)
    log = place.log()
    gathering = timed(lambda: log.find_time(_time_of(segments - 1)))
    place.leave(log, clean=True)
    place = Place(path)
    before = open_files()
    logs: list[PartitionLog] = []
    opening = timed(lambda: logs.append(place.log()))
    log = logs[0]
    assert len(log.state.segments) == segments
    very_first = timed(lambda: log.find_time(_time_of(segments // 2)))
    picks = random.Random(3)
    offsets = [picks.randrange(segments) for _ in range(min(sizes.lookups, segments))]
    times = [_time_of(offset) for offset in offsets]
    by_offset = _lowest(lambda: _find_offsets(log, offsets), sizes).per(len(offsets))
    offset_again = _lowest(lambda: _find_offsets(log, offsets[:1] * 100), sizes).per(100)
    held = [open_files() - before]
    by_time = _lowest(lambda: _find_times(log, times), sizes).per(len(offsets))
    time_again = _lowest(lambda: _find_times(log, times[:1] * 100), sizes).per(100)
    held.append(open_files() - before)
    table.add(
        *(segments, opening.wall * 1e3, by_offset.wall_us, offset_again.wall_us),
        *(very_first.wall * 1e3, by_time.wall_us, time_again.wall_us, max(held), gathering.wall * 1e3),
    )
    place.leave(log, clean=False)


def _lowest(work: Work, sizes: Sizes) -> Cost:
    return lowest([timed(work) for _ in range(sizes.rounds)])


def _find_offsets(log: PartitionLog, offsets: list[int]) -> None:
    end = log.state.end_offset
    for offset in offsets:
        assert log.read(offset, 1, end).first_offset == offset


def _find_times(log: PartitionLog, times: list[int]) -> None:
    for timestamp in times:
        found = log.find_time(timestamp)
        assert found is not None
        assert found.timestamp == timestamp


def _time_of(offset: int) -> int:
    return 1_700_000_000_000 + offset * _STEP_MS


def _write_segments(directory: Path, segments: int) -> None:
    """The files as a shutdown leaves them. Appends that roll so often would take minutes."""
    directory.mkdir()
    batch = bytearray(kernel.build_batch([Record(0, 0, b"key", b"value")], leader_epoch=0))
    header = kernel.read_header(batch)
    for offset in range(segments):
        timestamp = _time_of(offset)
        stamped = header._replace(base_offset=offset, base_timestamp=timestamp, max_timestamp=timestamp)
        batch[: kernel.HEADER_SIZE] = kernel.pack_header(stamped)
        crc = kernel.batch_crc(batch, 0, len(batch))
        batch[: kernel.HEADER_SIZE] = kernel.pack_header(stamped._replace(crc=crc))
        _write(f"{directory}/{file_name(offset, files.LOG)}", batch)
        _write(f"{directory}/{file_name(offset, files.OFFSET_INDEX)}", b"")
        _write(f"{directory}/{file_name(offset, files.TIME_INDEX)}", _TIME_ENTRY.pack(timestamp, 0))


def _write(path: str, data: bytes | bytearray) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    if data:
        os.write(fd, data)
    os.close(fd)
