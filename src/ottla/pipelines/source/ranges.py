"""Decides which offsets of which partitions a pipeline reads next. Pure: it gets what the cluster holds as values.

Rule 1: a position is the next offset to read of each partition, with the topics' ids: offsets of another topic with the
        same name mean other records. An epoch is two positions. It reads everything between them once, however often it
        is planned again.
Rule 2: a partition without a position is new and is read from offset 0.
Rule 3: an epoch whose end is before its start reads nothing. It moves the position back into a log that was truncated
        or created again, and the next epoch reads from there. So two positions describe an epoch, also after a restart.
Rule 4: offsets that were to be read and are gone are reported as a `Loss`. None is skipped without a report.
Rule 5: a limit is divided in proportion to what each partition has left, so that all partitions reach their ends
        together. Otherwise one partition's events would move the watermark past the events of the others. Partitions
        whose share is less than one offset take turns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_from_text, uuid_to_text

PartitionOffsets = dict[TopicPartition, int]
_ID: Final = "id"


class LogBounds(NamedTuple):
    """The offsets that a partition holds at present: from `start` to before `end`."""

    start: int
    end: int
    topic_id: bytes = NO_UUID


LogsByPartition = Mapping[TopicPartition, LogBounds]


class OffsetRange(NamedTuple):
    """The offsets that one task reads: from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = NO_UUID

    @property
    def size(self) -> int:
        return self.end - self.start


class LossKind(StrEnum):
    REMOVED = "removed"
    """Retention or a DeleteRecords request removed them before they were read."""
    CUT = "cut"
    """The log ends before the position: a leader lost its end, or it is another topic with the same name."""
    RECREATED = "recreated"
    """The topic was deleted and created again."""
    DELETED = "deleted"
    """The partition no longer exists."""


class Loss(NamedTuple):
    """Offsets that were to be read and are gone. For DELETED and RECREATED their number is not known."""

    kind: LossKind
    partition: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        where = f"topic {self.partition.topic}, partition {self.partition.partition}"
        match self.kind:
            case LossKind.REMOVED:
                return f"{where}: offsets {self.start:,} to {self.end - 1:,} were removed before they were read"
            case LossKind.CUT:
                return f"{where}: the log ends at {self.start:,}, and the pipeline had reached {self.end:,}"
            case LossKind.RECREATED:
                return f"{where}: the topic was deleted and created again; the pipeline had reached {self.end:,}"
            case LossKind.DELETED:
                return f"{where} no longer exists; the pipeline had reached {self.start:,}"


