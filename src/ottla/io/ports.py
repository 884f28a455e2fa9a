"""What the rest of Ottla may ask of the outside world.

Rule 1: nothing but an implementation of these ports touches a file or a clock, so the whole node runs in `sim/`.
Rule 2: every call here is one step of the machine: the simulator may crash before or after it, never "during" it,
        except inside a write, which may tear.
Rule 3: nothing is durable until `File.sync` (contents and length) and `Disk.sync_directory` (names) have returned.
Rule 4: a failed call raises `OSError`. A failed `sync` is never tried again: the kernel may have dropped the pages.
"""

from asyncio import BaseProtocol, Transport
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
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
        """As `read`, but None where it would have to wait for the disk. It never fails: reading tells what is wrong."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all the buffers one after another and return how many bytes that was."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Paths are absolute strings with "/" between the parts."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """`create` makes an empty file where none was; an existing one keeps its contents."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted: the order never depends on the file system."""

    def scan(self, directory: str) -> dict[str, int]:
        """Name to size for the plain files of a directory, sorted by name: `list` and `size` in one step."""

    def make_directory(self, path: str) -> None:
        """Make it and the parents that are missing; an existing one is no error."""

    def rename(self, old: str, new: str) -> None:
        """Atomically, replacing a file that has the new name."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """An empty one."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Held until released or the process ends; raises `BlockingIOError` while another process holds it."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Of the file system that holds `path`."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work away from the event loop. In the simulator: later, at a moment the seed decides."""

    def mutex(self) -> AbstractContextManager[object]:
        """What the event loop and work in threads hold while they do something that the other must not see half done.
        Who holds one waits for nothing but the disk."""


class Random(Protocol):
    def randrange(self, stop: int, /) -> int:
        """A whole number from 0 up to, not including, `stop`; `random.Random` has it."""


class Listener(Protocol):
    """A port that is taken; where it really is."""

    host: str
    port: int

    async def start(self) -> None:
        """Accept connections; until then they are refused."""

    def close(self) -> None: ...


class Network(Protocol):
    """Connections as asyncio knows them: a transport of bytes and a protocol that is told what arrives."""

    async def listen(self, host: str, port: int, accept: Callable[[], BaseProtocol]) -> Listener:
        """Take a port for connections, each with a protocol of its own; port 0 takes any free one."""

    async def connect(self, host: str, port: int, make: Callable[[], BaseProtocol]) -> Transport: ...
