"""The invariants of RELIABILITY.md that one log can break, each checked against a `LogHistory`.

Rule 1: a checker only reads. It gets what a client saw (`Seen`) and never queries or repairs the log.
Rule 2: a finding is a `Violation` that names the invariant, the offset and the two values that disagree.
Rule 3: a checker that cannot be sure reports nothing: any effect of an interrupted operation is allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.sim.log.history import BatchOutcome, Cleaning, LogHistory, ProducerHistory
from ottla.sim.played import Violation
from ottla.sim.records import DecodedBatch, DecodedRecord


@dataclass(frozen=True, slots=True)
class SeenProducer:
    epoch: int
    last_sequence: int
    txn_first_offset: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A log as clients and operators see it: offsets, batches, producers, leader epochs."""

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    batches: tuple[DecodedBatch, ...]
    producers: Mapping[int, SeenProducer]
    epochs: tuple[tuple[int, int], ...] = ()


def check_live(history: LogHistory, seen: Seen) -> None:
    """A log that was not interrupted holds exactly what was appended, minus what its policy removes."""
    if seen.end_offset != history.end_offset:
        raise Violation("I1", f"the log ends at {seen.end_offset}; what was accepted ends at {history.end_offset}")
    if not history.may_start_at(seen.start_offset):
        raise Violation(
            "I1", f"the log starts at {seen.start_offset}: retention was not due beyond {history.start_offset}"
        )
    check_contents(history, seen)
    check_watermarks(history, seen)
    check_producers(history, seen)
    check_epochs(history, seen)


def check_recovered(history: LogHistory, seen: Seen) -> None:
    """After a crash everything durable is there, and a prefix of the rest. The history then adopts what was found."""
    if history.restarting:
        # A restart was interrupted: removed segments may reappear until the removal is durable. The removal is
        # repeated.
        check_contents(history, seen)
        return
    _check_extent(history, seen)
    lost_from = history.durable_end
    history.found(seen.end_offset, seen.start_offset)
    check_contents(history, seen)
    check_watermarks(history, seen)
    check_producers(history, seen, lost_from)
    check_epochs(history, seen)


def _check_extent(history: LogHistory, seen: Seen) -> None:
    """Check where the log begins and ends after a crash."""
    durable_end = history.durable_end
    if history.truncating_to is not None:
        durable_end = min(durable_end, history.truncating_to)
    if seen.end_offset < durable_end:
        raise Violation("I1", f"recovered up to {seen.end_offset}; everything before {durable_end} was durable")
    longest = history.end_offset if history.unanswered is None else history.unanswered.last_offset + 1
    if seen.end_offset > longest:
        raise Violation("I2", f"recovered up to {seen.end_offset}; nothing was ever written after {longest}")
    if not history.may_start_at(seen.start_offset):
        first = history.start_offset
        raise Violation("I1", f"recovered from {seen.start_offset}; {first} was the first one not removed")


# I1, I2, I20


def check_contents(history: LogHistory, seen: Seen) -> None:
    found = _by_offset(seen)
    expected = {
        record.offset: (record, batch)
        for record, batch in history.records()
        if seen.start_offset <= record.offset < seen.end_offset
    }
    for offset, (record, batch) in found.items():
        if offset not in expected:
            raise Violation("I2", f"offset {offset} holds {record}, which was never written there")
        _check_same_record(expected[offset], (record, batch))
    missing = {offset: pair for offset, pair in expected.items() if offset not in found}
    if missing:
        _check_removed(history, missing, found)


def _by_offset(seen: Seen) -> dict[int, tuple[DecodedRecord, DecodedBatch]]:
    found: dict[int, tuple[DecodedRecord, DecodedBatch]] = {}
    following = 0
    for batch in seen.batches:
        if batch.base_offset < following:
            raise Violation("I2", f"a batch from {batch.base_offset} follows one that ends at {following - 1}")
        for record in batch.records:
            if not following <= record.offset <= batch.last_offset:
                raise Violation("I2", f"record {record.offset} stands in the batch up to {batch.last_offset}")
            following = record.offset + 1
            # A log start inside a batch hides the records before it, but the batch is returned whole.
            if record.offset >= seen.start_offset:
                found[record.offset] = (record, batch)
        following = batch.last_offset + 1
    return found


def _check_same_record(expected: tuple[DecodedRecord, DecodedBatch], found: tuple[DecodedRecord, DecodedBatch]) -> None:
    if expected[0] != found[0]:
        raise Violation("I2", f"offset {expected[0].offset} was {expected[0]} and reads {found[0]}")
    sent, stored = _identity(expected[1]), _identity(found[1])
    if sent != stored:
        raise Violation("I2", f"the batch of offset {expected[0].offset} was {sent} and reads {stored}")


