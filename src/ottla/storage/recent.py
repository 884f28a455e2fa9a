"""Positions of the newest batches of a log.

Most consumers are at the log end and fetch the batch that was just appended. It is found here without the index while
it is among the last few of the active segment. Consumers that wait there together send the same request, and share one
slice.
"""

from collections import deque
from collections.abc import Sequence

from ottla.kernel import BatchHeader
from ottla.storage.segment_files import BatchFound
from ottla.storage.slices import Slice

_REMEMBERED = 32

Asked = tuple[int, int, int, bool]
"""A request: offset, max bytes, upper offset, whole_batch."""


class RecentBatches:
    """The newest batches of the active segment."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Sequence[BatchHeader], int]] = deque()
        """Appended batches that were not looked up yet: consecutive headers, and the position of the first."""
        self._noted_count = 0
        self._by_offset: dict[int, BatchFound] = {}
        self._offsets: deque[int] = deque()
        self._asked: Asked | None = None
        self._shared: Slice | None = None

    def note(self, headers: Sequence[BatchHeader], position: int) -> None:
        """Record batches written to the active segment, in order."""
        self._noted.append((headers, position))
        self._noted_count += len(headers)
        while self._noted_count - len(self._noted[0][0]) >= _REMEMBERED:
            self._noted_count -= len(self._noted.popleft()[0])

    def beginning_at(self, offset: int) -> BatchFound | None:
        """The batch in the active segment whose first offset is `offset`, if it is remembered."""
        while self._noted:
            self._remember(*self._noted.popleft())
        self._noted_count = 0
        return self._by_offset.get(offset)

    def _remember(self, headers: Sequence[BatchHeader], position: int) -> None:
        by_offset, offsets = self._by_offset, self._offsets
        for header in headers:
            if len(offsets) == _REMEMBERED:
                del by_offset[offsets.popleft()]
            offset = header.base_offset
            offsets.append(offset)
            # Equivalent to calling BatchFound, in half the time.
            by_offset[offset] = tuple.__new__(BatchFound, (position, header))
            position += header.size

    def slice_for(self, asked: Asked) -> Slice | None:
        """The slice shared by the previous reader, if its request was the same."""
        return self._shared if asked == self._asked else None

    def share(self, asked: Asked, found: Slice) -> None:
        """Remember a slice of the active segment. Its bytes never change; more only follow."""
        self._asked, self._shared = asked, found

    def clear(self) -> None:
        """Called when another segment becomes active, or this one is truncated."""
        self._asked = self._shared = None
        self._noted.clear()
        self._noted_count = 0
        self._by_offset.clear()
        self._offsets.clear()
