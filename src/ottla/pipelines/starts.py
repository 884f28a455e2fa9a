"""Where a pipeline without a checkpoint begins.

Rule 1: what is not there cannot be begun with. An offset that retention has removed, or that the log has not reached,
        is a loss; a partition that does not exist is a mistake.
Rule 2: who asks for all there is and finds nothing, or not the beginning, is told so: records with times of long ago
        are removed within the hour, and a pipeline that reads none of them looks as if all were well.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.pipelines.ranges import Log, Logs, Loss, LossKind, Offsets
from ottla.pipelines.spec import Start


class NoSuchPartition(Exception):
    """The start names a partition that does not exist."""


class Late(NamedTuple):
    """A topic whose beginning is not there (any more)."""

    topic: str
    removed: int
    """How many offsets of it are gone, or were never readable."""
    empty: bool


class Beginning(NamedTuple):
    offsets: Offsets
    losses: list[Loss]
    late: list[Late]


def begin(start: Start, logs: Logs, at_time: Mapping[TopicPartition, int]) -> Beginning:
    """`at_time` has the first offset at or after the start's time, where that is one."""
    if start.place == "latest":
        return Beginning({partition: log.end for partition, log in logs.items()}, [], [])
    if start.time_ms is not None:
        # Where the first record that is left is late enough, those before it may have been, too.
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


def _late(logs: Logs) -> list[Late]:
    by_topic: dict[str, list[Log]] = {}
    for partition, log in sorted(logs.items()):
        by_topic.setdefault(partition.topic, []).append(log)
    found = [
        Late(topic, sum(log.start for log in held), all(log.start == log.end for log in held))
        for topic, held in by_topic.items()
    ]
    return [one for one in found if one.empty or one.removed]
