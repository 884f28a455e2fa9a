"""Fetched bytes to records.

Rule 1: records before the position are dropped: a broker sends whole batches, and the position may lie inside one.
Rule 2: control records are never given out. With isolation, neither are records of aborted transactions: the broker
        names their producers and first offsets, and the marker in the log ends each (KIP-98).
Rule 3: the position after a batch is the batch's, not its last record's: compaction and aborts leave no trace else.
Rule 4: a damaged batch is reported with the offsets it takes; good batches before it are given out first.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.kernel import Buffer, ControlType, CorruptBatch, Record, read_control, read_header, read_records, scan


class Aborted(NamedTuple):
    """An aborted transaction that begins in, or reaches into, what was fetched."""

    first_offset: int
    producer_id: int


class Damage(NamedTuple):
    """A batch that cannot be read. `next_offset` is the first one after it, as far as can be told."""

    offset: int
    next_offset: int
    reason: str


@dataclass(slots=True)
class Intake:
    next_offset: int
    records: list[Record] = field(default_factory=list)
    damage: Damage | None = None
    needed: int = 0  # Size of the first batch, when that is larger than all that was fetched.


def take_in(data: Buffer, position: int, aborted: Iterable[Aborted] = ()) -> Intake:
    """The records of a partition's answer from `position` on."""
    intake = Intake(position)
    found = scan(data)
    filtering = _AbortFilter(aborted)
    at = 0
    for header in found.headers:
        try:
            if header.next_offset > position and filtering.lets_pass(data, at):
                records = read_records(data, header, at)
                intake.records += records if header.base_offset >= position else _from(records, position)
        except CorruptBatch as error:
            intake.damage = Damage(intake.next_offset, max(header.next_offset, intake.next_offset + 1), error.text)
            return intake
        intake.next_offset = max(intake.next_offset, header.next_offset)
        at += header.size
    if found.fault is not None:
        intake.damage = Damage(intake.next_offset, _after(data, at, intake.next_offset), found.fault)
    elif not found.headers:
        intake.needed = found.needed
    return intake


def _from(records: list[Record], position: int) -> list[Record]:
    return [record for record in records if record.offset >= position]


def _after(data: Buffer, at: int, position: int) -> int:
    """Where the log goes on after a damaged batch: the header's word, if it makes sense."""
    try:
        header = read_header(data, at)
    except CorruptBatch:
        return position + 1
    plausible = position <= header.base_offset + header.last_offset_delta and header.last_offset_delta >= 0
    return header.next_offset if plausible else position + 1


class _AbortFilter:
    """Which batches belong to aborted transactions, walking the log in order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = deque(sorted(aborted))
        self._open: set[int] = set()

    def lets_pass(self, data: Buffer, at: int) -> bool:
        header = read_header(data, at)
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._open.add(self._to_come.popleft().producer_id)
        if header.is_control:
            if header.producer_id in self._open and read_control(data, at)[0] is ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)
