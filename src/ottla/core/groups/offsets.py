"""The committed offsets of groups, and the pending offsets of open transactions.

Rule 1: `replay` and `replay_marker` are the only mutators.
Rule 2: an offset that is committed in a transaction is pending until the marker is replayed. Of two commits for one
        partition the later record wins, even if the transaction of the earlier one ends last.
Rule 3: a tombstone removes the offset and all pending offsets of the partition.
Rule 4: the last commit of a group is stored unprocessed until an offset is read or other partitions are committed. Most
        commits are never read: the next commit of the same partitions replaces them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count, repeat
from operator import is_
from struct import Struct as Layout
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.core.runtime.shard import NO_PRODUCER, CoordinatorRecord, RecordOrigin, RecordRun, encode_record
from ottla.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from ottla.wire.types import NO_UUID

_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1  # The only version with a field for an expiry time.
NO_EXPIRY: Final = -1

# The layout of a value without metadata, which almost all values are. The general codec takes ten times as long.
_BARE_VALUE: Final = Layout(">hqibqbbb16s")  # version, offset, leader epoch, metadata, timestamp, a tag with the id
_EMPTY: Final = 1  # The length of an empty compact string, plus one.
_TOPIC_ID_FOLLOWS: Final = (1, 0, 16)  # One tagged field, tag 0, of 16 bytes.
_TOPICS_REMEMBERED: Final = 10_000

Place = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(NamedTuple):
    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> "CommittedOffset":
        return cls(
            record_offset,
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )


_NO_OFFSETS: Final[Mapping[Place, CommittedOffset]] = MappingProxyType({})


class Offsets:
    def __init__(self) -> None:
        self._put_down: dict[str, dict[Place, CommittedOffset]] = {}
        self._latest: dict[str, tuple[OffsetCommits, int]] = {}
        """By group: the last commit, not yet in `_put_down`, and the offset of its first record (Rule 4)."""
        self.pending: dict[int, dict[str, dict[Place, CommittedOffset]]] = {}
        """Offsets of open transactions, by producer id, group and partition."""
        self._open: dict[str, dict[Place, dict[int, None]]] = {}
        """By group and partition: the ids of the producers with a pending offset for the partition."""

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: RecordOrigin) -> None:
        group_id, place = key.group, (key.topic, key.partition)
        if value is None:
            self._forget(group_id, place)
        elif origin.producer_id == NO_PRODUCER:
            self._put(group_id, place, CommittedOffset.from_record(origin.offset, value))
        else:
            pending = self.pending.setdefault(origin.producer_id, {}).setdefault(group_id, {})
            pending[place] = CommittedOffset.from_record(origin.offset, value)
            self._open.setdefault(group_id, {}).setdefault(place, {})[origin.producer_id] = None

    def replay_commits(self, commits: "OffsetCommits", first_offset: int) -> None:
        """Has the same effect as `replay` of each record."""
        latest = self._latest.get(commits.group_id)
        if latest is not None and not commits.replaces(latest[0]):
            self._put_latest(commits.group_id)
        self._latest[commits.group_id] = commits, first_offset

    def _put_latest(self, group_id: str) -> None:
        latest = self._latest.pop(group_id, None)
        if latest is not None:
            commits, first_offset = latest
            known = self._put_down.setdefault(group_id, {})
            known.update(zip(commits.places, commits.committed(first_offset), strict=True))

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        for group_id, places in self.pending.pop(producer_id, {}).items():
            for place, offset in places.items():
                self._close(group_id, place, producer_id)
                known = self.get(group_id, *place)
                if committed and (known is None or offset.record_offset > known.record_offset):
                    self._put(group_id, place, offset)

    def _put(self, group_id: str, place: Place, offset: CommittedOffset) -> None:
        self._put_latest(group_id)
        self._put_down.setdefault(group_id, {})[place] = offset

    def _forget(self, group_id: str, place: Place) -> None:
        self._put_latest(group_id)
        offsets = self._put_down.get(group_id)
        if offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self._put_down[group_id]
        for producer_id in [*self._open.get(group_id, {}).get(place, ())]:
            groups = self.pending[producer_id]
            groups[group_id].pop(place, None)
            if not groups[group_id]:
                del groups[group_id]
            if not groups:
                del self.pending[producer_id]
            self._close(group_id, place, producer_id)

    def _close(self, group_id: str, place: Place, producer_id: int) -> None:
        places = self._open[group_id]
        places[place].pop(producer_id, None)
        if not places[place]:
            del places[place]
        if not places:
            del self._open[group_id]

    # Reading.

    @property
    def by_group(self) -> dict[str, dict[Place, CommittedOffset]]:
        """The committed offsets of all groups, by group and partition."""
        for group_id in [*self._latest]:
            self._put_latest(group_id)
        return self._put_down

    def of(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        self._put_latest(group_id)
        return self._put_down.get(group_id, _NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of(group_id).get((topic, partition))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        places = self._open.get(group_id)
        return places is not None and (topic, partition) in places

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def places(self, group_id: str) -> Iterator[Place]:
        """Every partition that has an offset of the group, committed or pending."""
        known = self.of(group_id)
        yield from known
        yield from (place for place in self._open.get(group_id, ()) if place not in known)

    # Records.

    def tombstones_of_topics(self, topics: dict[str, bytes]) -> list[CoordinatorRecord]:
        """Tombstones for the offsets of deleted topics (id by name). Offsets of a new topic with that name stay."""
        gone: dict[tuple[str, Place], None] = {}
        for groups in (self.by_group, *self.pending.values()):
            for group_id, places in groups.items():
                for place, offset in places.items():
                    topic_id = topics.get(place[0])
                    if topic_id is not None and offset.topic_id in (NO_UUID, topic_id):
                        gone[group_id, place] = None
        return [tombstone(group_id, place) for group_id, place in gone]


class OffsetCommits(RecordRun):
    """The records of one commit without metadata, which almost all commits are.

    A consumer commits all its partitions every few seconds. Processing the request by columns runs most loops inside
    the interpreter instead of in Python code. A commit of some 50 partitions takes a third of the time.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.size = 0
        self._now_ms = now_ms
        self._offsets: list[int] = []
        self._leader_epochs: list[int] = []
        self._topic_ids: list[bytes] = []
        self._known: list[_Places] = []

    def add(
        self, topic: str, topic_id: bytes, indexes: Sequence[int], offsets: Sequence[int], leader_epochs: Sequence[int]
    ) -> None:
        """Add partitions of a topic. `topic_id` must be known, and no leader epoch may be less than -1."""
        now_ms = self._now_ms
        known = _known_places(self.group_id, topic).of(indexes)
        self._known.append(known)
        self.keys += known.keys
        self.size += known.size + len(indexes) * _BARE_VALUE.size
        tail = (repeat(_EMPTY), repeat(now_ms), *map(repeat, _TOPIC_ID_FOLLOWS), repeat(topic_id))
        self.values += map(_BARE_VALUE.pack, repeat(_VALUE_VERSION), offsets, leader_epochs, *tail)
        self._offsets += offsets
        self._leader_epochs += leader_epochs
        self._topic_ids += [topic_id] * len(indexes)

    @property
    def places(self) -> list[Place]:
        return [place for known in self._known for place in known.places]

    def replaces(self, other: "OffsetCommits") -> bool:
        """Whether both commit the same partitions. Compares object identity, so equal partitions may return False."""
        return len(self._known) == len(other._known) and all(map(is_, self._known, other._known))

    def committed(self, first_offset: int) -> Iterator[CommittedOffset]:
        """The committed offsets, if the first record has the offset `first_offset`."""
        told = zip(
            count(first_offset),
            self._offsets,
            self._leader_epochs,
            repeat(""),
            repeat(self._now_ms),
            repeat(NO_EXPIRY),
            self._topic_ids,
            strict=False,  # `count` and `repeat` are infinite.
        )
        # Bypasses the constructor of the named tuple for speed: a commit may have hundreds of partitions.
        return map(tuple.__new__, repeat(CommittedOffset), told)

    def replay(self, shard: Any, first_offset: int) -> None:
        shard.replay_commits(self, first_offset)

    def record(self, number: int) -> CoordinatorRecord:
        topic, partition = self.places[number]
        return offset_record(
            self.group_id,
            topic,
            partition,
            offset=self._offsets[number],
            leader_epoch=self._leader_epochs[number],
            metadata=None,
            now_ms=self._now_ms,
            topic_id=self._topic_ids[number],
        )


