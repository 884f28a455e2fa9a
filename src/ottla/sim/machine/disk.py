"""A disk in memory that tracks what is durable, counts its calls, fails by rule and loses power on demand.

Rule 1: without faults it behaves as the real disk, error numbers included.
Rule 2: every call is one step. `crash_at(n)` switches the power off before step n; a write at that step has begun, so
        it may be torn. From then on every call raises `PowerLoss`, including those of clean-up code.
Rule 3: `after_power_loss` gives the disk as the next process finds it (see durability.py). `after_kill` gives it to the
        next process when only the old one died: only what a failed sync dropped is lost, and what was not durable still
        is not.
Rule 4: all randomness comes from the one `Random` passed in.
Rule 5: with `interleaving`, work in a thread pauses between its steps while the loop runs (see threads.py).
"""

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NoReturn, TypeVar

from ottla.io.ports import Buffer
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.durability import DirectoryNode, FileNode, NameChange, Names, Node
from ottla.sim.machine.faults import READS, Fault, PowerLoss
from ottla.sim.machine.threads import SimMutex, current_worker, in_steps

T = TypeVar("T")

THREAD_DELAY_MS_MAX = 50.0
CAPACITY = 1 << 40
_STANDS_STILL = 0.3
"""The probability that a worker pauses before a step."""


