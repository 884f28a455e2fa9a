"""Decodes fetched bytes to records.

Rule 1: records before the position are dropped: a broker sends whole batches, and the position may lie inside one.
Rule 2: control records are never returned. With isolation, neither are records of aborted transactions: the response
        names their producers and first offsets, and the marker in the log ends each (KIP-98).
Rule 3: the position after a batch follows from the batch, not from its last record: compaction and aborts may have
        removed the last records.
Rule 4: a damaged batch is reported with its offsets, after the good batches before it were returned.
Rule 5: one batch is unpacked at a time, when its first record is taken. None of its records is returned unless all are
        valid.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.kernel.batch import BatchHeader, Buffer, read_header
from ottla.kernel.control import ControlType
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.control import read_control
from ottla.kernel.reference.layout import check_claims, records_of
from ottla.kernel.reference.records import records_in
from ottla.kernel.reference.scan import scan
from ottla.kernel.values import Aborted, Damage, Record

UNLIMITED: Final = 2**63 - 1


class FetchedBatch(NamedTuple):
    """A batch with its records from the position on, at least one; `size` is the uncompressed size of all records."""

    header: BatchHeader
    size: int
    records: list[Record]


class FetchedBatches:
    """The batches of a partition's response that hold records to return.

    `next_offset` is the offset after the batches read so far; `damage` and `needed` say why the iteration ended.
    """

    def __init__(
        self, data: Buffer, position: int, aborted: Iterable[Aborted] = (), *, batch_bytes_max: int = UNLIMITED
    ) -> None:
        self.next_offset = position
        self.damage: Damage | None = None
        self.needed = 0  # Size of the first batch, if it is larger than all that was fetched.
        self.finished = False
        self._data = data
        self._position = position
        self._batch_bytes_max = batch_bytes_max
        self._filter = _AbortFilter(aborted)
        self._walk = self._batches()

    def next_batch(self) -> FetchedBatch | None:
        """The next batch; None at the end."""
        batch = next(self._walk, None)
        self.finished = self.finished or batch is None
        return batch

    def _batches(self) -> Iterator[FetchedBatch]:
        at = 0
        found = scan(self._data)
        for header in found.headers:
            try:
                batch = self._read(header, at)
            except CorruptBatch as error:
                self.damage = Damage(self.next_offset, _after(header, self.next_offset), error.text)
                return
            self.next_offset = max(self.next_offset, header.next_offset)
            at += header.size
            if batch is not None and batch.records:
                yield batch
        if found.fault is not None:
            self.damage = Damage(self.next_offset, self._after_fault(at), found.fault)
        elif not found.headers:
            self.needed = found.needed

    def _read(self, header: BatchHeader, at: int) -> FetchedBatch | None:
        if not self._passes(header, at):
            return None
        data = records_of(self._data, header, at)
        if len(data) > self._batch_bytes_max:
            most = self._batch_bytes_max
            raise CorruptBatch(f"the batch holds {len(data)} bytes of records; columns take {most} at most")
        records = records_in(data, header)
        if header.base_offset < self._position:
            records = [record for record in records if record.offset >= self._position]
        return FetchedBatch(header, len(data), records)

    def _passes(self, header: BatchHeader, at: int) -> bool:
        """Batches before the position are filtered too: their markers end transactions named in the response."""
        due = header.next_offset > self._position
        if due:
            check_claims(header)
        try:
            return self._filter.lets_pass(header, self._data, at) and due
        except CorruptBatch:
            if due:
                raise
            return False

    def _after_fault(self, at: int) -> int:
        try:
            return _after(read_header(self._data, at), self.next_offset)
        except CorruptBatch:
            return self.next_offset + 1


class RecordReader:
    """The records of a partition's response from `position` on, decoded as they are taken."""

    def __init__(self, data: Buffer, position: int, aborted: Iterable[Aborted] = ()) -> None:
        self._batches = FetchedBatches(data, position, aborted)
        self._records: deque[Record] = deque()
        self.next_offset = position
        """The offset after the records taken so far."""

    @property
    def damage(self) -> Damage | None:
        """The damaged batch after the last record; known once more records were requested than there are."""
        return self._batches.damage

    @property
    def needed(self) -> int:
        """Size of the first batch, if it is larger than all that was fetched; known as `damage` is."""
        return self._batches.needed

    def take(self, limit: int = UNLIMITED) -> list[Record]:
        """The next records, `limit` at most; fewer only at the end or before a damaged batch."""
        taken: list[Record] = []
        while len(taken) < limit and self._unpack():
            count = min(limit - len(taken), len(self._records))
            taken += [self._records.popleft() for _ in range(count)]
            self.next_offset = taken[-1].offset + 1
        if not self._records:
            self.next_offset = self._batches.next_offset
        return taken

    def _unpack(self) -> bool:
        """Unpack the next batch if necessary; returns whether there is a record to take."""
        if not self._records and (batch := self._batches.next_batch()) is not None:
            self._records.extend(batch.records)
        return bool(self._records)


def _after(header: BatchHeader, position: int) -> int:
    """The offset after a damaged batch: from its header, if that is plausible."""
    try:
        check_claims(header)
    except CorruptBatch:
        return position + 1
    sane = header.last_offset_delta >= 0 and position <= header.last_offset
    return header.next_offset if sane else position + 1


class _AbortFilter:
    """Tells which batches belong to aborted transactions, while the log is read in order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = deque(sorted(aborted))
        self._open: set[int] = set()

    def lets_pass(self, header: BatchHeader, data: Buffer, at: int) -> bool:
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._open.add(self._to_come.popleft().producer_id)
        if header.is_control:
            if header.producer_id in self._open and read_control(data, at)[0] is ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)
