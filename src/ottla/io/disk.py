"""The file system of this machine, behind the `Disk` and `File` ports.

Rule 1: new files are private: directories 0700, files 0600, because they hold records and credentials.
Rule 2: a write or read is complete or an error: short counts of the system are continued here, never passed on.
Rule 3: an `OSError` names the file, even if the system call knew only a descriptor.
"""

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ottla.io.ports import Buffer

T = TypeVar("T")

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux: do not wait for pages that are not in the page cache.
BUFFERS_PER_CALL = 1024  # IOV_MAX of Linux, macOS and the BSDs: more in one pwritev is EINVAL.


class LocalFile:
    """An open file."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"LocalFile({self._path!r})"

    @property
    def path(self) -> str:
        return self._path

    def __del__(self) -> None:
        """A file is closed when its last reference is dropped, so readers may outlive its owner."""
        self.close()

    def fileno(self) -> int:
        """For `os.sendfile`. Valid until `close`."""
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            missing = length - len(data)
            while missing:
                position += len(data)
                data = os.pread(self._descriptor, missing, position)
                if not data:
                    break
                parts.append(data)
                missing -= len(data)
            return b"".join(parts)
        except OSError as error:
            raise _naming(error, self._path) from None

    def read_warm(self, position: int, length: int) -> Buffer | None:
        data = bytearray(length)
        try:
            count = os.preadv(self._descriptor, [data], position, _NO_WAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # The file system cannot tell, or the file is closed: `read` reports it.
        if count == length:
            return data
        # A short read means the end of the file or of the cached pages.
        return data[:count] if position + count >= self.size() else None

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        total = sum([memoryview(buffer).nbytes for buffer in buffers])
        try:
            if len(buffers) > BUFFERS_PER_CALL or os.pwritev(self._descriptor, buffers, position) != total:
                # Writing again from the start is harmless: the same bytes at the same position.
                self._write_piecewise(position, buffers)
        except OSError as error:
            raise _naming(error, self._path) from None
        return total

    def _write_piecewise(self, position: int, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            left = memoryview(buffer).cast("B")
            while left:
                written = os.pwrite(self._descriptor, left, position)
                if not written:
                    raise OSError(errno.EIO, "the file system accepted no bytes and gave no reason")
                position += written
                left = left[written:]

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _naming(error, self._path) from None

    def sync(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _naming(error, self._path) from None

    def close(self) -> None:
        """Closing twice is harmless. The descriptor is dropped at once, because its number may be reused."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class LocalLock:
    """An exclusive lock on a file.

    Two locks are taken: a POSIX lock, as the JVM takes, so that Apache Kafka and Ottla exclude each other; and `flock`,
    because POSIX locks do not exclude two holders in one process.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            # POSIX allows EACCES or EAGAIN for a held lock; the port has one error for both.
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "another process holds the lock", path) from None
            raise _naming(error, path) from None

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class LocalDisk:
    """`threads` bounds how many blocking calls (fsync, cold reads, compaction) run beside the event loop."""

    def __init__(self, threads: int = 8) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ottla-disk")

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> LocalFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return LocalFile(path, os.open(path, flags, 0o600))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def scan(self, directory: str) -> dict[str, int]:
        sizes = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    if entry.is_file():
                        sizes[entry.name] = entry.stat().st_size
                except FileNotFoundError:
                    continue  # Removed by a thread since the directory was read.
        return dict(sorted(sizes.items()))

    def make_directory(self, path: str) -> None:
        missing = []
        path = os.path.abspath(path)
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            try:
                os.mkdir(directory, 0o700)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise
            if directory is not missing[0]:
                # Only this loop knows which parents it created, so it must make their names durable.
                self.sync_directory(os.path.dirname(directory))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _naming(error, path) from None
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> LocalLock:
        return LocalLock(path)

    def free_bytes(self, path: str) -> int:
        """The bytes this user may still write, without blocks reserved for root."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def mutex(self) -> threading.Lock:
        return threading.Lock()

    def close(self) -> None:
        """Wait for the work in progress and stop the threads."""
        self._threads.shutdown()

    # Last, because inside the class its name hides the builtin.
    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))


def _naming(error: OSError, path: str) -> OSError:
    """The same error with the path; `OSError` picks the subclass (`PermissionError`, ...) from the number."""
    return OSError(error.errno, error.strerror, path)
