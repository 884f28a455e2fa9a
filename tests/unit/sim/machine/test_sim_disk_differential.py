"""The simulated disk without faults and the real one give the same answers to the same calls."""

from collections.abc import Callable
from random import Random

import pytest

from ottla.io.disk import LocalDisk
from ottla.io.ports import Disk, File
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk

NAMES = ("a", "b", "c")
CALLS = 150


class Script:
    """Random calls on one disk below one directory; what they answered, error numbers included, in `answers`."""

    def __init__(self, disk: Disk, root: str, seed: int) -> None:
        self.disk = disk
        self.root = root
        self.random = Random(seed)
        self.files: list[File] = []
        self.answers: list[object] = []

    def play(self) -> list[object]:
        for _ in range(CALLS):
            name = self.random.choice(sorted(CALLED))
            try:
                answer = CALLED[name](self)
            except OSError as error:
                answer = (type(error).__name__, error.errno)
            self.answers.append((name, answer))
        return self.answers

    def path(self) -> str:
        depth = self.random.choice((1, 1, 2, 2, 3))
        return "/".join([self.root, *(self.random.choice(NAMES) for _ in range(depth))])

    def file(self) -> File:
        if not self.files:
            raise OSError(0, "no file is open")
        return self.random.choice(self.files)

    def open(self) -> None:
        path, create, writable = self.path(), self.random.random() < 0.7, self.random.random() < 0.8
        if not writable and not create and self.disk.exists(path) and path not in self.disk_files():
            return  # A directory may be opened to read on the real disk; nothing of ours does that.
        self.files.append(self.disk.open(path, create=create, writable=writable))

    def disk_files(self) -> list[str]:
        found = []
        for path in [self.root, *(f"{self.root}/{name}" for name in NAMES)]:
            for directory in [path, *(f"{path}/{name}" for name in NAMES)]:
                try:
                    found += [f"{directory}/{name}" for name in self.disk.scan(directory)]
                except OSError:
                    continue
        return found

    def write(self) -> int:
        parts = [self.random.randbytes(self.random.randrange(5)) for _ in range(self.random.randrange(4))]
        return self.file().write(self.random.randrange(20), parts)

    def rename(self) -> None:
        self.disk.rename(self.path(), self.path())

    def set_modified(self) -> int:
        path = self.path()
        self.disk.set_modified_ms(path, self.random.randrange(10**12))
        return self.disk.modified_ms(path)

    def plain_size(self) -> int | None:
        path = self.path()
        size = self.disk.size(path)
        return size if path in self.disk_files() else None  # A directory's size is the file system's own business.

    def lock(self) -> None:
        self.disk.lock(self.path()).release()

    def close(self) -> None:
        file = self.file()
        self.files.remove(file)
        file.close()
        file.close()  # Closing twice is harmless.


CALLED: dict[str, Callable[[Script], object]] = {
    "open": Script.open,
    "write": Script.write,
    "read": lambda script: script.file().read(script.random.randrange(20), script.random.randrange(20)),
    "file_size": lambda script: script.file().size(),
    "truncate": lambda script: script.file().truncate(script.random.randrange(25)),
    "sync": lambda script: script.file().sync(),
    "close": Script.close,
    "exists": lambda script: script.disk.exists(script.path()),
    "size": Script.plain_size,
    "modified": Script.set_modified,
    "list": lambda script: script.disk.list(script.path()),
    "scan": lambda script: script.disk.scan(script.path()),
    "make_directory": lambda script: script.disk.make_directory(script.path()),
    "rename": Script.rename,
    "remove": lambda script: script.disk.remove(script.path()),
    "remove_directory": lambda script: script.disk.remove_directory(script.path()),
    "sync_directory": lambda script: script.disk.sync_directory(script.path()),
    "lock": Script.lock,
}


@pytest.mark.parametrize("seed", range(40))
def test_both_disks_answer_alike(tmp_path, seed):
    real = LocalDisk()
    simulated = SimDisk(SimClock(), Random(0))
    simulated.make_directory("/root")
    try:
        told = Script(real, str(tmp_path), seed).play()
    finally:
        real.close()
    assert Script(simulated, "/root", seed).play() == told
