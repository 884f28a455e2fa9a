"""Which segments retention removes.

Rule 1: only from the front, one after another, and only segments wholly below the high watermark.
Rule 2: the active segment is removed only if all others are; it is closed first, so that only closed segments are
        removed.
Rule 3: a topic that is only compacted loses nothing by time or size. Segments before the log start are always removed.
Rule 4: a segment without timestamps has the time of its file.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from ottla.config import CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState

LargestTimestamp = Callable[[Segment], int]


class Expired(NamedTuple):
    """The result of a retention check."""

    segments: int
    """The number of segments to remove, from the front."""
    reason: str


def expired_segments(log: LogState, now_ms: int, largest_timestamp: LargestTimestamp) -> Expired | None:
    """The segments to remove by log start, size or time; the first of the three that removes any decides."""
    before_start = _leading(
        log, lambda index: index + 1 < len(log.segments) and log.end_of(index) <= log.log_start_offset
    )
    if before_start:
        return Expired(before_start, f"before log start offset {log.log_start_offset}")
    if "delete" not in log.config[CLEANUP_POLICY]:
        return None
    if too_large := _beyond_size(log):
        return Expired(too_large, f"retention.bytes={log.config[RETENTION_BYTES]}")
    retention_ms = log.config[RETENTION_MS]
    if retention_ms < 0:
        return None
    too_old = _leading(log, lambda index: now_ms - largest_timestamp(log.segments[index]) > retention_ms)
    return Expired(too_old, f"retention.ms={retention_ms}") if too_old else None


def _beyond_size(log: LogState) -> int:
    limit = log.config[RETENTION_BYTES]
    if limit < 0:
        return 0
    excess = log.size - limit

    def fits_in_excess(index: int) -> bool:
        nonlocal excess
        excess -= log.segments[index].size
        return excess >= 0

    return _leading(log, fits_in_excess)


def _leading(log: LogState, goes: Callable[[int], bool]) -> int:
    count = 0
    for index, segment in enumerate(log.segments):
        is_last = index + 1 == len(log.segments)
        if log.end_of(index) > log.high_watermark or (is_last and segment.size == 0) or not goes(index):
            break
        count += 1
    return count


def beyond_topic_limit(
    logs: Iterable[LogState], limit_bytes: int, largest_timestamp: Callable[[LogState, Segment], int]
) -> dict[str, int]:
    """The number of leading segments to remove per partition, so that the whole topic is within `limit_bytes`.

    `retention.bytes` is per partition, and Kafka has no limit for a topic. Here the oldest closed segment of all
    partitions is removed first, as if the topic were one log, until the rest is within the limit. Active segments stay.
    """
    logs = [log for log in logs if "delete" in log.config[CLEANUP_POLICY]]
    excess = sum(log.size for log in logs) - limit_bytes
    going: dict[str, int] = {}
    if limit_bytes < 0 or excess <= 0:
        return going
    oldest = [
        (largest_timestamp(log, log.segments[0]), number)
        for number, log in enumerate(logs)
        if _closed_and_committed(log)
    ]
    heapify(oldest)
    while oldest and excess > 0:
        number = oldest[0][1]
        log = logs[number]
        index = going.get(log.name, 0)
        excess -= log.segments[index].size
        going[log.name] = index + 1
        if index + 1 < _closed_and_committed(log):
            heapreplace(oldest, (largest_timestamp(log, log.segments[index + 1]), number))
        else:
            heappop(oldest)
    return going


def _closed_and_committed(log: LogState) -> int:
    return _leading(log, lambda index: index + 1 < len(log.segments))
