"""Committed offsets: what groups have read, and what they will have read once a transaction commits.

Rule 1: `replay` and `replay_marker` are the only mutators.
Rule 2: an offset that is committed in a transaction is pending until the marker. Of two commits of one partition the
        later record wins, also when the earlier one's transaction ends last.
Rule 3: a tombstone takes the offset and whatever is pending for it.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct as Layout
from typing import Final, NamedTuple

from ottla.core.coordination import NO_PRODUCER, CoordinatorRecord, Origin, encode_record
from ottla.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from ottla.wire.types import NO_UUID

_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1  # The only one that has room for an expiry of its own.
NO_EXPIRY: Final = -1

# A value without metadata, as almost every one is: the codec takes ten times as long, and commits are many.
_BARE_VALUE: Final = Layout(">hqibqbbb")  # version, offset, leader epoch, metadata, timestamp, how a tag begins
_EMPTY: Final = 1  # The length of a compact string, plus one.
_TOPIC_ID_FOLLOWS: Final = (1, 0, 16)  # One tagged field, tag 0, of 16 bytes.
_KEYS_REMEMBERED: Final = 10_000

Place = tuple[str, int]
"""Topic and partition."""


class Committed(NamedTuple):
    record_offset: int
    value: OffsetCommitValue


class Offsets:
    def __init__(self) -> None:
        self.by_group: dict[str, dict[Place, Committed]] = {}
        self.pending: dict[int, dict[str, dict[Place, Committed]]] = {}
        """By producer."""
        self._open: dict[str, dict[Place, dict[int, None]]] = {}
        """By group: the producers whose transactions are open on a partition's offset."""

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: Origin) -> None:
        group_id, place = key.group, (key.topic, key.partition)
        if value is None:
            self._forget(group_id, place)
        elif origin.producer_id == NO_PRODUCER:
            self._put(group_id, place, Committed(origin.offset, value))
        else:
            pending = self.pending.setdefault(origin.producer_id, {}).setdefault(group_id, {})
            pending[place] = Committed(origin.offset, value)
            self._open.setdefault(group_id, {}).setdefault(place, {})[origin.producer_id] = None

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        for group_id, places in self.pending.pop(producer_id, {}).items():
            for place, offset in places.items():
                self._close(group_id, place, producer_id)
                known = self.by_group.get(group_id, {}).get(place)
                if committed and (known is None or offset.record_offset > known.record_offset):
                    self._put(group_id, place, offset)

    def _put(self, group_id: str, place: Place, offset: Committed) -> None:
        known = self.by_group.get(group_id)
        if known is None:
            known = self.by_group[group_id] = {}
        known[place] = offset

    def _forget(self, group_id: str, place: Place) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self.by_group[group_id]
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

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        offsets = self.by_group.get(group_id)
        found = offsets.get((topic, partition)) if offsets is not None else None
        return found.value if found is not None else None

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        places = self._open.get(group_id)
        return places is not None and (topic, partition) in places

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def places(self, group_id: str) -> Iterator[Place]:
        """Every partition that has an offset of the group, committed or pending."""
        known = self.by_group.get(group_id, {})
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
                    if topic_id is not None and offset.value.topic_id in (NO_UUID, topic_id):
                        gone[group_id, place] = None
        return [tombstone(group_id, place) for group_id, place in gone]


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
    key, key_bytes = _key(group_id, topic, partition)
    if expire_ms != NO_EXPIRY:
        return CoordinatorRecord(key, value, _EXPIRING_VALUE_VERSION)
    if metadata or topic_id == NO_UUID:
        return CoordinatorRecord(key, value, _VALUE_VERSION)
    value_bytes = _BARE_VALUE.pack(_VALUE_VERSION, offset, value.leader_epoch, _EMPTY, now_ms, *_TOPIC_ID_FOLLOWS)
    return CoordinatorRecord(key, value, _VALUE_VERSION, (key_bytes, value_bytes + topic_id))


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _key(group_id: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    """A consumer commits the same partitions over and over."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return key, encode_record(CoordinatorRecord(key, None))[0]


def tombstone(group_id: str, place: Place) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=place[0], partition=place[1]), None)
