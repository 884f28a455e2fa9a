"""Bits that flip at rest, and what may come of it (I23): an error or a repair, never wrong bytes.

Two fields of a stored batch lie outside of its CRC, because the broker writes them: the base offset and the leader
epoch. That is Kafka's format; no reader can tell that they changed, so they are left alone here.
"""

import struct
from random import Random

from ottla.kernel import CorruptBatch
from ottla.sim.checkers import Violation, check_time
from ottla.sim.disk import SimDisk
from ottla.sim.history import History
from ottla.sim.records import BadBatch, Batch
from ottla.sim.subject import Subject
from ottla.wire.errors import Refused

SUFFIXES = (".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_BASE_OFFSET, _LEADER_EPOCH = range(8), range(12, 16)


def flip_bits(disk: SimDisk, random: Random) -> list[str]:
    """Flip one to three bits in files of one kind; which ones."""
    suffix = random.choice(SUFFIXES)
    candidates = [path for path, data in disk.contents().items() if path.endswith(suffix) and data]
    flipped = []
    for _ in range(random.randint(1, 3)):
        if not candidates:
            break
        path = random.choice(candidates)
        data = disk.contents()[path] or b""
        position = random.choice([at for at in range(len(data)) if suffix != ".log" or at not in _unprotected(data)])
        bit = position * 8 + random.randrange(8)
        disk.flip_bit(path, bit)
        flipped.append(f"{path} bit {bit}")
    return flipped


def _unprotected(data: bytes) -> set[int]:
    """The positions of a log file that no CRC covers."""
    found: set[int] = set()
    position = 0
    while position + 12 <= len(data):
        found.update(position + at for at in (*_BASE_OFFSET, *_LEADER_EPOCH))
        length = struct.unpack_from(">i", data, position + 8)[0]
        if length < 0:
            break
        position += length + 12
    return found


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
    outcomes = history.outcomes()
    batch_of = {record.offset: batch for record, batch in history.records()}
    for offset in subject.read_committed(subject.log.log_start_offset):
        outcome = outcomes.get(batch_of[offset].base_offset) if offset in batch_of else None
        if outcome is None or not outcome.committed:
            raise Violation("I23", f"offset {offset} was served at read_committed; its transaction did not commit")


def _check_times(subject: Subject, _: History) -> None:
    seen = subject.look()
    for timestamp in sorted({batch.max_timestamp for batch in seen.batches})[:5]:
        try:
            found = subject.partition.find_time(timestamp)
        except CorruptBatch:
            continue
        check_time(seen, timestamp, found and (found.offset, found.timestamp))
