"""Which segments have outlived their use.

Rule 1: only from the front, one after another, and only what lies wholly below the high watermark.
Rule 2: the active segment goes only when everything does; it is closed first, so that only closed segments go.
Rule 3: a topic that is only compacted loses nothing by time or size; what lies before the log start always goes.
Rule 4: a segment without timestamps has the time of its file.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from ottla.config import CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS
from ottla.core.log.log import Log
from ottla.core.log.segment import Segment

LargestTimestamp = Callable[[Segment], int]


class Expired(NamedTuple):
    segments: int
    """How many segments go, from the front."""
    reason: str


def expired_segments(log: Log, now_ms: int, largest_timestamp: LargestTimestamp) -> Expired | None:
    """What retention by log start, size and time removes now; the first that finds something decides."""
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


def _beyond_size(log: Log) -> int:
    limit = log.config[RETENTION_BYTES]
    if limit < 0:
        return 0
    excess = log.size - limit

    def fits_in_excess(index: int) -> bool:
        nonlocal excess
        excess -= log.segments[index].size
        return excess >= 0

    return _leading(log, fits_in_excess)


def _leading(log: Log, goes: Callable[[int], bool]) -> int:
    count = 0
    for index, segment in enumerate(log.segments):
        is_last = index + 1 == len(log.segments)
        if log.end_of(index) > log.high_watermark or (is_last and segment.size == 0) or not goes(index):
            break
        count += 1
    return count


def beyond_topic_limit(
    logs: Iterable[Log], limit_bytes: int, largest_timestamp: Callable[[Log, Segment], int]
) -> dict[str, int]:
    """How many leading segments of each partition go so that a whole topic keeps to `limit_bytes`.

    `retention.bytes` is per partition and nothing in Kafka limits a topic. Here the oldest closed segment over all
    partitions goes first, as if the topic were one log, until the rest is within the limit; active segments stay.
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


def _closed_and_committed(log: Log) -> int:
    return _leading(log, lambda index: index + 1 < len(log.segments))
