"""Where a pipeline without a checkpoint begins.

Rule 1: a start offset that retention has removed, or that the log has not reached, is a loss. A partition that does not
        exist is a mistake.
Rule 2: a pipeline that starts at the earliest record and finds a topic empty or without its beginning is warned.
        Records with old timestamps are removed within the hour, and reading none of them would otherwise go unnoticed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.pipelines.source.ranges import LogBounds, LogsByPartition, Loss, LossKind, PartitionOffsets
from ottla.pipelines.spec.model import StartPosition


class NoSuchPartition(Exception):
    """The start names a partition that does not exist."""


class TruncatedTopic(NamedTuple):
    """A topic that is empty, or whose first records are gone."""

    topic: str
    removed: int
    """How many offsets at its beginning are gone."""
    empty: bool


class Beginning(NamedTuple):
    offsets: PartitionOffsets
    losses: list[Loss]
    late: list[TruncatedTopic]


def begin(start: StartPosition, logs: LogsByPartition, at_time: Mapping[TopicPartition, int]) -> Beginning:
    """Where to begin. `at_time` has the first offset at or after the start's time, if the start is a time."""
    if start.place == "latest":
        return Beginning({partition: log.end for partition, log in logs.items()}, [], [])
    if start.time_ms is not None:
        # If the first record left is already at or after the time, removed ones may have been too.
        cut = {partition: log for partition, log in logs.items() if 0 < log.start == at_time[partition]}
        return Beginning({partition: at_time[partition] for partition in logs}, [], _late(cut))
    earliest = {partition: log.start for partition, log in logs.items()}
    if not start.offsets:
        return Beginning(earliest, [], _late(logs))
    losses: list[Loss] = []
    for topic, number, offset in start.offsets:
        partition = TopicPartition(topic, number)
        log = logs.get(partition)
        if log is None:
            raise NoSuchPartition(
                f"start names offset {offset:,} of topic {topic}, partition {number}, which does not exist. "
                "Check the topic's name and its number of partitions"
            )
        earliest[partition] = min(max(offset, log.start), log.end)
        if offset < log.start:
            losses.append(Loss(LossKind.REMOVED, partition, offset, log.start))
        elif offset > log.end:
            losses.append(Loss(LossKind.CUT, partition, log.end, offset))
    return Beginning(earliest, losses, [])


def _late(logs: LogsByPartition) -> list[TruncatedTopic]:
    by_topic: dict[str, list[LogBounds]] = {}
    for partition, log in sorted(logs.items()):
        by_topic.setdefault(partition.topic, []).append(log)
    found = [
        TruncatedTopic(topic, sum(log.start for log in held), all(log.start == log.end for log in held))
        for topic, held in by_topic.items()
    ]
    return [one for one in found if one.empty or one.removed]
