"""The summary that a clean close left of a log's segments, asked where it lies.

It is halved on disk: the first look-up after an open costs the same whatever the number of segments. A block that was
read once is kept.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property

from ottla.core.log.log import Log
from ottla.core.log.summary import (
    BLOCK_SIZE,
    HEADER_SIZE,
    BadSummary,
    SummaryBlock,
    SummaryEntry,
    SummaryHeader,
    decode_header,
)
from ottla.io.ports import File


class SummaryFile:
    def __init__(self, file: File, log: Log) -> None:
        self._file = file
        self._blocks: dict[int, SummaryBlock] = {}
        self.header = _checked(decode_header(file.read(0, HEADER_SIZE), file.size()), log)

    @cached_property
    def active_base_offset(self) -> int:
        """Of the segment that was active; those before it were closed."""
        last = self._block(self.header.blocks - 1)
        return last.base_offset(len(last) - 1)

    @property
    def closed_max_timestamp(self) -> int | None:
        """The largest of all closed segments."""
        last = self._block(self.header.blocks - 1)
        if len(last) > 1:
            return last.running_max(len(last) - 2)
        return self._running_max_of(self.header.blocks - 2) if self.header.blocks > 1 else None

    def first_reaching(self, timestamp: int) -> int | None:
        """The base offset of the first closed segment that may have a record as new; None when none has."""
        number = bisect_left(range(self.header.blocks), timestamp, key=self._running_max_of)
        if number == self.header.blocks:
            return None
        block = self._block(number)
        base_offset = block.base_offset(bisect_left(range(len(block)), timestamp, key=block.running_max))
        return base_offset if base_offset < self.active_base_offset else None

    def of(self, base_offset: int) -> SummaryEntry | None:
        """What it says of one segment."""
        blocks = range(self.header.blocks)
        number = bisect_right(blocks, base_offset, key=lambda one: self._block(one).base_offset(0))
        if number == 0:
            return None
        block = self._block(number - 1)
        at = bisect_left(range(len(block)), base_offset, key=block.base_offset)
        return block[at] if at < len(block) and block.base_offset(at) == base_offset else None

    def _running_max_of(self, number: int) -> int:
        """The largest timestamp up to the end of a block."""
        block = self._block(number)
        return block.running_max(len(block) - 1)

    def __iter__(self) -> Iterator[SummaryEntry]:
        for number in range(self.header.blocks):
            yield from self._block(number)

    def _block(self, number: int) -> SummaryBlock:
        block = self._blocks.get(number)
        if block is None:
            position = HEADER_SIZE + number * BLOCK_SIZE
            block = self._blocks[number] = SummaryBlock(self._file.read(position, BLOCK_SIZE))
        return block


def _checked(header: SummaryHeader, log: Log) -> SummaryHeader:
    """Refuse what was written of another log than this one has become."""
    if header.end_offset > log.end_offset:
        raise BadSummary(f"it was written when the log ended at {header.end_offset}, now it ends at {log.end_offset}")
    epoch = log.epochs.epoch_at(header.end_offset - 1)
    if epoch != header.leader_epoch:
        raise BadSummary(f"offset {header.end_offset - 1} was of epoch {header.leader_epoch}, now it is of {epoch}")
    return header
