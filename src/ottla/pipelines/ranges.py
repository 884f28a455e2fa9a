"""Which offsets of which partitions a pipeline reads next. Values in, values out: nothing here asks a cluster.

Rule 1: a position is the next offset to read of each partition, with the ids of their topics: offsets of another
        topic of the same name mean other records. An epoch is two positions, and everything between them is read by
        it, once, however often it is planned again.
Rule 2: a partition without a position is new, and read from its very first offset.
Rule 3: an end before the start reads nothing: it takes the position back into a log that was cut or made anew. The next
        epoch reads from there. So two positions say all there is to say, also after a restart.
Rule 4: what was to be read and is gone is a `Loss`, each one named; nothing is passed over without one.
Rule 5: a limit is shared by what is still to be read: all partitions come to their ends at the same time. Time goes on
        evenly in them that way, and no partition runs so far ahead that the others' events come too late for a
        watermark. None waits for ever: those whose share is less than one offset take turns.
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

Offsets = dict[TopicPartition, int]
_ID: Final = "id"


class Log(NamedTuple):
    """What can be read of a partition at present: from `start` to before `end`."""

    start: int
    end: int
    topic_id: bytes = NO_UUID


Logs = Mapping[TopicPartition, Log]


class Range(NamedTuple):
    """What one task reads: from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = NO_UUID

    @property
    def size(self) -> int:
        return self.end - self.start


class LossKind(StrEnum):
    REMOVED = "removed"
    """Retention, or somebody, deleted them before they were read."""
    CUT = "cut"
    """The log ends before the position: its end was lost with a leader, or it is another topic of the same name."""
    MADE_ANEW = "made anew"
    """The topic was deleted and created again."""
    DELETED = "deleted"
    """There is no such partition any more."""


class Loss(NamedTuple):
    """Offsets that were to be read and are not there. Of what is DELETED or MADE_ANEW nobody knows how much it was."""

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
                return f"{where}: the log ends at {self.start:,}, and the pipeline had come to {self.end:,}"
            case LossKind.MADE_ANEW:
                return f"{where}: the topic was deleted and created again; the pipeline had come to {self.end:,}"
            case LossKind.DELETED:
                return f"{where} does not exist any more; the pipeline had come to {self.start:,}"


