"""Compare a log with the records of its last close, to detect lost files.

Checkpoints, snapshots and the summary of a clean close each state where the log ended or how long its segments were.
None of them is needed to read the log, so each can reveal that part of it is missing. Every function returns the text
of the refusal, or None.
"""

from typing import NamedTuple

from ottla.core.log import files
from ottla.core.log.files import file_name
from ottla.core.log.segment import Segment
from ottla.core.log.summary import BadSummary, decode_summary
from ottla.observe.trace import warn
from ottla.storage.atomic import parent, read_whole, write_whole
from ottla.storage.partition_files import PartitionFiles

_REMEDY = (
    "Restore what is missing, or remove the partition's directory to start from another replica; "
    "`ottla log verify` shows what can still be read"
)


class LastClose(NamedTuple):
    """How the log was closed last, as the checkpoints of its log directory say."""

    clean: bool = False
    by_ottla: bool = False
    """Only with `clean`: Ottla, not Kafka, shut down, so the segment summary belongs to that shutdown."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_up_to: int = 0


def note_refused(here: PartitionFiles, left: LastClose, reason: str) -> None:
    """Write a file that keeps the next open as strict as this one, which found a cleanly closed log damaged."""
    text = (
        f"left-by={'ottla' if left.by_ottla else 'kafka'}\n{reason}\n\n"
        f"The log is opened when this is mended. Without this file it is opened as after a crash, with whatever is "
        f"missing.\n"
    )
    write_whole(here.disk, f"{here.path}/{files.REFUSED}", text.encode())


def left_before_refusal(here: PartitionFiles, left: LastClose) -> LastClose:
    """The last close of a log that has been refused since; the log has not changed in between."""
    data = read_whole(here.disk, f"{here.path}/{files.REFUSED}") or b""
    return left._replace(clean=True, by_ottla=data.startswith(b"left-by=ottla"))


def end_fault(here: PartitionFiles, left: LastClose, end_offset: int) -> str | None:
    """Check that the log ends where it ended at the last close. After a crash it may be longer, not shorter."""
    log_directory = parent(here.path)
    if end_offset < left.recovery_point:
        return (
            f"{here.path} ends at offset {end_offset}, but everything up to offset {left.recovery_point} had been "
            f"synced ({log_directory}/{files.RECOVERY_POINTS}): files are missing or were cut. {_REMEDY}"
        )
    if not left.clean:
        return None
    newest = max(here.snapshots, default=0)
    if end_offset < newest:
        return (
            f"{here.path} ends at offset {end_offset}, but {file_name(newest, files.SNAPSHOT)} says that it was closed "
            f"at {newest}: files are missing or were cut. {_REMEDY}"
        )
    if 0 < left.recovery_point < end_offset and end_offset != newest:
        return (
            f"{here.path} ends at offset {end_offset}, but it was closed at {left.recovery_point} "
            f"({log_directory}/{files.RECOVERY_POINTS}): its last batch is damaged. {_REMEDY}"
        )
    if left.log_start_offset > end_offset:
        return (
            f"{log_directory}/{files.LOG_STARTS} says that {here.path} starts at offset {left.log_start_offset}, but "
            f"it ends at {end_offset}: correct the line, or remove it to have all records back"
        )
    return None


def segments_fault(here: PartitionFiles, segments: list[Segment]) -> str | None:
    """Check that the segments are the ones in the summary of the last clean close, with the same sizes."""
    data = read_whole(here.disk, f"{here.path}/{files.SEGMENT_SUMMARY}") if here.has_summary else None
    if data is None:
        return None
    try:
        _, entries = decode_summary(data)
    except BadSummary as error:
        warn("summary.unreadable", path=here.path, reason=error)
        return None
    sizes = {segment.base_offset: segment.size for segment in segments}
    for entry in entries:
        path, size = f"{here.path}/{file_name(entry.base_offset, files.LOG)}", sizes.pop(entry.base_offset, None)
        if size is None:
            return f"{path} is missing; it had {entry.size} bytes when the log was closed. {_REMEDY}"
        if size != entry.size:
            return f"{path} has {size} bytes; it had {entry.size} when the log was closed. {_REMEDY}"
    for base_offset in sizes:
        return f"{here.path}/{file_name(base_offset, files.LOG)} was not there when the log was closed: move it away"
    return None
