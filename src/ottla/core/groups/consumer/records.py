"""The records of consumer groups, as Kafka writes them.

Rule 1: topics and partitions are sorted, so that equal states have equal bytes.
Rule 2: three tombstones remove a member: of its current assignment, of its target assignment, and of the member. The
        tombstones of a group come after those of its members.
"""

from collections.abc import Iterable
from typing import Any

from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.member import ClassicMemberMetadata, Member, MemberState, OwnedPartitions
from ottla.core.groups.consumer.regexes import ResolvedRegex
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.records import consumer_groups as wire


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        member_value(member),
    )


def member_value(member: Member) -> wire.ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return wire.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(wire.ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, target_value(assignment))


def target_value(assignment: Assignment) -> wire.ConsumerGroupTargetAssignmentMemberValue:
    return wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
        ]
    )


def target_epoch_record(group_id: str, assignment_epoch: int, timestamp: int) -> CoordinatorRecord:
    value = wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=assignment_epoch, assignment_timestamp=timestamp
    )
    return CoordinatorRecord(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
    key = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, current_value(member))


def current_value(member: Member) -> wire.ConsumerGroupCurrentMemberAssignmentValue:
    return wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        wire.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
        ),
    )


# Tombstones.


def no_regex(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def no_partition_metadata(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def no_member(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def no_group(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    """The tombstones of a group: of its current assignments, then of the target, then of its members."""
    current: list[CoordinatorRecord] = []
    target: list[CoordinatorRecord] = []
    members: list[CoordinatorRecord] = []
    for member_id in member_ids:
        for kind, record in zip((current, target, members), no_member(group_id, member_id), strict=True):
            kind.append(record)
    return [
        *current,
        *target,
        CoordinatorRecord(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *members,
        *(no_regex(group_id, regex) for regex in regexes),
        no_partition_metadata(group_id),
        CoordinatorRecord(wire.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# Reading.


def read_member(value: wire.ConsumerGroupMemberMetadataValue) -> dict[str, Any]:
    """The fields of a `Member` that a member's record sets."""
    classic = value.classic_member_metadata
    return {
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "topic_names": frozenset(value.subscribed_topic_names),
        "topic_regex": value.subscribed_topic_regex,
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "server_assignor": value.server_assignor,
        "classic": None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    }


def read_target(value: wire.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}


def read_current(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
    """The fields of a `Member` that a current assignment sets. Before 4.3, partitions were written without epochs."""
    epoch = max(value.member_epoch, 0)
    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "state": MemberState(value.state),
        "assigned": _owned(value.assigned_partitions, epoch),
        "pending_revocation": _owned(value.partitions_pending_revocation, epoch),
    }


def _topic_partitions(owned: OwnedPartitions) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id,
            partitions=(partitions := sorted(epochs)),
            assignment_epochs=list(map(epochs.__getitem__, partitions)),
        )
        for topic_id, epochs in sorted(owned.items())
    ]


def _owned(topics: list[wire.TopicPartitions], default_epoch: int) -> OwnedPartitions:
    owned = {}
    for one in topics:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [default_epoch] * len(one.partitions)
        owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned
