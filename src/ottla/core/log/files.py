"""Names of the files and directories of a partition.

The files of a segment share the offset of its first record, in twenty digits: `00000000000000000042.log`, `.index`,
`.timeindex`, `.txnindex`; `.snapshot` holds the producer state before that offset. A second suffix marks an operation
in progress:

  `.cleaned`  being written by the cleaner; incomplete
  `.swap`     a complete cleaned segment about to replace the originals
  `.deleted`  out of use, removed after `file.delete.delay.ms`

Segments that recovery could not use are in a directory `ottla-set-aside-...` inside that of the partition. Kafka
ignores it.

A partition's directory is `topic-partition`; the name ends in `.<32 hex digits>-delete` once the topic is deleted, in
`.<32 hex digits>-future` while it moves between disks, in `.<32 hex digits>-stray` when the cluster does not know it.
"""

import re
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_KINDS = (LOG, *INDEXES)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
SEGMENT_SUMMARY = "ottla-segment-summary"
"""Specific to Ottla; Kafka ignores unknown files."""

REFUSED = "ottla-refused"
"""Specific to Ottla: this log was closed cleanly and then found damaged. It keeps counting as cleanly closed until it
is opened, even if the node crashes meanwhile."""
SET_ASIDE = "ottla-set-aside"
"""Prefix of the directories with segments that recovery could not use."""

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
OWN_CLEAN_SHUTDOWN = "ottla-clean-shutdown"
"""Specific to Ottla, a copy of `.kafka_cleanshutdown`. If the two differ, Kafka shut down last."""
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

METADATA_TOPIC = "__cluster_metadata"

_NAME_BYTES_MAX = 255
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.cleaned|\.swap|\.deleted)?")
_DIRECTORY = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)(?:\.[0-9a-f]{32}-(?P<fate>delete|future|stray))?"
)


class SegmentFile(NamedTuple):
    """The parts of a segment file's name."""

    base_offset: int
    kind: str
    suffix: str


class PartitionDirectory(NamedTuple):
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    fate: str
    """"" for a partition in use, else "delete", "future" or "stray"."""


def file_name(base_offset: int, kind: str, suffix: str = "") -> str:
    return f"{base_offset:020d}{kind}{suffix}"


def parse_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory(name: str) -> PartitionDirectory | None:
    match = _DIRECTORY.fullmatch(name)
    return PartitionDirectory(match["topic"], int(match["partition"]), match["fate"] or "") if match else None


def doomed_directory_name(topic: str, partition: int, unique: str, fate: str = "delete") -> str:
    """The new name of a partition directory to be removed; `unique` is 32 hex digits.

    The topic is shortened if the name would be too long for a file system, as Kafka does.
    """
    tail = f"-{partition}.{unique}-{fate}"
    return topic[: _NAME_BYTES_MAX - len(tail)] + tail