def _identity(batch: DecodedBatch) -> tuple[object, ...]:
    """The fields that rewriting a batch must not change: leader epoch, producer, sequence of the first offset, kind."""
    sequence = batch.base_sequence if batch.base_sequence < 0 else batch.base_sequence - batch.base_offset
    kind = (batch.is_transactional, batch.is_control)
    return batch.leader_epoch, batch.producer_id, batch.producer_epoch, sequence, *kind


def _check_removed(
    history: LogHistory,
    missing: Mapping[int, tuple[DecodedRecord, DecodedBatch]],
    found: Mapping[int, tuple[DecodedRecord, DecodedBatch]],
) -> None:
    """Every missing record must be one that the cleaner may remove; then fold(cleaned) = fold(original)."""
    outcomes = history.outcomes()
    limit = max((run.limit for run in history.cleanings), default=0) if history.policy.compact else 0
    newest = _newest_committed(history, outcomes, limit)
    for offset, (record, batch) in missing.items():
        if offset >= limit:
            raise Violation("I1", f"offset {offset} is gone; nothing was allowed to remove {record}")
        if batch.is_control:
            _check_marker_removed(history, batch, outcomes, found)
            continue
        outcome = outcomes.get(batch.base_offset)
        if outcome is None:
            raise Violation("I20", f"offset {offset} was removed while its transaction is open")
        if not outcome.committed:
            continue
        last = newest[record.key]
        if last.offset > offset:
            continue
        if record.value is not None:
            raise Violation("I20", f"offset {offset} was removed though it is the last with key {record.key!r}")
        if not _outlived(offset, history.cleanings, history.policy.delete_retention_ms):
            raise Violation("I20", f"the tombstone at offset {offset} was removed before delete.retention.ms")


def _newest_committed(
    history: LogHistory, outcomes: Mapping[int, BatchOutcome], limit: int
) -> dict[bytes | None, DecodedRecord]:
    newest = {}
    for record, batch in history.records():
        outcome = outcomes.get(batch.base_offset)
        if record.offset < limit and outcome is not None and outcome.committed and not batch.is_control:
            newest[record.key] = record
    return newest


def _check_marker_removed(
    history: LogHistory,
    marker: DecodedBatch,
    outcomes: Mapping[int, BatchOutcome],
    found: Mapping[int, tuple[DecodedRecord, DecodedBatch]],
) -> None:
    for record, batch in found.values():
        outcome = outcomes.get(batch.base_offset)
        if outcome is not None and outcome.marker_offset == marker.base_offset:
            raise Violation("I20", f"the marker at {marker.base_offset} is gone, its record at {record.offset} is not")
    if not _outlived(marker.base_offset, history.cleanings, history.policy.delete_retention_ms):
        raise Violation("I20", f"the marker at {marker.base_offset} was removed before delete.retention.ms")


def _outlived(offset: int, cleanings: Sequence[Cleaning], delete_retention_ms: int) -> bool:
    """Whether one cleaning covered the offset, and a later one came after the delete retention."""
    met = [run.at_ms for run in cleanings if run.limit > offset]
    return any(second >= first + delete_retention_ms for index, first in enumerate(met) for second in met[index + 1 :])


# I14


def check_watermarks(history: LogHistory, seen: Seen) -> None:
    if not seen.start_offset <= seen.last_stable_offset <= seen.high_watermark <= seen.end_offset:
        raise Violation(
            "I14",
            f"start {seen.start_offset} <= last stable {seen.last_stable_offset} <= watermark {seen.high_watermark} "
            f"<= end {seen.end_offset} does not hold",
        )
    present = {record.offset for batch in seen.batches for record in batch.records}
    expected = max(history.last_stable_offset(seen.high_watermark, present), seen.start_offset)
    if seen.last_stable_offset > expected:
        raise Violation(
            "I14", f"last stable offset {seen.last_stable_offset} passes the open transaction at {expected}"
        )


def check_watermark_kept(before: int, after: int) -> None:
    if after < before:
        raise Violation("I14", f"the high watermark went from {before} back to {after} within one leader epoch")


def check_bounded(batches: Iterable[DecodedBatch], bound: int, bound_name: str) -> None:
    for batch in batches:
        if batch.last_offset >= bound:
            raise Violation("I14", f"offset {batch.last_offset} was served; the {bound_name} is {bound}")


