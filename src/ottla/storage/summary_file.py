"""Reads the summary of a log's segments that a clean close wrote.

The first look-up after an open reads the summary's index and one block, so its cost does not depend on the number of
segments. Blocks read are kept in memory.
"""

from collections.abc import Iterator
from functools import cached_property

from ottla.core.log.state import LogState
from ottla.core.log.summary import (
    BLOCK_SIZE,
    HEADER_SIZE,
    BadSummary,
    SummaryBlock,
    SummaryEntry,
    SummaryHeader,
    SummaryIndex,
    decode_header,
)
from ottla.io.ports import File


class SummaryFile:
    """An open summary."""

    def __init__(self, file: File, log: LogState) -> None:
        self._file = file
        self._blocks: dict[int, SummaryBlock] = {}
        self.header = _checked(decode_header(file.read(0, HEADER_SIZE), file.size()), log)

    @property
    def closed_max_timestamp(self) -> int | None:
        """The largest timestamp of all closed segments."""
        last = self._block(self.header.blocks - 1)
        if len(last) > 1:
            return last.running_max(len(last) - 2)
        return self._index.running_max(self.header.blocks - 2) if self.header.blocks > 1 else None

    def first_reaching(self, timestamp: int) -> int | None:
        """The base offset of the first closed segment that may have a record with at least `timestamp`; None if none
        has."""
        number = self._index.first_reaching(timestamp)
        if number == self.header.blocks:
            return None
        block = self._block(number)
        base_offset = block.base_offset(block.first_reaching(timestamp))
        return base_offset if base_offset < self.header.active_base_offset else None

    def of(self, base_offset: int) -> SummaryEntry | None:
        """The entry of the segment with this base offset, if there is one."""
        number = self._index.containing(base_offset)
        if number < 0:
            return None
        block = self._block(number)
        entry = block[block.containing(base_offset)]
        return entry if entry.base_offset == base_offset else None

    def __iter__(self) -> Iterator[SummaryEntry]:
        for number in range(self.header.blocks):
            yield from self._block(number)

    @cached_property
    def _index(self) -> SummaryIndex:
        return SummaryIndex(self._file.read(HEADER_SIZE, self.header.index_size))

    def _block(self, number: int) -> SummaryBlock:
        block = self._blocks.get(number)
        if block is None:
            position = self.header.block_position(number)
            block = self._blocks[number] = SummaryBlock(self._file.read(position, BLOCK_SIZE))
        return block


def _checked(header: SummaryHeader, log: LogState) -> SummaryHeader:
    """Raises BadSummary if the log was truncated since the summary was written."""
    if header.end_offset > log.end_offset:
        raise BadSummary(f"it was written when the log ended at {header.end_offset}, now it ends at {log.end_offset}")
    epoch = log.epochs.epoch_at(header.end_offset - 1)
    if epoch != header.leader_epoch:
        raise BadSummary(f"offset {header.end_offset - 1} was of epoch {header.leader_epoch}, now it is of {epoch}")
    return header
