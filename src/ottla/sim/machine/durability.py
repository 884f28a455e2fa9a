"""What a power loss may leave of a file system: the nodes of a simulated disk, each tracking what is durable.

Rule 1: synced bytes and names survive.
Rule 2: of a file's writes and truncations since its last sync, any may be found: none, all, the first few with the last
        one torn, or for each sector any contents it has had. The length may be any it has had, or lie inside a write
        that was growing it; bytes never written there read as zeros.
Rule 3: a change of names (create, rename, remove, make directory) is found whole or not at all, and only together with
        the earlier changes it needs: those of the same name, and for a removed directory those that emptied it.
        Otherwise any may be lost, because file systems order them differently.
Rule 4: a failed sync may have stored any part of its bytes, and no later sync stores the rest. A process that has the
        file open still sees them; the next process reads the file from the disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Union

SECTOR = 512  # A drive writes a sector whole or not at all.

Node = Union["FileNode", "DirectoryNode"]


@dataclass(slots=True)
class _Write:
    position: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        if len(image) < self.position:
            image.extend(bytes(self.position - len(image)))
        image[self.position : self.position + len(self.data)] = self.data

    def changed(self, _size_before: int) -> range:
        """The bytes that this may change. A hole before it is excluded: it reads as zeros either way."""
        return range(self.position, self.position + len(self.data))


@dataclass(slots=True)
class _Truncate:
    size: int

    def apply(self, image: bytearray) -> None:
        if len(image) > self.size:
            del image[self.size :]
        else:
            image.extend(bytes(self.size - len(image)))

    def changed(self, size_before: int) -> range:
        return range(min(self.size, size_before), size_before)


class FileNode:
    """One file: its visible contents, its durable contents, and the changes in between."""

    __slots__ = ("_durable", "_durable_modified_ms", "_pending", "_sync_failed", "contents", "modified_ms")

    def __init__(self, contents: bytes = b"", modified_ms: int = 0) -> None:
        self.contents = bytearray(contents)
        self.modified_ms = modified_ms
        self._durable = bytearray(contents)
        self._durable_modified_ms = modified_ms
        self._pending: list[_Write | _Truncate] = []
        self._sync_failed = False

    def write(self, position: int, data: bytes) -> None:
        if data:
            self._change(_Write(position, data))

    def truncate(self, size: int) -> None:
        self._change(_Truncate(size))

    def _change(self, change: _Write | _Truncate) -> None:
        change.apply(self.contents)
        self._pending.append(change)

    def sync(self) -> None:
        for change in self._pending:
            change.apply(self._durable)
        self._pending.clear()
        self._durable_modified_ms = self.modified_ms

    def fail_sync(self, random: Random) -> None:
        self._durable = self._found(random)
        self._pending.clear()
        self._sync_failed = True

    def read_anew(self) -> None:
        """Drop cached pages that differ from the disk."""
        if self._sync_failed:
            self.contents[:] = self._durable
            for change in self._pending:
                change.apply(self.contents)
            self._sync_failed = False

    def is_settled(self) -> bool:
        return not self._pending

    def synced(self) -> bytes:
        return bytes(self._durable)

    def flip_bit(self, bit: int) -> None:
        """Flip a stored bit; readers see it from now on."""
        position, mask = bit // 8, 1 << bit % 8
        self.contents[position] ^= mask
        if position < len(self._durable):
            self._durable[position] ^= mask

    def after_power_loss(self, random: Random) -> "FileNode":
        modified_ms = random.choice((self.modified_ms, self._durable_modified_ms))
        return FileNode(bytes(self._found(random)), modified_ms)

    def copy(self) -> "FileNode":
        twin = FileNode(b"", self.modified_ms)
        twin.contents[:] = self.contents
        twin._durable[:] = self._durable
        twin._durable_modified_ms = self._durable_modified_ms
        twin._pending = list(self._pending)
        twin._sync_failed = self._sync_failed
        return twin

    def _found(self, random: Random) -> bytearray:
        """The contents as a power loss may leave them."""
        if not self._pending:
            return bytearray(self._durable)
        outcome = random.choice(("lost", "kept", "torn", "mixed", "mixed"))
        image = bytearray(self._durable)
        if outcome == "mixed":
            return self._mixed(random)
        kept = {"lost": 0, "kept": len(self._pending)}.get(outcome, random.randrange(len(self._pending)))
        for change in self._pending[:kept]:
            change.apply(image)
        if outcome == "torn":
            _tear(self._pending[kept], image, random)
        return image

    def _mixed(self, random: Random) -> bytearray:
        """For each sector any contents it has had, and any length: writes reordered, lost, or stored in part."""
        image = bytearray(self._durable)
        lengths = [len(image)]
        versions: dict[int, list[bytes]] = {}  # sector to the contents it has had, oldest first
        for change in self._pending:
            changed = change.changed(len(image))
            sectors = range(changed.start // SECTOR, -(-changed.stop // SECTOR))
            for sector in sectors:
                versions.setdefault(sector, [_sector(image, sector)])
            change.apply(image)
            for sector in sectors:
                versions[sector].append(_sector(image, sector))
            lengths.append(len(image))
        newest = random.choice((0.0, 0.5, 0.9))  # how likely a sector is found as last written
        for sector, contents in versions.items():
            found = contents[-1] if random.random() < newest else random.choice(contents)
            end = sector * SECTOR + len(found)
            if len(image) < end:
                image.extend(bytes(end - len(image)))
            image[sector * SECTOR : end] = found
        _Truncate(_length_found(lengths, random)).apply(image)
        return image


def _sector(image: bytearray, sector: int) -> bytes:
    return bytes(image[sector * SECTOR : (sector + 1) * SECTOR]).ljust(SECTOR, b"\0")


def _length_found(lengths: list[int], random: Random) -> int:
    step = random.randrange(len(lengths))
    if step and lengths[step] > lengths[step - 1] and random.random() < 0.5:
        return random.randint(lengths[step - 1], lengths[step])
    return lengths[step]


def _tear(change: _Write | _Truncate, image: bytearray, random: Random) -> None:
    """A write stops at some byte or at a sector's end; a truncation is whole or absent."""
    if isinstance(change, _Truncate):
        return
    stop = random.randrange(len(change.data))
    if random.random() < 0.5:
        stop = max(0, (change.position + stop) // SECTOR * SECTOR - change.position)
    if stop:
        _Write(change.position, change.data[:stop]).apply(image)


class DirectoryNode:
    """One directory: its visible names and its durable names."""

    __slots__ = ("durable", "modified_ms", "names")

    def __init__(self, modified_ms: int = 0) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = modified_ms


Key = tuple[DirectoryNode, str]


@dataclass(slots=True)
class NameChange:
    """One atomic change of names. `emptied` is the directory it removes or replaces, if any."""

    entries: dict[Key, Node | None]
    emptied: DirectoryNode | None = None

    def touches(self, directory: DirectoryNode) -> bool:
        return any(holder is directory for holder, _ in self.entries)

    def needs(self, earlier: "NameChange") -> bool:
        if any(key in earlier.entries for key in self.entries):
            return True
        return self.emptied is not None and earlier.touches(self.emptied)


@dataclass(slots=True)
class Names:
    """The tree of names under one root, and its changes that are not durable yet."""

    root: DirectoryNode = field(default_factory=DirectoryNode)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        for (directory, name), node in change.entries.items():
            if node is None:
                directory.names.pop(name, None)
            else:
                directory.names[name] = node
        self.pending.append(change)

    def sync(self, directory: DirectoryNode) -> None:
        self._settle([change.touches(directory) for change in self.pending])

    def _settle(self, wanted: list[bool]) -> None:
        """Make the wanted changes durable, with all they need; the others stay pending."""
        for later in reversed(range(len(self.pending))):
            if wanted[later]:
                for earlier in range(later):
                    wanted[earlier] = wanted[earlier] or self.pending[later].needs(self.pending[earlier])
        for change, settled in zip(self.pending, wanted, strict=True):
            if settled:
                _make_durable(change)
        self.pending = [change for change, settled in zip(self.pending, wanted, strict=True) if not settled]

    def after_power_loss(self, random: Random) -> "Names":
        """A new tree with what was found. This one must not be used any more."""
        self._settle(self._survivors(random))
        return Names(_found_tree(self.root, random))

    def _survivors(self, random: Random) -> list[bool]:
        count = len(self.pending)
        match random.choice(("lost", "kept", "prefix", "subset")):
            case "lost":
                return [False] * count
            case "kept":
                return [True] * count
            case "prefix":
                kept = random.randint(0, count)
                return [index < kept for index in range(count)]
        # A change drawn here requires others, so few are drawn.
        return [random.random() < 0.4 for _ in range(count)]

    def files(self) -> Iterator[FileNode]:
        """Every file that has a name."""
        directories = [self.root]
        while directories:
            for node in directories.pop().names.values():
                if isinstance(node, DirectoryNode):
                    directories.append(node)
                else:
                    yield node

    def copy(self) -> "Names":
        twins = _Twins()
        return Names(twins.directory(self.root), [twins.change(change) for change in self.pending])


def _make_durable(change: NameChange) -> None:
    for (directory, name), node in change.entries.items():
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _found_tree(directory: DirectoryNode, random: Random) -> DirectoryNode:
    found = DirectoryNode(directory.modified_ms)
    for name, node in sorted(directory.durable.items()):
        if isinstance(node, DirectoryNode):
            found.names[name] = _found_tree(node, random)
        else:
            found.names[name] = node.after_power_loss(random)
    found.durable = dict(found.names)
    return found


class _Twins:
    """Copies nodes, each once, however many names and changes refer to it."""

    def __init__(self) -> None:
        self._files: dict[FileNode, FileNode] = {}
        self._directories: dict[DirectoryNode, DirectoryNode] = {}

    def node(self, node: Node) -> Node:
        return self.directory(node) if isinstance(node, DirectoryNode) else self.file(node)

    def file(self, node: FileNode) -> FileNode:
        if node not in self._files:
            self._files[node] = node.copy()
        return self._files[node]

    def directory(self, node: DirectoryNode) -> DirectoryNode:
        if node not in self._directories:
            twin = self._directories[node] = DirectoryNode(node.modified_ms)
            twin.names = {name: self.node(child) for name, child in node.names.items()}
            twin.durable = {name: self.node(child) for name, child in node.durable.items()}
        return self._directories[node]

    def change(self, change: NameChange) -> NameChange:
        entries = {
            (self.directory(holder), name): None if node is None else self.node(node)
            for (holder, name), node in change.entries.items()
        }
        return NameChange(entries, None if change.emptied is None else self.directory(change.emptied))
