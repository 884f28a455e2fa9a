"""The real disk keeps the promises of the port, on a real file system."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ottla.io.clock import SystemClock
from ottla.io.disk import BUFFERS_PER_CALL, LocalDisk
from ottla.io.ports import Clock, Disk, File


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk(threads=2)


def test_real_implementations_are_the_ports(disk: LocalDisk, tmp_path: Path) -> None:
    """Checked by the type checker; at run time the assignments merely have to work."""
    port: Disk = disk
    clock: Clock = SystemClock()
    file: File = port.open(str(tmp_path / "f"), create=True)
    file.close()
    assert clock.wall_ms() > 1_600_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


def test_write_then_read_by_position(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.write(0, [b"hello ", bytearray(b"wide "), memoryview(b"world")]) == 16
    assert file.write(6, [b"WIDE"]) == 4
    assert file.read(0, 100) == b"hello WIDE world"
    assert file.read(11, 3) == b"wor"
    assert file.read(16, 1) == b""
    assert file.size() == 16
    file.truncate(5)
    assert file.read(0, 100) == b"hello"
    file.sync()
    assert os.fstat(file.fileno()).st_size == 5
    file.close()
    file.close()


def test_buffers_of_wide_items_count_bytes(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.write(0, [memoryview(b"abcdefgh").cast("I")]) == 8
    assert file.read(0, 9) == b"abcdefgh"


def test_more_buffers_than_one_call_takes(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    buffers = [bytes([i % 251]) for i in range(BUFFERS_PER_CALL + 7)]
    assert file.write(3, buffers) == len(buffers)
    assert file.read(3, 5_000) == b"".join(buffers)


def test_short_counts_of_the_system_are_continued(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal, a quota or a 2 GiB limit may cut any call short."""
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: pwrite(fd, buffers[0][:2], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 4), at))
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.write(0, [b"0123456789", b"abcdef"]) == 16
    assert file.read(1, 12) == b"123456789abc"
    assert file.read(1, 100) == b"123456789abcdef"


def test_errors_name_the_file(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    disk.open(path, create=True).close()
    file = disk.open(path, writable=False)
    with pytest.raises(OSError) as caught:
        file.write(0, [b"x"])
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, path)
    with pytest.raises(OSError) as caught:
        file.truncate(0)
    assert caught.value.filename == path
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "missing"))


def test_open_keeps_what_is_there(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    disk.open(path, create=True).write(0, [b"kept"])
    assert disk.open(path, create=True).read(0, 10) == b"kept"


def test_files_and_directories_are_private(disk: LocalDisk, tmp_path: Path) -> None:
    disk.make_directory(str(tmp_path / "a" / "b"))
    disk.make_directory(str(tmp_path / "a" / "b"))
    disk.open(str(tmp_path / "a" / "b" / "f"), create=True)
    for path, mode in (("a", 0o700), ("a/b", 0o700), ("a/b/f", 0o600)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode


def test_make_directory_refuses_a_file_in_its_way(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(OSError):
        disk.make_directory(str(tmp_path / "f"))
    with pytest.raises(OSError):
        disk.make_directory(str(tmp_path / "f" / "below"))


def test_names_in_order(disk: LocalDisk, tmp_path: Path) -> None:
    for name, size in (("c", 3), ("a", 1), ("b", 2)):
        disk.open(str(tmp_path / name), create=True).write(0, [bytes(size)])
    disk.make_directory(str(tmp_path / "d"))
    assert disk.list(str(tmp_path)) == ["a", "b", "c", "d"]
    assert list(disk.scan(str(tmp_path)).items()) == [("a", 1), ("b", 2), ("c", 3)]


def test_rename_replaces_and_remove_removes(disk: LocalDisk, tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    disk.open(old, create=True).write(0, [b"1"])
    disk.open(new, create=True).write(0, [b"22"])
    disk.rename(old, new)
    disk.sync_directory(str(tmp_path))
    assert (disk.exists(old), disk.size(new)) == (False, 1)
    disk.remove(new)
    disk.make_directory(str(tmp_path / "d"))
    disk.remove_directory(str(tmp_path / "d"))
    assert disk.list(str(tmp_path)) == []


def test_modification_time_can_be_set(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    disk.open(path, create=True)
    disk.set_modified_ms(path, 1_234_567_890_123)
    assert disk.modified_ms(path) == 1_234_567_890_123


def test_lock_keeps_others_out_until_released(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    disk.lock(path).release()


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_lock_is_seen_by_other_processes_of_either_kind(disk: LocalDisk, tmp_path: Path, call: str) -> None:
    """`lockf` is what a JVM takes: Kafka must not start on a directory that Ottla holds."""
    path = str(tmp_path / ".lock")
    disk.lock(path)
    code = f"import fcntl; fcntl.{call}(open({path!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr


def test_free_bytes(disk: LocalDisk, tmp_path: Path) -> None:
    assert disk.free_bytes(str(tmp_path)) > 0


def test_blocking_work_leaves_the_loop_free(disk: LocalDisk) -> None:
    """The work can only end after the loop has run on: it waits for the loop to set the event."""
    released = threading.Event()

    async def scenario() -> str:
        work = asyncio.ensure_future(disk.in_thread(lambda: released.wait(10) and threading.current_thread().name))
        await asyncio.sleep(0)
        released.set()
        return str(await work)

    assert asyncio.run(scenario()).startswith("ottla-disk")
    disk.close()


def test_what_is_only_on_disk_is_cold(disk: LocalDisk, tmp_path: Path) -> None:
    """A fetch of it is read ahead in a thread; one of warm bytes is not delayed."""
    file = disk.open(str(tmp_path / "f"), create=True)
    size = 1 << 22
    file.write(0, [bytes(size)])
    assert file.read_warm(5, 10) == bytes(10)
    assert file.read_warm(size - 5, 10) == bytes(5)
    file.sync()
    for _ in range(100):  # A page that is just being written is kept.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if file.read_warm(0, 1) is None and file.read_warm(size - 1, 1) is None:
            break
    else:
        pytest.skip("this system keeps its pages, or cannot tell")
    file.read(0, size)
    assert file.read_warm(0, size) == bytes(size)


def test_a_file_that_cannot_be_asked_counts_as_warm(disk: LocalDisk, tmp_path: Path) -> None:
    """Reading it tells what is wrong with it."""
    file = disk.open(str(tmp_path / "f"), create=True)
    file.close()
    assert file.read_warm(0, 1) == b""