def check_committed(
    history: LogHistory, offsets: Sequence[int], first: int, last_stable_offset: int, seen: Seen
) -> None:
    """A consumer at read_committed got `offsets` from `first` on: no aborted record, and every committed one."""
    outcomes = history.outcomes()
    visible = {
        record.offset
        for batch in seen.batches
        for record in batch.records
        if (outcome := outcomes.get(batch.base_offset)) is not None
        and outcome.committed
        and first <= record.offset < last_stable_offset
    }
    for offset in offsets:
        if offset not in visible:
            raise Violation("I4", f"offset {offset} was served at read_committed; its transaction was not committed")
    for offset in sorted(visible - set(offsets)):
        raise Violation("I4", f"offset {offset} is committed below {last_stable_offset}, yet was not served")


# I19


def check_producers(history: LogHistory, seen: Seen, lost_from: int | None = None) -> None:
    """Compare the producer state of the log with the history. A producer that has expired may be known again when the
    log is read again, so both are allowed then."""
    expected, of_all = history.producers(), history.producers(remember_all=True)
    for producer_id, state in expected.items():
        found = seen.producers.get(producer_id)
        if found is None:
            nothing_left = not seen.batches and state.last_offset < seen.start_offset
            if not nothing_left and not history.may_forget(state, seen.start_offset, lost_from):
                raise Violation("I19", f"producer {producer_id} is forgotten; the log says {state}")
            history.forgotten[producer_id] = state.last_offset + 1
        elif not any(_agree(found, expected, seen.start_offset) for expected in (state, of_all[producer_id])):
            # A crash may have removed records before the log start, and with them the state of older producers.
            left = history.producers(since=seen.start_offset).get(producer_id)
            may_be_lost = lost_from is not None and lost_from < seen.start_offset
            if not may_be_lost or left is None or not _agree(found, left, seen.start_offset):
                raise Violation("I19", f"producer {producer_id} is {found}; the log says {state}")
            history.forgotten[producer_id] = seen.start_offset
    for producer_id in seen.producers:
        if producer_id not in of_all:
            raise Violation("I19", f"producer {producer_id} is known; nothing in the log is of it")


def _agree(found: SeenProducer, state: ProducerHistory, start_offset: int) -> bool:
    """Whether the state of a producer equals the expected one. Its last sequence and the start of its transaction may
    differ if retention has removed the records."""
    if found.epoch != state.epoch or (found.txn_first_offset is None) != (state.txn_first_offset is None):
        return False
    began, expected = found.txn_first_offset, state.txn_first_offset
    if (
        began is not None
        and expected is not None
        and began != expected
        and not (expected < start_offset and expected < began)
    ):
        return False
    return found.last_sequence == state.last_sequence or state.last_offset < start_offset


def check_epochs(history: LogHistory, seen: Seen) -> None:
    """Check that the epoch cache names the epoch that wrote each offset: followers truncate by it."""
    for batch in history.batches:
        if batch.base_offset < seen.start_offset:
            continue
        named = max((epoch for epoch, start in seen.epochs if start <= batch.base_offset), default=-1)
        if named != batch.leader_epoch:
            raise Violation(
                "I15", f"offset {batch.base_offset} is of epoch {batch.leader_epoch}; the cache says {named}"
            )


# I22


def check_same(first: Seen, second: Seen, what: str, *, compacted: bool = False) -> None:
    """Check that two recoveries result in the same log. In a compacted log the last stable offset may differ: it
    depends on the snapshot whether a transaction without remaining records counts, and no reader sees that."""
    for name in Seen.__slots__:
        if compacted and name == "last_stable_offset":
            continue
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise Violation("I22", f"{what}: {name} was {_short(one)}, then {_short(other)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:150]} ... {text[-150:]}"


# Look-up by time.


def expected_for_time(seen: Seen, timestamp: int) -> DecodedRecord | None:
    """The first record, by offset, with at least this timestamp; markers count as records."""
    for batch in seen.batches:
        for record in batch.records:
            if record.offset >= seen.start_offset and record.timestamp >= timestamp:
                return record
    return None


def check_time(seen: Seen, timestamp: int, answer: tuple[int, int] | None) -> None:
    """Check a look-up by time. `answer` is the offset and timestamp from ListOffsets."""
    record = expected_for_time(seen, timestamp)
    expected = None if record is None else (record.offset, record.timestamp)
    if answer != expected:
        raise Violation("I1", f"the first record from {timestamp} on is {expected}; the log says {answer}")
