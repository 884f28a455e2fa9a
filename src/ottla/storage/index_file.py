"""A sorted index on disk: fixed-size entries, the newest ones still in memory.

Rule 1: entries reach the file a page at a time, and all of them before a sync. Who crashes rebuilds the index of the
        segment anyway, so nothing is lost by waiting.
Rule 2: the file is open only while it is read or written often: of a log with little in it, all entries are in memory.
Rule 3: a look-up halves the file down to one page and reads that: its cost hardly grows with the file. Who reads in
        order finds it in the page of the look-up before, or in the next one.
"""

from collections.abc import Iterable
from struct import Struct

from ottla.core.log.indexes import count_at_most
from ottla.io.ports import Buffer, Disk, File
from ottla.storage.atomic import write_whole

_PAGE = 4096


class IndexFile:
    def __init__(self, disk: Disk, path: str, entry: Struct, entries: int) -> None:
        """`entries` is how many the file holds."""
        self._disk = disk
        self._path = path
        self._entry = entry
        self._size = entry.size
        self._on_disk = entries
        self._tail = bytearray()
        self._page_entries = _PAGE // entry.size
        self._last_page = 0
        """Where the page begins in which the last look-up ended."""
        self._kept = b""
        """The entries of that page, as long as the file is open: they do not change, but others may follow."""
        self._file: File | None = None
        self._unsynced = False
        """Something was done to the file since it was last synced."""

    def __len__(self) -> int:
        return self._on_disk + len(self._tail) // self._entry.size

    def extend(self, entries: Iterable[tuple[int, ...]]) -> None:
        pack = self._entry.pack
        self.add(b"".join([pack(*fields) for fields in entries]))

    def add(self, packed: Buffer) -> None:
        self._tail += packed
        if len(self._tail) >= _PAGE:
            self.write_out()

    def at(self, number: int) -> tuple[int, ...]:
        return self._entry.unpack(self._read(number, 1))

    def last(self) -> tuple[int, ...] | None:
        return self.at(len(self) - 1) if len(self) else None

    def count_at_most(self, column: int, value: int) -> int:
        """How many entries have `column` <= value."""
        first, entries = self._page_for(column, value)
        return first + count_at_most(entries, self._entry, column, value)

    def floor(self, value: int, column: int = 0) -> tuple[int, ...] | None:
        """The last entry whose `column`, the first one if none is named, is at most `value`."""
        _, entries = self._page_for(column, value)
        count = count_at_most(entries, self._entry, column, value)
        return self._entry.unpack_from(entries, (count - 1) * self._entry.size) if count else None

    def _page_for(self, column: int, value: int) -> tuple[int, Buffer]:
        """The packed entries among which the last one with `column` <= value is, if any is, and the first's number."""
        if self._tail and self._entry.unpack_from(self._tail)[column] <= value:
            return self._on_disk, self._tail
        kept = self._kept
        if kept and self._entry.unpack_from(kept)[column] <= value:
            if value < self._entry.unpack_from(kept, -self._size)[column]:
                return self._last_page, kept
            # Who goes on finds it in the next page, or before it.
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
        """Have the file there, if only empty; it is not kept open before there is something to write."""
        self._unsynced = True
        self._opened()
        self.release()

    def clear(self) -> None:
        """Forget all entries; the file is made when there are new ones to keep, or when the segment is closed."""
        self._tail, self._kept = bytearray(), b""
        self._on_disk = 0
        if self._file is not None or self._disk.exists(self._path):
            self._unsynced = True
            self._opened().truncate(0)

    def replace(self, entries: bytes) -> None:
        """Have these packed entries and no others, durably: a crash leaves the old ones or the new ones."""
        self.release()
        write_whole(self._disk, self._path, entries)
        self._tail = bytearray()
        self._on_disk = len(entries) // self._size
        self._unsynced = False

    def keep(self, entries: int) -> None:
        """Forget all but the first `entries`."""
        self._kept = b""
        if entries < self._on_disk:
            self._tail = bytearray()
            self._on_disk = entries
            self._unsynced = True
            self._opened().truncate(entries * self._entry.size)
        else:
            del self._tail[(entries - self._on_disk) * self._entry.size :]

    def write_out(self) -> None:
        """Bring the entries in memory to the file (and make the file, if there were none yet)."""
        self._unsynced = True
        file = self._opened()
        if self._tail:
            file.write(self._on_disk * self._entry.size, [self._tail])
            self._on_disk += len(self._tail) // self._entry.size
            self._tail = bytearray()

    def sync(self) -> None:
        """Make durable what was written. The file is not made anew, for it may be out of use."""
        if self._tail:
            self.write_out()
        if self._unsynced:
            self._unsynced = False  # First, because what is written meanwhile counts.
            self._opened(create=False).sync()

    def release(self) -> None:
        """Close the file until it is needed again."""
        self._kept = b""
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """The file goes out of use: nobody cares for what is not synced."""
        self._unsynced = False
        self.release()

    def _opened(self, *, create: bool = True) -> File:
        """Who only reads makes no file: a segment that was just taken out of use would leave an empty one."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=create)
        return self._file

    def _read(self, first: int, count: int) -> bytes:
        """`count` packed entries from number `first` on."""
        size = self._entry.size
        from_disk = max(min(self._on_disk - first, count), 0)
        data = self._opened(create=False).read(first * size, from_disk * size) if from_disk else b""
        if len(data) < from_disk * size:
            raise OSError(f"{self._path} is shorter than its {self._on_disk} entries")
        if from_disk < count:
            start = max(first - self._on_disk, 0) * size
            data += bytes(self._tail[start : start + (count - from_disk) * size])
        return data
