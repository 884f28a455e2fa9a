"""Logs from one to fifty GiB: the cost of their length for look-ups, reads, opening and recovery.

The bytes are real and every checksum is correct, but nearly all are zeros, which a sparse file holds for free: each
small batch, which is read, is followed by a large one, a record of zeros.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.growth import TOPIC, compared, make_topic, running, spending
from bench.nodes import Node
from bench.raw_client import RawConnection, fetch_frame, fetched_up_to, frame, produce_frame, produced_at
from bench.report import Section, Table
from bench.sizes import GiB, MiB, Sizes
from ottla import kernel
from ottla.config import INDEX_INTERVAL_BYTES, Config
from ottla.core.log import files
from ottla.core.log.checkpoints import EpochStart, encode_epochs, encode_offsets
from ottla.core.log.files import file_name
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from ottla.core.log.segment import Segment
from ottla.core.log.snapshots import encode_snapshot
from ottla.kernel import Record
from ottla.wire.api import ApiKey
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.frame import decode_response

_LARGE_BYTES = 4 * MiB
_SEGMENT_BYTES = GiB - 8 * MiB
_FIRST_MS = 1_700_000_000_000
_SEGMENT_MS = 3_600_000
_LIST_OFFSETS_VERSION = 7
_KEY = (TOPIC, 0)


def run(sizes: Sizes) -> Section:
    section = Section(
        "Growth: length of a log",
        "One partition in segments of 1 GiB, the bytes nearly all zeros in sparse files, every checksum right. A Fetch "
        "asks for one small batch at an offset (`committed`: anywhere, of what is committed only), ListOffsets for the "
        "first record since a time; CPU is user and system time of the node (`ottla serve`), a start lasts until the "
        "first answer. `kill -9`: a hundred requests were produced after a clean start, nothing was synced since.",
    )
    table = Table(
        "Length",
        [
            *("GiB", "clean start s", "CPU s", "fetch at the tail CPU µs", "in the middle", "anywhere", "committed"),
            *("first by time ms", "by time anywhere CPU µs", "produce CPU µs", "MiB resident"),
            *("start after kill -9 s", "CPU s"),
        ],
    )
    section.tables.append(table)
    for gib in sizes.growth_gib:
        with TemporaryDirectory() as path:
            _measure(Path(path), gib, sizes, table)
    section.findings += _findings(table)
    return section


def _measure(home: Path, gib: int, sizes: Sizes, table: Table) -> None:
    with running(home) as node:
        make_topic(RawConnection(node.port), 1)
    written = _write(home / "data", gib)
    with running(home) as node:
        start_s, start_cpu = node.start_s, node.cpu_s()
        connection = RawConnection(node.port)
        figures = _ask(node, connection, written, sizes)
        for _ in range(100):
            answer = connection.ask(produce_frame(TOPIC, 10, bytes(100)))
        produced_at(answer)
        resident = node.resident_bytes()
        node.kill()
    with running(home) as node:
        table.add(gib, start_s, start_cpu, *figures, resident / MiB, node.start_s, node.cpu_s())


def _ask(node: Node, connection: RawConnection, written: "_Written", sizes: Sizes) -> list[float]:
    picks, requests = random.Random(7), sizes.growth_requests
    small, middle = written.small_offsets, len(written.small_offsets) // 2

    def fetch(offset: int, *, committed_only: bool = False) -> None:
        asked = fetch_frame(TOPIC, offset, 0, max_bytes=1, committed_only=committed_only)
        if fetched_up_to(connection.ask(asked)) != written.end_offset:
            raise RuntimeError(f"the log does not end at {written.end_offset}")

    def find(offset: int) -> None:
        found = _find_time(connection, written.time_of(offset))
        if found != written.first_of_segment(offset):
            raise RuntimeError(f"the time of offset {offset} was found at {found}")

    asked = time.perf_counter()
    find(small[middle])
    first_ms = (time.perf_counter() - asked) * 1e3
    anywhere = [picks.choice(small) for _ in range(requests)]
    batch = produce_frame(TOPIC, 10, bytes(100))
    return [
        _each(node, fetch, small[-1:] * requests),
        _each(node, fetch, small[middle : middle + 1] * requests),
        _each(node, fetch, anywhere),
        _each(node, partial(fetch, committed_only=True), anywhere),
        first_ms,
        _each(node, find, anywhere),
        _each(node, lambda _: connection.ask(batch), anywhere),
    ]


def _each(node: Node, ask: Callable[[int], object], offsets: list[int]) -> float:
    """CPU microseconds of the node for each."""
    with spending(node) as spent:
        for offset in offsets:
            ask(offset)
    return spent.cpu_us(len(offsets))


def _find_time(connection: RawConnection, timestamp: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    answer = connection.ask(frame(ListOffsetsRequest(replica_id=-1, topics=topics), _LIST_OFFSETS_VERSION))
    body = decode_response(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, answer)[1]
    return int(body.topics[0].partitions[0].offset)


class _Written(NamedTuple):
    small_offsets: list[int]
    bases: list[int]
    """First offsets of the segments; all records of one have the same timestamp."""
    end_offset: int

    def first_of_segment(self, offset: int) -> int:
        return max(base for base in self.bases if base <= offset)

    def time_of(self, offset: int) -> int:
        return _FIRST_MS + self.bases.index(self.first_of_segment(offset)) * _SEGMENT_MS


def _write(data: Path, gib: int) -> _Written:
    """The files as a clean stop leaves them; appends would take minutes, and the disk space."""
    directory = data / f"{TOPIC}-0"
    for old in directory.glob("0*"):
        old.unlink()
    (directory / files.SEGMENT_SUMMARY).unlink(missing_ok=True)
    written = _Written([], [], 0)
    for number in range(gib):
        end_offset = _write_segment(directory, written, _FIRST_MS + number * _SEGMENT_MS)
        written = written._replace(end_offset=end_offset)
        (directory / file_name(end_offset, files.SNAPSHOT)).write_bytes(encode_snapshot([]))
    (directory / files.LEADER_EPOCHS).write_bytes(encode_epochs([EpochStart(0, 0)]))
    for name, offset in (
        (files.RECOVERY_POINTS, written.end_offset),
        (files.HIGH_WATERMARKS, written.end_offset),
        (files.LOG_STARTS, 0),
    ):
        (data / name).write_bytes(encode_offsets({_KEY: offset}))
    return written


def _write_segment(directory: Path, written: _Written, timestamp: int) -> int:
    """One more segment; returns the offset after it."""
    offset = written.end_offset
    written.bases.append(offset)
    small = kernel.build_batch([Record(0, timestamp, b"key", b"value")], leader_epoch=0)
    large = kernel.build_batch([Record(0, timestamp, None, bytes(_LARGE_BYTES))], leader_epoch=0)
    beginning = large[:4096]
    segment, interval, indexes = (
        Segment(offset),
        Config.of()[INDEX_INTERVAL_BYTES],
        {OFFSET_ENTRY: bytearray(), TIME_ENTRY: bytearray()},
    )
    log = os.open(directory / file_name(offset, files.LOG), os.O_WRONLY | os.O_CREAT, 0o600)
    while segment.size < _SEGMENT_BYTES:
        written.small_offsets.append(offset)
        for batch, stored in ((small, small), (large, beginning)):
            stamped = bytearray(stored)
            kernel.stamp(stamped, 0, offset, 0)
            os.pwrite(log, stamped, segment.size)
            for entries in segment.appended([kernel.read_header(batch).numbered(offset, 0)], interval):
                indexes[OFFSET_ENTRY] += OFFSET_ENTRY.pack(*entries.offset)
                indexes[TIME_ENTRY] += TIME_ENTRY.pack(*entries.time) if entries.time is not None else b""
            offset += 1
    os.ftruncate(log, segment.size)
    os.close(log)
    if (last := segment.time_entry()) is not None:
        indexes[TIME_ENTRY] += TIME_ENTRY.pack(*last)
    for kind, entry in ((files.OFFSET_INDEX, OFFSET_ENTRY), (files.TIME_INDEX, TIME_ENTRY)):
        (directory / file_name(segment.base_offset, kind)).write_bytes(indexes[entry])
    return offset


def _findings(table: Table) -> list[str]:
    short, long = table.rows[0], table.rows[-1]
    span = f"{short[0]} to {long[0]} GiB"
    found = [
        compared(f"{what}, {span}", short[column], long[column], why)
        for what, column, why in (
            ("Clean start, CPU", 2, "Names and sizes of all segments are listed."),
            ("Fetch at the tail, CPU", 3, "Not explained."),
            ("Fetch in the middle, CPU", 4, "Not explained."),
            ("Fetch anywhere, CPU", 5, "A log holds a bounded number of segments open; others are opened when asked."),
            ("Fetch of what is committed, anywhere, CPU", 6, "As above."),
            ("First look-up by time, wall", 7, "Without a summary the end of every time index is read once."),
            ("Look-up by time, CPU", 8, "A log holds a bounded number of segments open."),
            ("Produce, CPU", 9, "Not explained."),
            ("Memory", 10, "Not explained."),
            ("Start after kill -9, CPU", 12, "Not explained."),
        )
    ]
    return [
        *found,
        "After kill -9 the segment of the recovery point and what follows it are read again, whatever the length; a "
        "log of which nothing is known to be synced is read whole (see Recovery).",
    ]
