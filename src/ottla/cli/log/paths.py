"""Determines what a path on the command line is: a partition's directory, or a file of a known kind."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from ottla.cli.errors import UserError
from ottla.core.log import files
from ottla.io.ports import Disk

BOOTSTRAP = "bootstrap.checkpoint"
"""The initial records of a new cluster, in the format of `__cluster_metadata`."""
_KRAFT_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")


class FileKind(Enum):
    LOG = "log"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TXN_INDEX = "transaction index"
    PRODUCERS = "producer snapshot"
    EPOCHS = "leader epochs"
    OFFSETS = "offset checkpoint"
    PARTITION = "partition metadata"
    DIRECTORY = "directory metadata"
    SUMMARY = "segment summary"


_SEGMENT_KINDS = {
    files.LOG: FileKind.LOG,
    files.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    files.TIME_INDEX: FileKind.TIME_INDEX,
    files.TXN_INDEX: FileKind.TXN_INDEX,
    files.SNAPSHOT: FileKind.PRODUCERS,
}
_NAMED = {
    files.LEADER_EPOCHS: FileKind.EPOCHS,
    files.PARTITION_METADATA: FileKind.PARTITION,
    files.META_PROPERTIES: FileKind.DIRECTORY,
    files.SEGMENT_SUMMARY: FileKind.SUMMARY,
    files.RECOVERY_POINTS: FileKind.OFFSETS,
    files.HIGH_WATERMARKS: FileKind.OFFSETS,
    files.LOG_STARTS: FileKind.OFFSETS,
    files.CLEANER_OFFSETS: FileKind.OFFSETS,
    BOOTSTRAP: FileKind.LOG,
}
# Files of Kafka or Ottla beside the segments that hold no log data.
OTHER_FILES = {"quorum-state", "topic.metadata", files.LOCK, files.CLEAN_SHUTDOWN, files.REFUSED}


class LogFile(NamedTuple):
    path: str
    kind: FileKind
    base_offset: int
    suffix: str
    """`.deleted`, `.cleaned` or `.swap` during an operation."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def topic(self) -> str:
        """The topic, by the name of the file's directory; empty if that is not the directory of a partition."""
        if self.name == BOOTSTRAP:
            return files.METADATA_TOPIC
        place = files.parse_directory(self.path.rpartition("/")[0].rpartition("/")[2])
        return place.topic if place else ""


def recognised(path: str) -> LogFile | None:
    name = path.rpartition("/")[2]
    if segment_file := files.parse_file(name):
        return LogFile(path, _SEGMENT_KINDS[segment_file.kind], segment_file.base_offset, segment_file.suffix)
    if snapshot := _KRAFT_SNAPSHOT.fullmatch(name):
        return LogFile(path, FileKind.LOG, int(snapshot[1]), "")
    return LogFile(path, _NAMED[name], 0, "") if name in _NAMED else None


class PartitionOnDisk(NamedTuple):
    """A partition's directory, its files sorted by name."""

    path: str
    files: list[LogFile]
    unknown: list[str]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def of(self, kind: FileKind) -> list[LogFile]:
        """The files of this kind that are in use, sorted by offset."""
        return sorted(
            (file for file in self.files if file.kind is kind and not file.suffix), key=lambda f: f.base_offset
        )

    def segments(self) -> list[LogFile]:
        return [file for file in self.of(FileKind.LOG) if file.name.endswith(files.LOG)]


def located(disk: Disk, path: str) -> PartitionOnDisk | LogFile:
    """The partition directory or the file at `path`. Raises UserError, with the known kinds, if it is neither."""
    path = path.rstrip("/") or "/"
    with readable():
        if not disk.exists(path):
            raise UserError(f"{path}: there is no such file or directory")
        names = _names(disk, path)
        if names is not None:
            return _partition(disk, path, names)
    file = recognised(path)
    if file is None:
        raise UserError(
            f"{path}: not a file of a log. Known are segments (00000000000000000000.log, .index, .timeindex, "
            f".txnindex, .snapshot), {files.LEADER_EPOCHS}, {files.PARTITION_METADATA}, {files.SEGMENT_SUMMARY}, "
            f"{files.META_PROPERTIES} and the checkpoints of a data directory; or give the partition's directory."
        )
    return file


def _names(disk: Disk, path: str) -> list[str] | None:
    try:
        return disk.list(path)
    except NotADirectoryError:
        return None


def _partition(disk: Disk, path: str, names: list[str]) -> PartitionOnDisk:
    plain = list(disk.scan(path))
    known = [file for name in plain if (file := recognised(f"{path}/{name}"))]
    if any(file.kind is FileKind.LOG and file.name.endswith((files.LOG, ".log.deleted")) for file in known):
        unknown = [name for name in plain if not recognised(name) and name not in OTHER_FILES]
        return PartitionOnDisk(path, known, unknown)
    partitions = [name for name in names if name not in plain and _holds_log(disk, f"{path}/{name}")]
    if partitions:
        more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
        raise UserError(
            f"{path}: a data directory. Choose one of its partitions: {', '.join(partitions[:5])}{more}, "
            f"for example {path}/{partitions[0]}"
        )
    raise UserError(f"{path}: no log here: a partition's directory has files such as 00000000000000000000.log")


def _holds_log(disk: Disk, path: str) -> bool:
    """Whether a directory is named like a partition's and has a segment: other directories may be called `name-1`
    too."""
    name = path.rpartition("/")[2]
    return files.parse_directory(name) is not None and any(
        (file := files.parse_file(one)) is not None and file.kind == files.LOG for one in disk.list(path)
    )


@contextmanager
def readable() -> Iterator[None]:
    """Turn system errors about a file into UserErrors."""
    try:
        yield
    except BrokenPipeError:
        raise
    except PermissionError as error:
        raise UserError(
            f"{error.filename}: no permission to read it; Ottla's and Kafka's files belong to their broker's user"
        ) from None
    except OSError as error:
        raise UserError(f"{error.filename or 'reading'}: {error.strerror or error}") from None
