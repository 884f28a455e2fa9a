"""The records of one decision about a consumer group, by a shorter way into the log and into the group.

Everyone who joins changes the parts of others: a group that forms writes several records for each request.

Rule 1: the bytes are those that `records` would give, and what they make of the group is what replaying them would.
        Whoever looks at a record of the run gets it decoded from its bytes.
Rule 2: a group that does not exist yet is made by its records as they are replayed one by one.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct
from typing import Any, Final, overload

from ottla.core.coordination import CoordinatorRecord, RecordRun, RecordTypes, encode_record
from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import Member
from ottla.wire.codec import encode, encode_parts
from ottla.wire.records import consumer_groups as wire

_TYPES: Final = RecordTypes(wire)
_TYPE: Final = Struct(">h")
_VERSION: Final = _TYPE.pack(0)
_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT = map(_TYPE.pack, (3, 5, 6, 7, 8))
_KEYS_REMEMBERED: Final = 10_000
_LENGTHS_OF_TWO_BYTES: Final = 127
"""From so many on, the length of an array takes more than one byte."""


class GroupRecords(RecordRun):
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.size = 0
        self._changes: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What each of them does to the group."""

    # What is decided.

    def member(self, member: Member) -> None:
        value = _encoded(written.member_value(member))
        self._add(_MEMBER + _member_key(self.group_id, member.member_id), value, ConsumerGroup.put_member, member)

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        value = _encoded(wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))
        self._add(_EPOCH + _group_key(self.group_id), value, ConsumerGroup.put_epoch, epoch, metadata_hash)

    def target(self, member_id: str, part: Assignment) -> None:
        key = _TARGET + _member_key(self.group_id, member_id)
        self._add(key, _target(part), ConsumerGroup.put_target, member_id, part)

    def target_epoch(self, epoch: int, timestamp: int) -> None:
        value = _encoded(
            wire.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
        )
        self._add(_TARGET_EPOCH + _group_key(self.group_id), value, ConsumerGroup.put_target_epoch, epoch, timestamp)

    def current(self, member: Member) -> None:
        value = _encoded(written.current_value(member))
        self._add(_CURRENT + _member_key(self.group_id, member.member_id), value, ConsumerGroup.put_member, member)

    def other(self, record: CoordinatorRecord) -> None:
        self._add(*encode_record(record), ConsumerGroup.replay, record.key, record.value)

    def _add(self, key: bytes, value: bytes | None, change: Callable[..., None], *told: Any) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.size += len(key) + (0 if value is None else len(value))
        self._changes.append((change, told))

    # As a run.

    def replay(self, shard: Any, _first_offset: int) -> None:
        shard.consumer.replay_run(self)

    def change(self, group: ConsumerGroup) -> None:
        for change, told in self._changes:
            change(group, *told)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> CoordinatorRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[CoordinatorRecord]: ...

    def __getitem__(self, index: int | slice) -> CoordinatorRecord | list[CoordinatorRecord]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        record = _TYPES.decode(self.keys[index], self.values[index])
        assert record is not None
        return record


def _encoded(value: object) -> bytes:
    return _VERSION + b"".join(encode_parts(value, 0))


def _target(part: Assignment) -> bytes:
    """Nearly all groups read one topic, and each part of it is a record: so that one is packed in one go."""
    if len(part) == 1:
        ((topic_id, partitions),) = part.items()
        if len(partitions) < _LENGTHS_OF_TWO_BYTES:
            return _part_of_one_topic(len(partitions)).pack(0, 2, topic_id, len(partitions) + 1, *sorted(partitions))
    return _encoded(written.target_value(part))


@cache
def _part_of_one_topic(count: int) -> Struct:
    """Version; how many topics, plus one; the topic; how many partitions, plus one; these; no tagged fields, twice."""
    return Struct(f">hB16sB{count}i2x")


@lru_cache(_KEYS_REMEMBERED)
def _member_key(group_id: str, member_id: str) -> bytes:
    """The keys of all kinds of records of a member are alike, but for what they begin with."""
    return encode(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), 0)


@lru_cache(_KEYS_REMEMBERED)
def _group_key(group_id: str) -> bytes:
    return encode(wire.ConsumerGroupMetadataKey(group_id=group_id), 0)
