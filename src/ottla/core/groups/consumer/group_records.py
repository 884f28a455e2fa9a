"""The records of one decision about a consumer group, with a fast path for encoding and replaying them.

Every member that joins changes the assignments of others. While a group forms, each request writes several records.

Rule 1: the encoded bytes equal those of `records`, and the effect on the group equals that of replaying the records.
        A single record of the run is decoded from its bytes when it is read.
Rule 2: if the group does not exist yet, the records are replayed one by one, which creates the group.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from struct import Struct
from typing import Any, Final

from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ClassicMemberMetadata, Member
from ottla.core.runtime.shard import CoordinatorRecord, RecordRun, RecordTypes, encode_record
from ottla.wire.codec import encode, encode_parts
from ottla.wire.records import consumer_groups as wire

_TYPES: Final = RecordTypes(wire)
_TYPE: Final = Struct(">h")
_VERSION: Final = _TYPE.pack(0)
_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT = map(_TYPE.pack, (3, 5, 6, 7, 8))
_EPOCH_ALONE: Final = Struct(">hix")
_EPOCH_WITH_FIELD: Final = Struct(">hiBBBq")
"""Version; epoch; number of tagged fields (1), tag (0) and size (8 bytes); the field."""
_KEYS_REMEMBERED: Final = 2_000  # Enough for groups that are forming. Ids may be long and outlive their members here.
_DESCRIPTIONS_REMEMBERED: Final = 16
_LENGTHS_OF_TWO_BYTES: Final = 127
"""The encoded length of an array with at least this many entries takes more than one byte."""
_EPOCHS_IN_SMALL_TAG: Final = 31
"""Up to this many epochs, the size of their tagged field takes one byte."""


class GroupRecords(RecordRun):
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.size = 0
        self._changes: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """For each record, the method of `ConsumerGroup` that applies it, and the arguments."""

    # Adding records.

    def member(self, member: Member) -> None:
        value = _member_value(
            member.instance_id,
            member.rack_id,
            member.rebalance_timeout_ms,
            member.client_id,
            member.client_host,
            member.topic_names,
            member.topic_regex,
            member.server_assignor,
            member.classic,
        )
        self._add(_MEMBER + _member_key(self.group_id, member.member_id), value, ConsumerGroup.put_member, member)

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        value = _epoch(epoch, metadata_hash)
        self._add(_EPOCH + _group_key(self.group_id), value, ConsumerGroup.put_epoch, epoch, metadata_hash)

    def target(self, member_id: str, part: Assignment) -> None:
        key = _TARGET + _member_key(self.group_id, member_id)
        self._add(key, _target(part), ConsumerGroup.put_target, member_id, part)

    def target_epoch(self, epoch: int, timestamp: int) -> None:
        value = _epoch(epoch, timestamp)
        self._add(_TARGET_EPOCH + _group_key(self.group_id), value, ConsumerGroup.put_target_epoch, epoch, timestamp)

    def current(self, member: Member) -> None:
        key = _CURRENT + _member_key(self.group_id, member.member_id)
        self._add(key, _current(member), ConsumerGroup.put_member, member)

    def other(self, record: CoordinatorRecord) -> None:
        self._add(*encode_record(record), ConsumerGroup.replay, record.key, record.value)

    def _add(self, key: bytes, value: bytes | None, change: Callable[..., None], *told: Any) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.size += len(key) + (0 if value is None else len(value))
        self._changes.append((change, told))

    # The interface of `RecordRun`.

    def replay(self, shard: Any, _first_offset: int) -> None:
        shard.consumer.replay_run(self)

    def change(self, group: ConsumerGroup) -> None:
        for change, told in self._changes:
            change(group, *told)

    def record(self, number: int) -> CoordinatorRecord:
        record = _TYPES.decode(self.keys[number], self.values[number])
        assert record is not None
        return record


def _encoded(value: object) -> bytes:
    return _VERSION + b"".join(encode_parts(value, 0))


def _epoch(epoch: int, told: int) -> bytes:
    """The value of a group epoch (`told` is the topics' hash) or target epoch (`told` is the time at which the target
    was computed). A `told` of 0 is not encoded."""
    return _EPOCH_ALONE.pack(0, epoch) if told == 0 else _EPOCH_WITH_FIELD.pack(0, epoch, 1, 0, 8, told)


@lru_cache(_DESCRIPTIONS_REMEMBERED)
def _member_value(
    instance_id: str | None,
    rack_id: str | None,
    rebalance_timeout_ms: int,
    client_id: str,
    client_host: str,
    topic_names: frozenset[str],
    topic_regex: str | None,
    server_assignor: str | None,
    classic: ClassicMemberMetadata | None,
) -> bytes:
    """The value of a member's record. It is cached, because the members of an application differ only in their ids."""
    member = Member(
        "",
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        client_id=client_id,
        client_host=client_host,
        topic_names=topic_names,
        topic_regex=topic_regex,
        server_assignor=server_assignor,
        classic=classic,
    )
    return _encoded(written.member_value(member))


def _target(part: Assignment) -> bytes:
    """The value of a target assignment. The fast path packs the partitions of a single topic with one `Struct`, because
    nearly all groups read one topic."""
    if len(part) == 1:
        ((topic_id, partitions),) = part.items()
        if len(partitions) < _LENGTHS_OF_TWO_BYTES:
            return _part_of_one_topic(len(partitions)).pack(0, 2, topic_id, len(partitions) + 1, *sorted(partitions))
    return _encoded(written.target_value(part))


@cache
def _part_of_one_topic(count: int) -> Struct:
    """Version; number of topics plus one; topic id; number of partitions plus one; partitions; two empty tag
    sections."""
    return Struct(f">hB16sB{count}i2x")


def _current(member: Member) -> bytes:
    """The value of a current assignment. The fast path is for a single topic and no partitions to give up."""
    if len(member.assigned) == 1 and not member.pending_revocation:
        ((topic_id, epochs),) = member.assigned.items()
        count = len(epochs)
        if count <= _EPOCHS_IN_SMALL_TAG:
            partitions = sorted(epochs)
            return _owned_of_one_topic(count).pack(
                0,
                member.member_epoch,
                member.previous_member_epoch,
                member.state,
                2,
                topic_id,
                count + 1,
                *partitions,
                1,
                0,
                1 + 4 * count,
                count + 1,
                *map(epochs.__getitem__, partitions),
                1,
            )
    return _encoded(written.current_value(member))


@cache
def _owned_of_one_topic(count: int) -> Struct:
    """Version, member epochs and state; number of topics plus one; topic id; number of partitions plus one; partitions;
    number of tagged fields (1), tag (0) and size; number of epochs plus one; epochs; number of topics to give up (0)
    plus one; an empty tag section."""
    return Struct(f">hiibB16sB{count}iBBBB{count}iBx")


@lru_cache(_KEYS_REMEMBERED)
def _member_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's record without its type. It is the same for all types of records of the member."""
    return encode(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), 0)


@lru_cache(_KEYS_REMEMBERED)
def _group_key(group_id: str) -> bytes:
    return encode(wire.ConsumerGroupMetadataKey(group_id=group_id), 0)
