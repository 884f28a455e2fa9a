"""The ports through which Ottla uses the outside world.

Rule 1: only implementations of these ports touch a file, a socket or a clock, so the whole node runs in `sim/`.
Rule 2: every call is one atomic step: the simulator may crash before or after it, not during it, except inside a write,
        which may tear.
Rule 3: nothing is durable until `File.sync` (contents and length) and `Disk.sync_directory` (names) have returned.
Rule 4: a failed call raises `OSError`. A failed `sync` is never retried: the kernel may have dropped the pages.
"""

from asyncio import BaseProtocol, Transport
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Wall-clock and monotonic time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. For record timestamps and retention."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back. For time-outs and intervals."""


class File(Protocol):
    """An open file, addressed by position. Reads may run in any thread, writes in one at a time."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def read_warm(self, position: int, length: int) -> Buffer | None:
        """Like `read`, but None if it would have to wait for the disk. It never fails; `read` reports errors."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after another; returns the number of bytes."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Paths are absolute strings with "/" between the parts."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """`create` creates an empty file if there is none; an existing one keeps its contents."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted, so that the order does not depend on the file system."""

    def scan(self, directory: str) -> dict[str, int]:
        """Name to size for the plain files of a directory, sorted by name: `list` and `size` in one step."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents. If it exists, nothing is changed."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically. An existing file of the new name is replaced."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock a file until the lock is released or the process ends. Raises `BlockingIOError` if it is locked."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system that holds `path`."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread. In the simulator: later, at a moment the seed decides."""

    def mutex(self) -> AbstractContextManager[object]:
        """A lock between the event loop and work in threads. Its holder waits for nothing but the disk."""


class Random(Protocol):
    """Random numbers."""

    def randrange(self, stop: int, /) -> int:
        """An integer from 0 up to `stop` (exclusive); `random.Random` implements it."""


class Listener(Protocol):
    """A listening port; `host` and `port` are the actual address."""

    host: str
    port: int

    async def start(self) -> None:
        """Accept connections; until then they are refused."""

    def close(self) -> None: ...


class Network(Protocol):
    """Connections in asyncio's terms: a transport and a protocol."""

    async def listen(self, host: str, port: int, accept: Callable[[], BaseProtocol]) -> Listener:
        """Bind a port; `accept` makes a protocol for each connection. Port 0 binds any free one."""

    async def connect(self, host: str, port: int, make: Callable[[], BaseProtocol]) -> Transport: ...
