"""A sorted index on disk: fixed-size entries, the newest of them still in memory.

Rule 1: entries are written to the file a page at a time, and all of them before a sync. After a crash the index of the
        segment is rebuilt anyway, so the delay loses nothing.
Rule 2: the file is open only while it is used often. The entries of a small log are all in memory.
Rule 3: a look-up bisects the file down to one page and reads that page, so its cost hardly grows with the file. A
        sequential reader finds its entry in the page of the previous look-up or in the next page.
"""

from functools import partial
from struct import Struct

from ottla.core.log.indexes import count_at_most
from ottla.io.ports import Buffer, Disk, File
from ottla.storage.atomic import is_out_of_files, write_whole
from ottla.storage.syncing import Changes, Sync
from ottla.wire.errors import Error, Refused

_PAGE = 4096


class OutOfUse(Refused):
    """The log was deleted, or the segment is gone; the path may belong to another log now."""

    def __init__(self, path: str) -> None:
        super().__init__(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{path} is not in use any more")


class IndexFile:
    """One offset or time index file."""

    def __init__(self, disk: Disk, path: str, entry: Struct, entries: int) -> None:
        """`entries` is the number of entries in the file."""
        self._disk = disk
        self._path = path
        self._entry = entry
        self._size = entry.size
        self._on_disk = entries
        self._tail = bytearray()
        self._page_entries = _PAGE // entry.size
        self._last_page = 0
        """The number of the first entry of the page in which the last look-up ended."""
        self._kept = b""
        """The entries of that page, while the file is open. They never change, but more may follow."""
        self._file: File | None = None
        self._closed = False
        self._changes = Changes()

    def __len__(self) -> int:
        return self._on_disk + len(self._tail) // self._entry.size

    def append(self, entry: tuple[int, ...]) -> None:
        self._tail += self._entry.pack(*entry)
        if len(self._tail) >= _PAGE:
            self._write_out_if_possible()

    def add(self, packed: Buffer) -> None:
        """Append packed entries."""
        self._tail += packed
        if len(self._tail) >= _PAGE:
            self._write_out_if_possible()

    def _write_out_if_possible(self) -> None:
        try:
            self.write_out()
        except OSError as error:
            if not is_out_of_files(error):
                raise
            # Too few descriptors: the entries stay in memory until the file can be opened.

    def at(self, number: int) -> tuple[int, ...]:
        return self._entry.unpack(self._read(number, 1))

    def last(self) -> tuple[int, ...] | None:
        return self.at(len(self) - 1) if len(self) else None

    def count_at_most(self, column: int, value: int) -> int:
        """The number of entries with `column` <= value."""
        first, entries = self._page_for(column, value)
        return first + count_at_most(entries, self._entry, column, value)

    def floor(self, value: int, column: int = 0) -> tuple[int, ...] | None:
        """The last entry whose `column` (default: the first) is at most `value`."""
        _, entries = self._page_for(column, value)
        count = count_at_most(entries, self._entry, column, value)
        return self._entry.unpack_from(entries, (count - 1) * self._entry.size) if count else None

    def _page_for(self, column: int, value: int) -> tuple[int, Buffer]:
        """The page, as packed entries, that contains the last entry with `column` <= value if there is one; and the
        number of its first entry."""
        if self._tail and self._entry.unpack_from(self._tail)[column] <= value:
            return self._on_disk, self._tail
        kept = self._kept
        if kept and self._entry.unpack_from(kept)[column] <= value:
            if value < self._entry.unpack_from(kept, -self._size)[column]:
                return self._last_page, kept
            # A sequential reader finds the entry before the end of the next page.
            after = self._last_page + len(kept) // self._size
            following = self._read(after, max(min(self._page_entries, self._on_disk - after), 0))
            if not following or value < self._entry.unpack_from(following)[column]:
                return self._last_page, kept
            self._last_page, self._kept = after, following
            if value < self._entry.unpack_from(following, -self._size)[column]:
                return after, following
        low, high = 0, self._on_disk
        likely = [self._last_page, high - self._page_entries]
        while high - low > self._page_entries:
            middle = likely.pop() if likely else (low + high) // 2
            if not low < middle < high:
                continue
            if self.at(middle)[column] <= value:
                low = middle
            else:
                high = middle
        self._last_page, self._kept = low, self._read(low, high - low)
        return low, self._kept

    def make(self) -> None:
        """Create the file, empty, if it is missing. It is not kept open before there is something to write."""
        self._changes.note()
        self._opened()
        self.release()

    def clear(self) -> None:
        """Drop all entries. The file is created again when there are new entries, or when the segment is closed."""
        if self._file is not None or self._disk.exists(self._path):
            file = self._opened()
            self._changes.note()
            file.truncate(0)
        self._tail, self._kept = bytearray(), b""
        self._on_disk = 0

    def replace(self, entries: bytes) -> None:
        """Replace all entries by these packed ones, atomically and durably."""
        self.release()
        write_whole(self._disk, self._path, entries)
        self._tail = bytearray()
        self._on_disk = len(entries) // self._size
        self._changes.settle_all()

    def keep(self, entries: int) -> None:
        """Drop all but the first `entries`."""
        self._kept = b""
        if entries < self._on_disk:
            file = self._opened()
            self._changes.note()
            file.truncate(entries * self._entry.size)
            self._tail = bytearray()
            self._on_disk = entries
        else:
            del self._tail[(entries - self._on_disk) * self._entry.size :]

    def write_out(self) -> None:
        """Write the entries in memory to the file, creating it if necessary."""
        file = self._opened()
        self._changes.note()
        if self._tail:
            file.write(self._on_disk * self._entry.size, [self._tail])
            self._on_disk += len(self._tail) // self._entry.size
            self._tail = bytearray()

    @property
    def is_synced(self) -> bool:
        return not self._tail and not self._changes.are_unsynced

    def begin_sync(self) -> Sync | None:
        """A sync of the written entries; None if they are durable. The file is opened here, because by the time the
        sync runs the name may be gone or belong to another file."""
        if self._tail:
            self.write_out()
        if not self._changes.are_unsynced:
            return None
        return Sync(self._opened(create=False).sync, partial(self._changes.settle, self._changes.made))

    def release(self) -> None:
        """Close the file until it is needed again. A sync in progress holds its own reference, and the last one closes
        the file."""
        self._kept = b""
        self._file = None

    def close(self) -> None:
        """Take the file out of use. Unsynced entries do not matter any more."""
        self._closed = True
        self._changes.settle_all()
        opened = self._file
        self.release()
        if opened is not None:
            opened.close()

    def _opened(self, *, create: bool = True) -> File:
        """`create=False` for reading: otherwise a segment that was just removed would leave an empty file behind."""
        if self._file is None:
            if self._closed:
                raise OutOfUse(self._path)
            self._file = self._disk.open(self._path, create=create)
        return self._file

    def _read(self, first: int, count: int) -> bytes:
        """`count` packed entries from entry number `first` on."""
        size = self._entry.size
        from_disk = max(min(self._on_disk - first, count), 0)
        data = self._opened(create=False).read(first * size, from_disk * size) if from_disk else b""
        if len(data) < from_disk * size:
            raise OSError(f"{self._path} is shorter than its {self._on_disk} entries")
        if from_disk < count:
            start = max(first - self._on_disk, 0) * size
            data += bytes(self._tail[start : start + (count - from_disk) * size])
        return data
