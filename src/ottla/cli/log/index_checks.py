"""Checks the indexes of a segment against its log.

Each check gets the segment's batches in order and reads its index in parallel, so neither is ever whole in memory.

Rule 1: an offset entry names the last offset of the batch that begins at its position.
Rule 2: a time entry names an offset whose batch has its timestamp as largest, and no earlier batch has a larger one.
Rule 3: an aborted transaction's entry ends at the abort marker of its producer, and every aborted transaction in the
        log has an entry: a missing one would show aborted records to readers of committed data.
Rule 4: a few wrong entries are reported, then the rest of the index is skipped.
"""

from collections.abc import Iterator
from typing import Protocol

from ottla.cli.log.findings import REBUILD, Finding
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY, AbortedTxn
from ottla.core.log.producers import CompletedTxn
from ottla.kernel import NO_TIMESTAMP, BatchHeader, ControlType, EndTxnMarker
from ottla.storage.batches import BatchAt

NAMED_MAX = 5
Entries = Iterator[tuple[int, ...]]


class Check(Protocol):
    def on_batch(self, batch: BatchAt) -> Iterator[Finding]: ...

    def on_end(self) -> Iterator[Finding]: ...


class SortedIndexCheck:
    """The base of the checks of offset and time indexes: entries must rise, and the number of findings is limited."""

    entry_size: int

    def __init__(self, file: str, base_offset: int, entries: Entries) -> None:
        self._file = file
        self._base_offset = base_offset
        self._entries = entries
        self._number = -1
        self._before: tuple[int, ...] | None = None
        self._found = 0
        self._entry: tuple[int, ...] | None = None
        self._pending = list(self._advance())

    def _advance(self) -> Iterator[Finding]:
        """Take the next entry; stop checking the index if entries do not rise."""
        self._before = self._entry or self._before
        self._entry = next(self._entries, None)
        self._number += 1
        before, entry = self._before, self._entry
        if before and entry and not all(new > old for new, old in zip(entry, before, strict=True)):
            self._entry = None
            yield self._wrong(f"entry {entry} follows {before}: entries must rise")

    def _wrong(self, what: str) -> Finding:
        self._found += 1
        if self._found >= NAMED_MAX:
            self._entry = None
            what += "; further entries were not looked at"
        return Finding(self._file, what, REBUILD, self._number * self.entry_size)

    def on_end(self) -> Iterator[Finding]:
        yield from self._pending
        if self._entry is not None:
            yield self._wrong(f"entry {self._entry} points past the end of the log")


class OffsetIndexCheck(SortedIndexCheck):
    entry_size = OFFSET_ENTRY.size

    def on_batch(self, batch: BatchAt) -> Iterator[Finding]:
        yield from self._pending
        self._pending = []
        while self._entry is not None and self._entry[1] <= batch.position:
            offset, position = self._base_offset + self._entry[0], self._entry[1]
            if position < batch.position:
                yield self._wrong(f"offset {offset} is said to be at {position}, where no batch begins")
            elif offset != batch.header.last_offset:
                last = batch.header.last_offset
                yield self._wrong(f"offset {offset} is said to be at {position}, but the batch there ends at {last}")
            if self._entry is not None:
                yield from self._advance()


class TimeIndexCheck(SortedIndexCheck):
    entry_size = TIME_ENTRY.size

    def __init__(self, file: str, base_offset: int, entries: Entries) -> None:
        super().__init__(file, base_offset, entries)
        self._largest = NO_TIMESTAMP

    def on_batch(self, batch: BatchAt) -> Iterator[Finding]:
        yield from self._pending
        self._pending = []
        header = batch.header
        while self._entry is not None and self._base_offset + self._entry[1] <= header.last_offset:
            yield from self._compare(header, *self._entry)
            if self._entry is not None:
                yield from self._advance()
        self._largest = max(self._largest, header.max_timestamp)

    def _compare(self, header: BatchHeader, timestamp: int, relative: int) -> Iterator[Finding]:
        offset = self._base_offset + relative
        if offset < header.base_offset:
            yield self._wrong(f"time {timestamp} is said to be at offset {offset}, which is in no batch")
        elif timestamp != header.max_timestamp:
            yield self._wrong(
                f"time {timestamp} is said to be at offset {offset}, but the latest time of the batch there is "
                f"{header.max_timestamp}"
            )
        elif timestamp < self._largest:
            yield self._wrong(
                f"time {timestamp} at offset {offset} is said to be the latest so far, but {self._largest} came before"
            )


class TxnIndexCheck:
    def __init__(self, file: str, aborted: list[AbortedTxn]) -> None:
        self._file = file
        self._by_marker = {entry.last_offset: entry for entry in aborted}
        self._order = {entry.last_offset: number for number, entry in enumerate(aborted)}
        self._last_marker: dict[int, int] = {}

    def on_marker(self, header: BatchHeader, marker: EndTxnMarker, completed: CompletedTxn | None) -> Iterator[Finding]:
        entry = self._by_marker.pop(header.base_offset, None)
        previous_end = self._last_marker.get(header.producer_id, -1)
        self._last_marker[header.producer_id] = header.base_offset
        if entry is None:
            if completed is not None and completed.aborted:
                yield self._missing(completed)
            return
        if marker.control_type is not ControlType.ABORT or header.producer_id != entry.producer_id:
            yield self._wrong(
                entry,
                f"but offset {header.base_offset} is a {marker.control_type.name} of producer {header.producer_id}",
            )
        # Compaction may have removed the first batches. Batches of the producer's previous transaction are never part
        # of this one.
        elif completed is not None and not previous_end < entry.first_offset <= completed.first_offset:
            yield self._wrong(entry, f"but it began at offset {completed.first_offset}")

    def on_end(self) -> Iterator[Finding]:
        for entry in self._by_marker.values():
            yield self._wrong(entry, f"but no marker is at offset {entry.last_offset}")

    def _missing(self, completed: CompletedTxn) -> Finding:
        offsets = f"{completed.first_offset} to {completed.last_offset}"
        what = (
            f"producer {completed.producer_id} aborted offsets {offsets}, and no entry says so: readers of committed "
            f"records would see them"
        )
        return Finding(self._file, what, REBUILD)

    def _wrong(self, entry: AbortedTxn, why: str) -> Finding:
        what = (
            f"producer {entry.producer_id} is said to have aborted offsets {entry.first_offset} to {entry.last_offset}"
        )
        return Finding(self._file, f"{what}, {why}", REBUILD)
