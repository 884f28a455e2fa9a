"""Bits that flip at rest, and what may come of it (I23): an error or a repair, never wrong bytes.

Two fields of a stored batch lie outside of its CRC, because the broker writes them: the base offset and the leader
epoch. That is Kafka's format; no reader can tell that they changed, so they are left alone here.
"""

import struct
from itertools import pairwise
from random import Random

from ottla.core.log import files
from ottla.kernel import CorruptBatch
from ottla.sim.checkers import Violation
from ottla.sim.disk import SimDisk
from ottla.sim.history import History
from ottla.sim.records import BadBatch, Batch
from ottla.sim.subject import Subject
from ottla.wire.errors import Refused

SUFFIXES = (files.LOG, files.LOG, *files.INDEXES, files.SNAPSHOT, files.SEGMENT_SUMMARY)
_BASE_OFFSET, _LEADER_EPOCH, _HEADER = range(8), range(12, 16), range(61)


def flip_bits(disk: SimDisk, random: Random) -> list[str]:
    """Flip one to three bits in files of one kind; which ones."""
    suffix = random.choice(SUFFIXES)
    candidates = [
        path
        for path, data in disk.contents().items()
        if path.endswith(suffix) and data and files.SET_ASIDE not in path  # Nobody reads what was set aside.
    ]
    flipped = []
    for _ in range(random.randint(1, 3)):
        if not candidates:
            break
        path = random.choice((candidates[-1], random.choice(candidates)))
        data = disk.contents()[path] or b""
        position = _position(data, random) if suffix == files.LOG else random.randrange(len(data))
        bit = position * 8 + random.randrange(8)
        disk.flip_bit(path, bit)
        flipped.append(f"{path} bit {bit}")
    return flipped


def _position(data: bytes, random: Random) -> int:
    """A byte of a log file that some CRC covers, or the length; in a header as often as in the records."""
    starts = [0]
    while starts[-1] + 12 <= len(data):
        length = struct.unpack_from(">i", data, starts[-1] + 8)[0]
        starts.append(min(starts[-1] + max(length, 0) + 12, len(data)))  # A length may have been flipped before.
    batches = list(pairwise(starts))
    start, end = random.choice((batches[-1], random.choice(batches)))
    within = random.choice((_HEADER, range(_HEADER.stop, end - start)))
    covered = [at for at in within or _HEADER if at not in _BASE_OFFSET and at not in _LEADER_EPOCH]
    return min(start + random.choice(covered), len(data) - 1)


def check_rotten(subject: Subject, history: History) -> str:
    """Read everything there is; whatever is served must be right. What came of it, for the transcript."""
    if subject.log.end_offset != history.end_offset:
        raise Violation("I23", f"opened without complaint up to {subject.log.end_offset} of {history.end_offset}")
    told = []
    for check in (_check_records, _check_committed, _check_times):
        try:
            check(subject, history)
            told.append("right")
        except (BadBatch, Refused) as error:
            told.append(f"{type(error).__name__}: {error}")
    return "; ".join(told)


def _check_records(subject: Subject, history: History) -> None:
    served = _read(subject, subject.log.log_start_offset, subject.log.end_offset)
    _check_right(served, history)
    found = {record.offset for batch in served for record in batch.records}
    start = subject.log.log_start_offset
    missing = [r.offset for r, _ in history.records() if r.offset >= start and r.offset not in found]
    if missing and not history.policy.compact:
        raise Violation("I23", f"offset {missing[0]} was left out without an error")


def _read(subject: Subject, offset: int, upper_offset: int) -> list[Batch]:
    return list(subject.read_all(offset, upper_offset, max_bytes=2_000))


def _check_right(served: list[Batch], history: History) -> None:
    expected = {record.offset: record for record, _ in history.records()}
    for batch in served:
        for record in batch.records:
            if expected.get(record.offset) != record:
                raise Violation("I23", f"offset {record.offset} was {expected.get(record.offset)}, served {record}")


def _check_committed(subject: Subject, history: History) -> None:
    """Of the records that are there, those of committed transactions come, and no others."""
    outcomes = history.outcomes()
    batch_of = {record.offset: batch for record, batch in history.records()}
    start, stable = subject.log.log_start_offset, subject.log.last_stable_offset
    there = {record.offset for batch in _read(subject, start, stable) for record in batch.records}
    committed = {
        offset
        for offset in there
        if offset >= start
        and not batch_of[offset].is_control
        and (outcome := outcomes.get(batch_of[offset].base_offset)) is not None
        and outcome.committed
    }
    served = set(subject.read_committed(start))
    if wrong := sorted(served - committed):
        raise Violation("I23", f"offset {wrong[0]} was served at read_committed; its transaction did not commit")
    if missing := sorted(committed - served):
        raise Violation("I23", f"offset {missing[0]} is committed, yet was not served at read_committed")


def _check_times(subject: Subject, history: History) -> None:
    """A time index has no checksum: an entry may come to point to a later batch of the same time. So what is found
    must be a record and new enough; that no earlier one is, only an honest index can tell."""
    times = {record.offset: record.timestamp for record, _ in history.records()}
    for timestamp in sorted({batch.max_timestamp for batch in history.batches})[:5]:
        try:
            found = subject.partition.find_time(timestamp)
        except CorruptBatch:
            continue
        if found is not None and not timestamp <= found.timestamp == times.get(found.offset):
            true = times.get(found.offset)
            raise Violation("I23", f"the first record from {timestamp} on is {found}, whose time is {true}")
