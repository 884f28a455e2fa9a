"""What a path on the command line is: a partition's directory, or a file of a known kind."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from ottla.cli.errors import UserError
from ottla.core.log import files
from ottla.io.ports import Disk

BOOTSTRAP = "bootstrap.checkpoint"
"""What a new cluster starts from, in the format of `__cluster_metadata`."""
_KRAFT_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")


class Kind(Enum):
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
    files.LOG: Kind.LOG,
    files.OFFSET_INDEX: Kind.OFFSET_INDEX,
    files.TIME_INDEX: Kind.TIME_INDEX,
    files.TXN_INDEX: Kind.TXN_INDEX,
    files.SNAPSHOT: Kind.PRODUCERS,
}
_NAMED = {
    files.LEADER_EPOCHS: Kind.EPOCHS,
    files.PARTITION_METADATA: Kind.PARTITION,
    files.META_PROPERTIES: Kind.DIRECTORY,
    files.SEGMENT_SUMMARY: Kind.SUMMARY,
    files.RECOVERY_POINTS: Kind.OFFSETS,
    files.HIGH_WATERMARKS: Kind.OFFSETS,
    files.LOG_STARTS: Kind.OFFSETS,
    files.CLEANER_OFFSETS: Kind.OFFSETS,
    BOOTSTRAP: Kind.LOG,
}
# Made by Kafka or Ottla beside the segments; they hold nothing of the log.
OTHER_FILES = {"quorum-state", "topic.metadata", files.LOCK, files.CLEAN_SHUTDOWN, files.REFUSED}


class LogFile(NamedTuple):
    path: str
    kind: Kind
    base_offset: int
    suffix: str
    """`.deleted`, `.cleaned` or `.swap` for a file in the middle of something."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def topic(self) -> str:
        """By the directory it stands in; empty where that is no partition's."""
        if self.name == BOOTSTRAP:
            return files.METADATA_TOPIC
        place = files.parse_directory(self.path.rpartition("/")[0].rpartition("/")[2])
        return place.topic if place else ""


def recognised(path: str) -> LogFile | None:
    name = path.rpartition("/")[2]
    if segment_file := files.parse_file(name):
        return LogFile(path, _SEGMENT_KINDS[segment_file.kind], segment_file.base_offset, segment_file.suffix)
    if snapshot := _KRAFT_SNAPSHOT.fullmatch(name):
        return LogFile(path, Kind.LOG, int(snapshot[1]), "")
    return LogFile(path, _NAMED[name], 0, "") if name in _NAMED else None


class Partition(NamedTuple):
    """A partition's directory, its files sorted by name."""

    path: str
    files: list[LogFile]
    unknown: list[str]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def of(self, kind: Kind) -> list[LogFile]:
        """Those in use, by offset."""
        return sorted(
            (file for file in self.files if file.kind is kind and not file.suffix), key=lambda f: f.base_offset
        )

    def segments(self) -> list[LogFile]:
        return [file for file in self.of(Kind.LOG) if file.name.endswith(files.LOG)]


def located(disk: Disk, path: str) -> Partition | LogFile:
    """What stands at `path`; anything that is no part of a log is refused with what would be."""
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


def _partition(disk: Disk, path: str, names: list[str]) -> Partition:
    plain = list(disk.scan(path))
    known = [file for name in plain if (file := recognised(f"{path}/{name}"))]
    if any(file.kind is Kind.LOG and file.name.endswith((files.LOG, ".log.deleted")) for file in known):
        unknown = [name for name in plain if not recognised(name) and name not in OTHER_FILES]
        return Partition(path, known, unknown)
    partitions = [name for name in names if name not in plain and _holds_log(disk, f"{path}/{name}")]
    if partitions:
        more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
        raise UserError(
            f"{path}: a data directory. Choose one of its partitions: {', '.join(partitions[:5])}{more}, "
            f"for example {path}/{partitions[0]}"
        )
    raise UserError(f"{path}: no log here: a partition's directory has files such as 00000000000000000000.log")


def _holds_log(disk: Disk, path: str) -> bool:
    """Whether a directory is named like a partition's and has a segment: many a directory is called `name-1`."""
    name = path.rpartition("/")[2]
    return files.parse_directory(name) is not None and any(
        (file := files.parse_file(one)) is not None and file.kind == files.LOG for one in disk.list(path)
    )


@contextmanager
def readable() -> Iterator[None]:
    """Turn what the system says about a file into a sentence."""
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
