"""Committed offsets: what groups have read, and what they will have read once a transaction commits.

Rule 1: `replay` and `replay_marker` are the only mutators.
Rule 2: an offset that is committed in a transaction is pending until the marker. Of two commits of one partition the
        later record wins, also when the earlier one's transaction ends last.
Rule 3: a tombstone takes the offset and whatever is pending for it.
Rule 4: the last commit of a group is kept as it came until somebody looks, or other partitions are committed: most
        commits are never looked at, but replaced by the next one of the same partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count, repeat
from operator import is_
from struct import Struct as Layout
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.core.coordination import NO_PRODUCER, CoordinatorRecord, Origin, RecordRun, encode_record
from ottla.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from ottla.wire.types import NO_UUID

_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1  # The only one that has room for an expiry of its own.
NO_EXPIRY: Final = -1

# A value without metadata, as almost every one is: the codec takes ten times as long, and commits are many.
_BARE_VALUE: Final = Layout(">hqibqbbb16s")  # version, offset, leader epoch, metadata, timestamp, a tag with the id
_EMPTY: Final = 1  # The length of a compact string, plus one.
_TOPIC_ID_FOLLOWS: Final = (1, 0, 16)  # One tagged field, tag 0, of 16 bytes.
_TOPICS_REMEMBERED: Final = 10_000

Place = tuple[str, int]
"""Topic and partition."""


class Committed(NamedTuple):
    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> "Committed":
        return cls(
            record_offset,
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )


_NO_OFFSETS: Final[Mapping[Place, Committed]] = MappingProxyType({})


class Offsets:
    def __init__(self) -> None:
        self._put_down: dict[str, dict[Place, Committed]] = {}
        self._latest: dict[str, tuple[OffsetCommits, int]] = {}
        """By group: a commit that has yet to be put down, and the offset of its first record."""
        self.pending: dict[int, dict[str, dict[Place, Committed]]] = {}
        """By producer."""
        self._open: dict[str, dict[Place, dict[int, None]]] = {}
        """By group: the producers whose transactions are open on a partition's offset."""

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin) -> None:
        group_id, place = key.group, (key.topic, key.partition)
        if value is None:
            self._forget(group_id, place)
        elif origin.producer_id == NO_PRODUCER:
            self._put(group_id, place, Committed.from_record(origin.offset, value))
        else:
            pending = self.pending.setdefault(origin.producer_id, {}).setdefault(group_id, {})
            pending[place] = Committed.from_record(origin.offset, value)
            self._open.setdefault(group_id, {}).setdefault(place, {})[origin.producer_id] = None

    def replay_commits(self, commits: "OffsetCommits", first_offset: int) -> None:
        """As `replay` of each of them."""
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

    def _put(self, group_id: str, place: Place, offset: Committed) -> None:
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

    # Looking.

    @property
    def by_group(self) -> dict[str, dict[Place, Committed]]:
        """The offsets of all groups that have any."""
        for group_id in [*self._latest]:
            self._put_latest(group_id)
        return self._put_down

    def of(self, group_id: str) -> Mapping[Place, Committed]:
        self._put_latest(group_id)
        return self._put_down.get(group_id, _NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
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
        """For topics that were deleted, by name with their ids: an offset of a later topic of that name stays."""
        gone: dict[tuple[str, Place], None] = {}
        for groups in (self.by_group, *self.pending.values()):
            for group_id, places in groups.items():
                for place, offset in places.items():
                    topic_id = topics.get(place[0])
                    if topic_id is not None and offset.topic_id in (NO_UUID, topic_id):
                        gone[group_id, place] = None
        return [tombstone(group_id, place) for group_id, place in gone]


class OffsetCommits(RecordRun):
    """The records of a commit of a group whose partitions come without metadata, as those of almost every one do.

    A consumer commits all its partitions every few seconds. Column by column most of that is the interpreter's own
    loops, not ours: some 50 partitions are committed in a third of the time.
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
        """Partitions of a topic. `topic_id` is known, and no leader epoch is less than -1."""
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
        """They are of the same partitions, as far as that can be told at a glance."""
        return len(self._known) == len(other._known) and all(map(is_, self._known, other._known))

    def committed(self, first_offset: int) -> Iterator[Committed]:
        """What they say, once the first of them has this offset."""
        told = zip(
            count(first_offset),
            self._offsets,
            self._leader_epochs,
            repeat(""),
            repeat(self._now_ms),
            repeat(NO_EXPIRY),
            self._topic_ids,
            strict=False,  # Some of them have no end.
        )
        # Without the function that a named tuple puts in between: a commit may have hundreds of partitions.
        return map(tuple.__new__, repeat(Committed), told)

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
    """Of the keys."""


class _KnownPlaces(dict[int, tuple[Place, bytes]]):
    """Partitions of a topic that a group has committed, each with the key of its record."""

    def __init__(self, group_id: str, topic: str) -> None:
        self._group_id = group_id
        self._topic = topic
        self._last: tuple[int, ...] = ()
        self._last_found = _Places([], [], 0)

    def of(self, told: Sequence[int]) -> "_Places":
        """These partitions: mostly those of the last time, which are the same object then."""
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