class _Places(NamedTuple):
    places: list[Place]
    keys: list[bytes]
    size: int
    """Total size of the keys in bytes."""


class _KnownPlaces(dict[int, tuple[Place, bytes]]):
    """Partitions of a topic that a group has committed, each with the key of its record."""

    def __init__(self, group_id: str, topic: str) -> None:
        self._group_id = group_id
        self._topic = topic
        self._last: tuple[int, ...] = ()
        self._last_found = _Places([], [], 0)

    def of(self, told: Sequence[int]) -> "_Places":
        """The places and keys of these partitions. Returns the same object if they equal those of the last call."""
        indexes = tuple(told)
        if indexes != self._last:
            found = [self[index] for index in indexes]
            keys = [key for _, key in found]
            self._last, self._last_found = indexes, _Places([place for place, _ in found], keys, sum(map(len, keys)))
        return self._last_found

    def __missing__(self, partition: int) -> tuple[Place, bytes]:
        key = OffsetCommitKey(group=self._group_id, topic=self._topic, partition=partition)
        found = self[partition] = (self._topic, partition), encode_record(CoordinatorRecord(key, None))[0]
        return found


@lru_cache(maxsize=_TOPICS_REMEMBERED)
def _known_places(group_id: str, topic: str) -> _KnownPlaces:
    return _KnownPlaces(group_id, topic)


def offset_record(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str | None,
    now_ms: int,
    expire_ms: int = NO_EXPIRY,
    topic_id: bytes = NO_UUID,
) -> CoordinatorRecord:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch if leader_epoch >= 0 else -1,
        metadata=metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, value, _VALUE_VERSION if expire_ms == NO_EXPIRY else _EXPIRING_VALUE_VERSION)


def tombstone(group_id: str, place: Place) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), None)