def to_document(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """As Spark keeps a position: {"orders": {"0": 42, "id": "mIo3...Q"}}. Spark compares texts: equal ones have one."""
    document: dict[str, dict[str, Any]] = {}
    for partition, offset in sorted(offsets.items()):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offset
    for topic, entry in document.items():
        if topic_ids.get(topic, NO_UUID) != NO_UUID:
            entry[_ID] = uuid_to_text(topic_ids[topic])
    return document


def from_document(document: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """The offsets of a position."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, entry in document.items()
        for partition, offset in entry.items()
        if partition != _ID
    }


def topic_ids_from(document: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The ids of a position's topics, as far as brokers told them."""
    return {topic: uuid_from_text(entry[_ID]) for topic, entry in document.items() if _ID in entry}


def share(lags: Mapping[TopicPartition, int], limit: int, served: Mapping[TopicPartition, int]) -> Offsets:
    """How much of its lag each partition may read (rule 5); `served` says in which epoch it last had a share."""
    behind = {partition: lag for partition, lag in sorted(lags.items()) if lag > 0}
    total = sum(behind.values())
    if total <= limit:
        return behind
    taken = {partition: lag * limit // total for partition, lag in behind.items()}
    # Rounding left less than one for each of them: first to those that would have nothing, the longest waiting first.
    left = limit - sum(taken.values())
    rounded = [partition for partition, lag in behind.items() if lag * limit % total]
    rounded.sort(key=lambda partition: (taken[partition] > 0, served.get(partition, -1)))
    for partition in rounded[:left]:
        taken[partition] += 1
    return taken


def ranges_between(
    start: Mapping[TopicPartition, int], end: Offsets, logs: Logs, topic_ids: Mapping[str, bytes]
) -> tuple[list[Range], list[Loss]]:
    """What an epoch reads of what is there now, and what it does not find; `topic_ids` are those of its end."""
    ranges: list[Range] = []
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
            losses.append(Loss(LossKind.MADE_ANEW, partition, first, last))
            continue
        found = Range(partition, max(first, log.start), min(last, log.end), log.topic_id)
        if first < log.start:
            losses.append(Loss(LossKind.REMOVED, partition, first, min(log.start, last)))
        if log.end < last:
            losses.append(Loss(LossKind.CUT, partition, max(log.end, first), last))
        if found.size > 0:
            ranges.append(found)
    return ranges, losses


def split(ranges: Iterable[Range], partitions_min: int) -> list[Range]:
    """The same offsets in at least so many ranges, as long as there are as many offsets; larger ones are cut finer."""
    whole = list(ranges)
    total = sum(one.size for one in whole)
    if len(whole) >= partitions_min or total == 0:
        return whole
    pieces: list[Range] = []
    for one in whole:
        count = min(one.size, -(-one.size * partitions_min // total))
        cuts = [one.start + one.size * cut // count for cut in range(count + 1)]
        pieces += [one._replace(start=first, end=last) for first, last in pairwise(cuts)]
    return pieces


class Epoch(NamedTuple):
    """Where the next epoch ends, and what was found missing on the way."""

    end: Offsets
    topic_ids: dict[str, bytes]
    losses: list[Loss]
    records: int
    """Offsets between the position and the end that are there to be read."""


@dataclass(frozen=True)
class Until:
    """Where reading ends for good. Partitions that are not named are not read."""

    offsets: Mapping[TopicPartition, int]


class Progress:
    """The position of a running pipeline in its topics, and what it knows of them."""

    def __init__(self) -> None:
        self._position: Offsets | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._missed: set[TopicPartition] = set()
        self._served: Offsets = {}
        self._epochs = 0

    @property
    def position(self) -> Offsets | None:
        """None: nobody has said yet where the pipeline is."""
        return self._position

    def at(self, position: Mapping[TopicPartition, int], topic_ids: Mapping[str, bytes]) -> None:
        """The pipeline has come here, or was told to begin here."""
        self._position = dict(position)
        self._topic_ids = dict(topic_ids)

    def advance(self, logs: Logs, limit: int, until: Until | None = None) -> Epoch:
        """Plan the next epoch, of at most `limit` offsets."""
        assert self._position is not None, "no epoch can be planned before the position is known"
        readable = logs if until is None else {one: log for one, log in logs.items() if one in until.offsets}
        bases: Offsets = {}
        lags: Offsets = {}
        losses = list(self._deleted(logs))
        for partition, log in readable.items():
            position = self._position.get(partition, 0)
            base, loss = self._base(partition, position, log)
            if loss is not None:
                losses.append(loss)
            last = log.end if until is None else min(log.end, until.offsets[partition])
            bases[partition] = base
            lags[partition] = max(0, last - base) if base >= position else 0  # Rule 3: back first, then on.
        self._topic_ids |= {partition.topic: log.topic_id for partition, log in logs.items()}
        taken = share(lags, limit, self._served)
        self._served |= {partition: self._epochs for partition, records in taken.items() if records}
        self._epochs += 1
        end = self._position | {partition: base + taken.get(partition, 0) for partition, base in bases.items()}
        self._position = end
        return Epoch(dict(end), dict(self._topic_ids), losses, sum(taken.values()))

    def _base(self, partition: TopicPartition, position: int, log: Log) -> tuple[int, Loss | None]:
        """Where reading goes on; what retention removed is found when the epoch's ranges are made."""
        known = self._topic_ids.get(partition.topic, NO_UUID)
        if _is_another(known, log.topic_id) and position > 0:
            return log.start, Loss(LossKind.MADE_ANEW, partition, log.start, position)
        if position > log.end:
            # The same topic lost its end. If no broker tells whether it is the same, nothing of it is left out.
            base = log.end if known != NO_UUID else log.start
            return base, Loss(LossKind.CUT, partition, log.end, position)
        return max(position, log.start), None

    def _deleted(self, logs: Logs) -> Iterable[Loss]:
        """Each is told once; who is created again later is another log."""
        for partition, position in sorted((self._position or {}).items()):
            if partition not in logs and partition not in self._missed:
                self._missed.add(partition)
                yield Loss(LossKind.DELETED, partition, position, position)
        self._missed -= set(logs)


def _is_another(known: bytes, found: bytes) -> bool:
    """Whether it is another topic of the same name; brokers too old to tell ids never say so."""
    return NO_UUID not in (known, found) and known != found
