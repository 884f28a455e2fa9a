"""A sorted index on disk: fixed-size entries, the newest ones still in memory.

Rule 1: entries reach the file a page at a time, and all of them before a sync. Who crashes rebuilds the index of the
        segment anyway, so nothing is lost by waiting.
Rule 2: the file is open only while it is read or written often: of a log with little in it, all entries are in memory.
Rule 3: a look-up halves the file down to one page and reads that: its cost hardly grows with the file. Who reads in
        order finds it in the page of the look-up before, or in the next one.
"""

from collections.abc import Iterable
from functools import partial
from struct import Struct

from ottla.core.log.indexes import count_at_most
from ottla.io.ports import Buffer, Disk, File
from ottla.storage.atomic import is_out_of_files, write_whole
from ottla.storage.syncing import Changes, Sync
from ottla.wire.errors import Error, Refused

_PAGE = 4096


class OutOfUse(Refused):
    """A log that was deleted, or a segment that is gone: another may have its path by now."""

    def __init__(self, path: str) -> None:
        super().__init__(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{path} is not in use any more")


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
        self._closed = False
        self._changes = Changes()

    def __len__(self) -> int:
        return self._on_disk + len(self._tail) // self._entry.size

    def extend(self, entries: Iterable[tuple[int, ...]]) -> None:
        pack = self._entry.pack
        self.add(b"".join([pack(*fields) for fields in entries]))

    def add(self, packed: Buffer) -> None:
        self._tail += packed
        if len(self._tail) >= _PAGE:
            try:
                self.write_out()
            except OSError as error:
                if not is_out_of_files(error):
                    raise
                # They wait in memory for a file that can be opened.

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
        self._changes.note()
        self._opened()
        self.release()

    def clear(self) -> None:
        """Forget all entries; the file is made when there are new ones to keep, or when the segment is closed."""
        if self._file is not None or self._disk.exists(self._path):
            file = self._opened()
            self._changes.note()
            file.truncate(0)
        self._tail, self._kept = bytearray(), b""
        self._on_disk = 0

    def replace(self, entries: bytes) -> None:
        """Have these packed entries and no others, durably: a crash leaves the old ones or the new ones."""
        self.release()
        write_whole(self._disk, self._path, entries)
        self._tail = bytearray()
        self._on_disk = len(entries) // self._size
        self._changes.settle_all()

    def keep(self, entries: int) -> None:
        """Forget all but the first `entries`."""
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
        """Bring the entries in memory to the file (and make the file, if there were none yet)."""
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
        """Ready to make durable what was written; None where that is so. The file is opened here, for it may have no
        name any more, or one of another's, when the sync runs."""
        if self._tail:
            self.write_out()
        if not self._changes.are_unsynced:
            return None
        return Sync(self._opened(create=False).sync, partial(self._changes.settle, self._changes.made))

    def release(self) -> None:
        """Let go of the file until it is needed again. A sync under way still has it, and the last one closes it."""
        self._kept = b""
        self._file = None

    def close(self) -> None:
        """The file goes out of use: nobody cares for what is not synced."""
        self._closed = True
        self._changes.settle_all()
        opened = self._file
        self.release()
        if opened is not None:
            opened.close()

    def _opened(self, *, create: bool = True) -> File:
        """Who only reads makes no file: a segment that was just taken out of use would leave an empty one."""
        if self._file is None:
            if self._closed:
                raise OutOfUse(self._path)
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