def to_document(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """A position as Spark keeps it: {"orders": {"0": 42, "id": "mIo3...Q"}}. Equal positions give equal texts."""
    document: dict[str, dict[str, Any]] = {}
    for partition, offset in sorted(offsets.items()):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    for topic, entry in document.items():
        if topic_ids.get(topic, NO_UUID) != NO_UUID:
            entry[_ID] = uuid_to_text(topic_ids[topic])
    return document


def from_document(document: Mapping[str, Mapping[str, Any]]) -> PartitionOffsets:
    """Read the offsets from a position that Spark has kept (`to_document`)."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, entry in document.items()
        for partition, offset in entry.items()
        if partition != _ID
    }


def topic_ids_from(document: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The ids of a position's topics; old brokers have none."""
    return {topic: uuid_from_text(entry[_ID]) for topic, entry in document.items() if _ID in entry}


def share(lags: Mapping[TopicPartition, int], limit: int, served: Mapping[TopicPartition, int]) -> PartitionOffsets:
    """How many offsets of its lag each partition may read (rule 5). `served` is the epoch in which it last read any."""
    behind = {partition: lag for partition, lag in sorted(lags.items()) if lag > 0}
    total = sum(behind.values())
    if total <= limit:
        return behind
    taken = {partition: lag * limit // total for partition, lag in behind.items()}
    # Rounding leaves some offsets. Partitions that would read nothing get them first, the longest waiting first.
    left = limit - sum(taken.values())
    rounded = [partition for partition, lag in behind.items() if lag * limit % total]
    rounded.sort(key=lambda partition: (taken[partition] > 0, served.get(partition, -1)))
    for partition in rounded[:left]:
        taken[partition] += 1
    return taken


def ranges_between(
    start: Mapping[TopicPartition, int], end: PartitionOffsets, logs: LogsByPartition, topic_ids: Mapping[str, bytes]
) -> tuple[list[OffsetRange], list[Loss]]:
    """The ranges that an epoch reads, and what is missing in the logs; `topic_ids` are those of the epoch's end."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for partition, last in sorted(end.items()):
        first = start.get(partition, 0)
        if first >= last:
            continue
        log = logs.get(partition)
        if log is None:
            losses.append(Loss(LossKind.DELETED, partition, first, last))
            continue
        if _is_another(topic_ids.get(partition.topic, NO_UUID), log.topic_id):
            losses.append(Loss(LossKind.RECREATED, partition, first, last))
            continue
        found = OffsetRange(partition, max(first, log.start), min(last, log.end), log.topic_id)
        if first < log.start:
            losses.append(Loss(LossKind.REMOVED, partition, first, min(log.start, last)))
        if log.end < last:
            losses.append(Loss(LossKind.CUT, partition, max(log.end, first), last))
        if found.size > 0:
            ranges.append(found)
    return ranges, losses


def split(ranges: Iterable[OffsetRange], partitions_min: int) -> list[OffsetRange]:
    """The same offsets in at least `partitions_min` ranges, if there are that many offsets; larger ranges are split."""
    whole = list(ranges)
    total = sum(one.size for one in whole)
    if len(whole) >= partitions_min or total == 0:
        return whole
    pieces: list[OffsetRange] = []
    for one in whole:
        count = min(one.size, -(-one.size * partitions_min // total))
        cuts = [one.start + one.size * cut // count for cut in range(count + 1)]
        pieces += [one._replace(start=first, end=last) for first, last in pairwise(cuts)]
    return pieces


class PlannedEpoch(NamedTuple):
    """Where the next epoch ends, and what was found missing while it was planned."""

    end: PartitionOffsets
    topic_ids: dict[str, bytes]
    losses: list[Loss]
    records: int
    """How many offsets the epoch reads."""


@dataclass(frozen=True)
class EndOfReading:
    """The offsets at which a bounded read ends. Other partitions are not read."""

    offsets: Mapping[TopicPartition, int]


class TopicProgress:
    """The position of a running pipeline in its topics, and the plan of its next epoch."""

    def __init__(self) -> None:
        self._position: PartitionOffsets | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._missed: set[TopicPartition] = set()
        self._served: PartitionOffsets = {}
        self._epochs = 0

    @property
    def position(self) -> PartitionOffsets | None:
        """None until Spark has told the position, or the start was determined."""
        return self._position

    def at(self, position: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> None:
        """Set the position that the pipeline has reached, or begins at."""
        self._position = dict(position)
        self._topic_ids = dict(topic_ids)

    def advance(self, logs: LogsByPartition, limit: int, until: EndOfReading | None = None) -> PlannedEpoch:
        """Plan the next epoch of at most `limit` offsets, and move the position to its end."""
        assert self._position is not None, "no epoch can be planned before the position is known"
        readable = logs if until is None else {one: log for one, log in logs.items() if one in until.offsets}
        bases: PartitionOffsets = {}
        lags: PartitionOffsets = {}
        losses = list(self._deleted(logs))
        for partition, log in readable.items():
            position = self._position.get(partition, 0)
            base, loss = self._base(partition, position, log)
            if loss is not None:
                losses.append(loss)
            last = log.end if until is None else min(log.end, until.offsets[partition])
            bases[partition] = base
            lags[partition] = max(0, last - base) if base >= position else 0  # Rule 3: only move back.
        self._topic_ids |= {partition.topic: log.topic_id for partition, log in logs.items()}
        taken = share(lags, limit, self._served)
        self._served |= {partition: self._epochs for partition, records in taken.items() if records}
        self._epochs += 1
        end = self._position | {partition: base + taken.get(partition, 0) for partition, base in bases.items()}
        self._position = end
        return PlannedEpoch(dict(end), dict(self._topic_ids), losses, sum(taken.values()))

    def _base(self, partition: TopicPartition, position: int, log: LogBounds) -> tuple[int, Loss | None]:
        """The offset to read next. Offsets removed by retention are reported later, by `ranges_between`."""
        known = self._topic_ids.get(partition.topic, NO_UUID)
        if _is_another(known, log.topic_id) and position > 0:
            return log.start, Loss(LossKind.RECREATED, partition, log.start, position)
        if position > log.end:
            # The same topic lost its end. Without ids it may be another topic, which is read from its start.
            base = log.end if known != NO_UUID else log.start
            return base, Loss(LossKind.CUT, partition, log.end, position)
        return max(position, log.start), None

    def _deleted(self, logs: LogsByPartition) -> Iterable[Loss]:
        """Each deleted partition is reported once, unless it is created again in between."""
        for partition, position in sorted((self._position or {}).items()):
            if partition not in logs and partition not in self._missed:
                self._missed.add(partition)
                yield Loss(LossKind.DELETED, partition, position, position)
        self._missed -= set(logs)


def _is_another(known: bytes, found: bytes) -> bool:
    """Whether the ids show another topic with the same name; False if one of them is not known."""
    return NO_UUID not in (known, found) and known != found
