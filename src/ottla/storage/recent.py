"""Where the newest batches of a log stand.

Most readers stand at the end and ask for the batch that has just come. It is found here, without the index, as long as
it is among the last few of the active segment. Those who wait there together ask for the same, and get the same slice.
"""

from collections import deque
from collections.abc import Sequence

from ottla.kernel import BatchHeader
from ottla.storage.segment_files import Found
from ottla.storage.slices import Slice

_REMEMBERED = 32

Asked = tuple[int, int, int, bool]
"""Offset, at most so many bytes, upper offset, and whether the first batch has to come whole."""


class RecentBatches:
    def __init__(self) -> None:
        self._noted: deque[tuple[Sequence[BatchHeader], int]] = deque()
        """Of those that nobody has asked for yet, one after the other, and where the first stands."""
        self._noted_count = 0
        self._by_offset: dict[int, Found] = {}
        self._offsets: deque[int] = deque()
        self._asked: Asked | None = None
        self._shared: Slice | None = None

    def note(self, headers: Sequence[BatchHeader], position: int) -> None:
        """Batches were written to the active segment, one after the other."""
        self._noted.append((headers, position))
        self._noted_count += len(headers)
        while self._noted_count - len(self._noted[0][0]) >= _REMEMBERED:
            self._noted_count -= len(self._noted.popleft()[0])

    def beginning_at(self, offset: int) -> Found | None:
        """The batch whose first record has this offset, if it is remembered; it is in the active segment."""
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
            by_offset[offset] = tuple.__new__(Found, (position, header))  # As calling it, in half the time.
            position += header.size

    def slice_for(self, asked: Asked) -> Slice | None:
        """What was found for the one before, if it asked for the same."""
        return self._shared if asked == self._asked else None

    def share(self, asked: Asked, found: Slice) -> None:
        """A slice of the active segment was found: there nothing changes but that more follows."""
        self._asked, self._shared = asked, found

    def clear(self) -> None:
        """Another segment is active now, or this one was cut."""
        self._asked = self._shared = None
        self._noted.clear()
        self._noted_count = 0
        self._by_offset.clear()
        self._offsets.clear()
