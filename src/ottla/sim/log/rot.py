"""After bits flipped at rest (I23): an error or a repair is allowed, wrong bytes are not."""

from ottla.kernel import CorruptBatch
from ottla.sim.log.history import LogHistory
from ottla.sim.log.subject import Subject
from ottla.sim.played import Violation
from ottla.sim.records import BadBatch, DecodedBatch
from ottla.wire.errors import Refused


def check_rotten(subject: Subject, history: LogHistory) -> str:
    """Read everything; whatever is returned must be correct. Returns a summary for the transcript."""
    if subject.log.end_offset != history.end_offset:
        raise Violation("I23", f"opened without complaint up to {subject.log.end_offset} of {history.end_offset}")
    results = []
    for check in (_check_records, _check_committed, _check_times):
        try:
            check(subject, history)
            results.append("right")
        except (BadBatch, Refused) as error:
            results.append(f"{type(error).__name__}: {error}")
    return "; ".join(results)


def _check_records(subject: Subject, history: LogHistory) -> None:
    served = _read(subject, subject.log.log_start_offset, subject.log.end_offset)
    _check_right(served, history)
    found = {record.offset for batch in served for record in batch.records}
    start = subject.log.log_start_offset
    missing = [r.offset for r, _ in history.records() if r.offset >= start and r.offset not in found]
    if missing and not history.policy.compact:
        raise Violation("I23", f"offset {missing[0]} was left out without an error")


def _read(subject: Subject, offset: int, upper_offset: int) -> list[DecodedBatch]:
    return list(subject.read_all(offset, upper_offset, max_bytes=2_000))


def _check_right(served: list[DecodedBatch], history: LogHistory) -> None:
    expected = {record.offset: record for record, _ in history.records()}
    for batch in served:
        for record in batch.records:
            if expected.get(record.offset) != record:
                raise Violation("I23", f"offset {record.offset} was {expected.get(record.offset)}, served {record}")


def _check_committed(subject: Subject, history: LogHistory) -> None:
    """Of the records that are there, exactly those of committed transactions are returned."""
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


def _check_times(subject: Subject, history: LogHistory) -> None:
    """A time index has no checksum: an entry may point to a later batch of the same time. So the result must be a
    record that is new enough; whether an earlier one fits cannot be checked."""
    times = {record.offset: record.timestamp for record, _ in history.records()}
    for timestamp in sorted({batch.max_timestamp for batch in history.batches})[:5]:
        try:
            found = subject.partition.find_time(timestamp)
        except CorruptBatch:
            continue
        if found is not None and not timestamp <= found.timestamp == times.get(found.offset):
            true = times.get(found.offset)
            raise Violation("I23", f"the first record from {timestamp} on is {found}, whose time is {true}")