class SimFile:
    """An open file. It refers to its node, whatever names the node gets or loses."""

    def __init__(self, disk: "SimDisk", path: str, node: FileNode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._node: FileNode | None = node
        self._writable = writable

    def __repr__(self) -> str:
        return f"SimFile({self._path!r})"

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._disk._step("size", self._path)
        return len(self._opened().contents)

    def read(self, position: int, length: int) -> bytes:
        self._disk._step("read", self._path)
        return bytes(self._opened().contents[position : position + length])

    def read_warm(self, position: int, length: int) -> bytes:
        """Like `read`: in the simulator all pages are in memory."""
        return bytes(self._node.contents[position : position + length]) if self._node is not None else b""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._disk._write(self._path, self._opened, position, data, writable=self._writable)
        return len(data)

    def truncate(self, size: int) -> None:
        self._disk._step("truncate", self._path)
        node = self._opened()
        if not self._writable or size < 0:
            _fail(errno.EINVAL, self._path)
        node.truncate(size)
        node.modified_ms = self._disk.clock.wall_ms()

    def sync(self) -> None:
        self._disk._sync(self._path, self._opened)

    def close(self) -> None:
        """Not a step: it changes nothing on the disk, and clean-up after a power loss may call it."""
        self._node = None

    def _opened(self) -> FileNode:
        if self._node is None:
            _fail(errno.EBADF, self._path)
        return self._node


class SimLock:
    def __init__(self, held: dict[Node, None], node: Node) -> None:
        self._held = held
        self._node = node

    def release(self) -> None:
        self._held.pop(self._node, None)


class SimDisk:
    """See the rules above. `observer` is called before every call that changes the disk."""

    def __init__(
        self,
        clock: SimClock,
        random: Random,
        faults: Sequence[Fault] = (),
        observer: Callable[[int, str, str], None] | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.faults = list(faults)
        self.observer = observer
        self.step = 0
        self.struck: list[str] = []  # which faults struck, for the transcript
        self.interleaving = 0.0
        """The probability that work in a thread is interleaved with the loop; else it runs in one go."""
        self.on_power_loss: Callable[[], None] = lambda: None
        self._crash_step = -1
        self._off = False
        self._calm = False
        self._names = Names()
        self._found: dict[str, Node] = {}
        """Nodes by path; cleared with every change of a name."""
        self._locked: dict[Node, None] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    # Steps, faults and power.

    def crash_at(self, step: int) -> None:
        self._crash_step = step

    def power_off(self) -> None:
        self._off = True

    @property
    def is_off(self) -> bool:
        return self._off

    @contextmanager
    def calm(self) -> Iterator[None]:
        """No fault and no power loss in this block: for checkers that read through the code under test."""
        was, self._calm = self._calm, True
        try:
            yield
        finally:
            self._calm = was

    def digest(self) -> str:
        """A hash of all bytes written so far. `observer` gets the other calls, with the number of steps before them."""
        return self._digest.hexdigest()

    def after_power_loss(self, random: Random) -> "SimDisk":
        self.power_off()
        return self._successor(self._names.copy().after_power_loss(random))

    def after_kill(self) -> "SimDisk":
        self.power_off()
        names = self._names.copy()
        for file in names.files():
            file.read_anew()
        return self._successor(names)

    def copy(self) -> "SimDisk":
        """An independent copy without faults; locks are not copied."""
        return SimDisk(self.clock, Random(0))._with(self._names.copy())

    def if_power_went(self, random: Random) -> "SimDisk":
        """A copy as a power loss now would leave it. This disk continues."""
        return self.copy().after_power_loss(random)

    def is_settled(self) -> bool:
        """Whether a power loss now would change nothing."""
        return not self._names.pending and all(file.is_settled() for file in self._names.files())

    def contents(self) -> dict[str, bytes | None]:
        """Every path, sorted, with its bytes; None for a directory. Not a step: for checkers."""
        found: dict[str, bytes | None] = {}
        _collect(self._names.root, "", found)
        return found

    def peek(self, path: str) -> bytes:
        """The bytes of one file. Not a step."""
        node = self._node(path)
        assert isinstance(node, FileNode)
        return bytes(node.contents)

    def durable(self, path: str) -> bytes | None:
        """The bytes of a file that the worst power loss would leave, that is the synced ones; None if not even its name
        would be left. Not a step."""
        node: Node = self._names.root
        for name in _parts(path):
            if not isinstance(node, DirectoryNode) or name not in node.durable:
                return None
            node = node.durable[name]
        return node.synced() if isinstance(node, FileNode) else None

    def durable_names(self, directory: str) -> "list[str]":
        """Like `durable`: the names that would be left in a directory, sorted."""
        node: Node = self._names.root
        for name in _parts(directory):
            if not isinstance(node, DirectoryNode) or name not in node.durable:
                return []
            node = node.durable[name]
        return sorted(node.durable) if isinstance(node, DirectoryNode) else []

    def wiped(self, directory: str) -> "list[str]":
        """Replace the directory's disk by an empty one; returns the names that are gone. Not a step."""
        node = self._directory(directory)
        names = sorted(node.names)
        node.names, node.durable = {}, {}
        self._names.pending = [change for change in self._names.pending if not change.touches(node)]
        self._found.clear()
        return names

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip one stored bit. Not a step."""
        node = self._node(path)
        assert isinstance(node, FileNode)
        node.flip_bit(bit)

    def _with(self, names: Names) -> "SimDisk":
        self._names, self._found = names, {}
        return self

    def _successor(self, names: Names) -> "SimDisk":
        disk = SimDisk(self.clock, self.random, self.faults, self.observer)._with(names)
        disk.interleaving = self.interleaving
        disk._digest = self._digest.copy()
        return disk

    def _step(self, operation: str, path: str) -> None:
        """Count the call, then apply a power loss or a fault."""
        self._count(operation, path)
        if self._is_crash_step():
            self._lose_power()
        if self.faults and (error := self._struck(operation, path)):
            _fail(error, path)

    def _count(self, operation: str, path: str) -> None:
        if self.interleaving and (worker := current_worker()) is not None and self.random.random() < _STANDS_STILL:
            worker.pause()
        if self._off:
            raise PowerLoss("the machine is off")
        self.step += 1
        if self.observer and operation not in READS:
            self.observer(self.step, operation, path)

    def _change(self, change: NameChange) -> None:
        self._names.change(change)
        self._found.clear()

    def _is_crash_step(self) -> bool:
        return 0 <= self._crash_step <= self.step and not self._calm

    def _lose_power(self) -> NoReturn:
        self.power_off()
        self.on_power_loss()
        raise PowerLoss(f"power lost at step {self.step}")

    def _struck(self, operation: str, path: str) -> int:
        """Apply the fault rules to a call; returns the error number to fail with, or 0. A delay advances the clock."""
        for fault in () if self._calm else self.faults:
            if fault.strikes(operation, path, self.random):
                self.clock.advance(self.random.uniform(0, fault.delay_ms))
                if fault.error:
                    self.struck.append(f"{errno.errorcode[fault.error]} {operation} {path} at step {self.step}")
                    return fault.error
        return 0

    def _write(self, path: str, opened: Callable[[], FileNode], position: int, data: bytes, *, writable: bool) -> None:
        self._count("write", path)
        self._digest.update(data)
        node = opened()
        if not writable:
            _fail(errno.EBADF, path)
        error = self._struck("write", path)
        # A disk that fills up or breaks may do so in the middle of a write.
        stored = data[: self.random.randint(0, len(data))] if error else data
        node.write(position, stored)
        node.modified_ms = self.clock.wall_ms()
        if self._is_crash_step():
            self._lose_power()
        if error:
            _fail(error, path)

    def _sync(self, path: str, opened: Callable[[], FileNode]) -> None:
        self._count("sync", path)
        if self._is_crash_step():
            self._lose_power()
        node = opened()
        error = self._struck("sync", path)
        if error:
            node.fail_sync(self.random)
            _fail(error, path)
        node.sync()

    # The port.

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        self._step("open", path)
        return SimFile(self, path, self._open_node(path, create=create), writable=writable)

    def _open_node(self, path: str, *, create: bool) -> FileNode:
        known = self._found.get(path)
        if isinstance(known, FileNode):
            return known
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if node is None:
            if not create:
                _fail(errno.ENOENT, path)
            node = FileNode(b"", self.clock.wall_ms())
            self._change(NameChange({(parent, name): node}))
        if isinstance(node, DirectoryNode):
            _fail(errno.EISDIR, path)
        self._found[path] = node
        return node

    def exists(self, path: str) -> bool:
        self._step("exists", path)
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size(self, path: str) -> int:
        self._step("size", path)
        node = self._node(path)
        return len(node.contents) if isinstance(node, FileNode) else 0

    def modified_ms(self, path: str) -> int:
        self._step("modified_ms", path)
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._step("set_modified_ms", path)
        self._node(path).modified_ms = modified_ms

    def scan(self, directory: str) -> dict[str, int]:
        self._step("scan", directory)
        names = self._directory(directory).names
        return {name: len(node.contents) for name, node in sorted(names.items()) if isinstance(node, FileNode)}

    def make_directory(self, path: str) -> None:
        self._step("make_directory", path)
        directory = self._names.root
        parts = _parts(path)
        for depth, name in enumerate(parts):
            child = directory.names.get(name)
            if child is None:
                child = DirectoryNode(self.clock.wall_ms())
                self._change(NameChange({(directory, name): child}))
                if depth < len(parts) - 1:
                    self._names.sync(directory)  # The caller cannot know which parents were missing.
            if isinstance(child, FileNode):
                _fail(errno.EEXIST, path)
            directory = child

    def rename(self, old: str, new: str) -> None:
        self._step("rename", old)
        old_parent, old_name = self._parent(old)
        new_parent, new_name = self._parent(new)
        node = old_parent.names.get(old_name)
        replaced = new_parent.names.get(new_name)
        if node is None:
            _fail(errno.ENOENT, old)
        if node is replaced:
            return
        if new.startswith(old + "/"):
            _fail(errno.EINVAL, old)
        if old.startswith(new + "/"):
            _fail(errno.ENOTEMPTY, old)
        if isinstance(node, DirectoryNode):
            if isinstance(replaced, FileNode):
                _fail(errno.ENOTDIR, old)
            if replaced is not None and replaced.names:
                _fail(errno.ENOTEMPTY, old)
        elif isinstance(replaced, DirectoryNode):
            _fail(errno.EISDIR, old)
        emptied = replaced if isinstance(replaced, DirectoryNode) else None
        self._change(NameChange({(old_parent, old_name): None, (new_parent, new_name): node}, emptied))

    def remove(self, path: str) -> None:
        self._step("remove", path)
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if node is None:
            _fail(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            _fail(errno.EISDIR, path)
        self._change(NameChange({(parent, name): None}))

    def remove_directory(self, path: str) -> None:
        self._step("remove_directory", path)
        directory = self._directory(path)
        if directory.names:
            _fail(errno.ENOTEMPTY, path)
        self._change(NameChange({self._parent(path): None}, emptied=directory))

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory", path)
        self._names.sync(self._directory(path))

    def lock(self, path: str) -> SimLock:
        self._step("lock", path)
        node = self._open_node(path, create=True)
        if node in self._locked:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", path)
        self._locked[node] = None
        return SimLock(self._locked, node)

    def free_bytes(self, path: str) -> int:
        self._step("free_bytes", path)
        self._node(path)
        return CAPACITY - sum(len(data) for data in self.contents().values() if data)

    def total_bytes(self, path: str) -> int:
        self._step("total_bytes", path)
        self._node(path)
        return CAPACITY

    async def in_thread(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(self._rest_s())
        if self.interleaving and self.random.random() < self.interleaving:
            result: T = await in_steps(work, self._rest_s)
            return result
        return work()

    def _rest_s(self) -> float:
        return self.random.uniform(0, THREAD_DELAY_MS_MAX) / 1000

    def mutex(self) -> SimMutex:
        return SimMutex()

    # Last, because inside the class its name hides the builtin.
    def list(self, directory: str) -> list[str]:
        self._step("list", directory)
        return sorted(self._directory(directory).names)

    # Paths.

    def _node(self, path: str) -> Node:
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._walk(path)
        return found

    def _walk(self, path: str) -> Node:
        node: Node = self._names.root
        if not path.startswith("/"):
            _fail(errno.ENOENT, path)
        for name in _parts(path):
            if isinstance(node, FileNode):
                _fail(errno.ENOTDIR, path)
            if name not in node.names:
                _fail(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._node(path)
        if isinstance(node, FileNode):
            _fail(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above or "/"), name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _collect(directory: DirectoryNode, prefix: str, found: dict[str, bytes | None]) -> None:
    for name, node in sorted(directory.names.items()):
        path = f"{prefix}/{name}"
        if isinstance(node, DirectoryNode):
            found[path] = None
            _collect(node, path, found)
        else:
            found[path] = bytes(node.contents)


def _fail(number: int, path: str) -> NoReturn:
    raise OSError(number, os.strerror(number), path)
