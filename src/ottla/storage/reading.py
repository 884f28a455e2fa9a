"""Read a log from an offset: the file slice that answers a Fetch.

Rule 1: a reader at the log end finds its batch in memory (`recent`) and gets the same slice as the previous reader with
        the same request, so that many readers at the end cost one look-up and one read.
Rule 2: a reader that catches up continues where the previous slice was cut, mostly inside a batch. The header of that
        batch is read to tell whether the slice is in the page cache (`is_warm`), and remembered: the next look-up needs
        no index.
Rule 3: remembered batches are dropped before a truncation, because others may take their place.
"""

from ottla import kernel
from ottla.core.log import files
from ottla.core.log.files import file_name
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.storage.batches import find_batch
from ottla.storage.look_ups import LookUps
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.recent import RecentBatches
from ottla.storage.segment_files import BatchFound
from ottla.storage.slices import SHARED_MAX, Slice

_CUTS_REMEMBERED = 16
_WARM_SPAN = 1 << 16
"""Within this distance, two positions of a file are most likely both cached or both not."""


class LogReader:
    """The reads of one log."""

    def __init__(self, log: LogState, here: PartitionFiles, look_ups: LookUps, recent: RecentBatches) -> None:
        self._log = log
        self._here = here
        self._look_ups = look_ups
        self._recent = recent
        self._cuts: dict[int, tuple[Segment, BatchFound]] = {}
        """Batches in which slices were cut, with their segments, by base offset."""

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, whole_batch: bool) -> Slice:
        """See `PartitionLog.read`; the offset is in the log and below `upper_offset`."""
        found, index = self._where_cut(offset)
        asked = offset, max_bytes, upper_offset, whole_batch
        if found is None:
            shared = self._recent.slice_for(asked)
            if shared is not None:
                return shared
            found, index = self._find(offset)
            if found is None:
                return Slice(None, 0, 0, offset)
        available = self._end_position(index, upper_offset) - found.position
        size = found.header.size
        wanted = max(max_bytes, size) if whole_batch else max_bytes
        length = min(wanted, available) if wanted >= size else 0
        segments = self._log.segments
        part = Slice(self._here.of(segments[index]).log, found.position, length, found.header.base_offset)
        if length <= SHARED_MAX and index == len(segments) - 1:
            self._recent.share(asked, part)
        return part

    def find_readable(self, offset: int) -> int:
        """See `PartitionLog.find_readable`."""
        segments, end_offset = list(self._log.segments), self._log.end_offset
        for segment in segments[self._log.segment_at(offset) :]:
            path = f"{self._here.path}/{file_name(segment.base_offset, files.LOG)}"
            try:
                file = self._here.disk.open(path, writable=False)
            except FileNotFoundError:
                continue  # Retention removed it meanwhile.
            try:
                position = find_batch(file, 0, segment.size, offset)
                if position is not None:
                    return kernel.read_header(file.read(position, kernel.HEADER_SIZE)).base_offset
            finally:
                file.close()
        return end_offset

    def _where_cut(self, offset: int) -> tuple[BatchFound | None, int]:
        """The batch that begins at `offset` and its segment's index, if a slice was cut in that batch."""
        cut = self._cuts.get(offset)
        if cut is not None:
            index = self._log.segment_at(offset)
            if cut[0] is self._log.segments[index]:
                return cut[1], index
        return None, -1

    def _find(self, offset: int) -> tuple[BatchFound | None, int]:
        """The first batch whose last offset is at least `offset`, and the index of its segment."""
        segments = self._log.segments
        found = self._recent.beginning_at(offset)
        if found is not None:
            return found, len(segments) - 1
        for index in range(self._log.segment_at(offset), len(segments)):
            found = self._look_ups.locate(segments[index], offset)
            if found is not None:
                return found, index
            # Compaction left nothing at or after the offset.
        return None, -1

    def _end_position(self, index: int, upper_offset: int) -> int:
        """The position where the batches below `upper_offset` end in a segment."""
        segment = self._log.segments[index]
        if upper_offset >= self._log.end_of(index):
            return segment.size
        found = self._recent.beginning_at(upper_offset)
        if found is None or index < len(self._log.segments) - 1:
            found = self._look_ups.locate(segment, upper_offset)
        return segment.size if found is None else found.position

    def is_warm(self, part: Slice) -> bool:
        """Whether a slice just read can be sent without waiting for the disk, judged by its end: the header at its
        beginning was just read."""
        if part.file is None:
            return True
        segment = self._log.segments[self._log.segment_at(part.first_offset)]
        end = part.position + part.length
        position, header = self._here.of(segment).last_begun_before(end)
        if position is None:
            return False
        if header is not None and position + header.size > end:
            if len(self._cuts) >= _CUTS_REMEMBERED:
                del self._cuts[next(iter(self._cuts))]
            self._cuts[header.base_offset] = segment, BatchFound(position, header)
        return end - position <= _WARM_SPAN or part.file.read_warm(end - 1, 1) is not None

    def forget(self) -> None:
        """Called before a truncation (Rule 3)."""
        self._recent.clear()
        self._cuts.clear()
