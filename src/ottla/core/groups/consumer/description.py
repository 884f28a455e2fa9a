"""ConsumerGroupDescribe: the description of a consumer group that tools show."""

from collections.abc import Collection, Mapping

from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import Member
from ottla.core.groups.consumer.topics import TopicView
from ottla.wire.api.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from ottla.wire.api.consumer_group_describe import Member as DescribedMember
from ottla.wire.errors import Error, Refused

_CLASSIC, _CONSUMER = 0, 1


def described(group: ConsumerGroup, default_assignor: str, topics: TopicView) -> DescribedGroup:
    return DescribedGroup(
        error_code=Error.NONE,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def not_described(group_id: str, refusal: Refused) -> DescribedGroup:
    return DescribedGroup(
        error_code=refusal.error,
        error_message=refusal.text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, member: Member, topics: TopicView) -> DescribedMember:
    owned = {topic_id: list(epochs) for topic_id, epochs in member.assigned.items()}
    for topic_id, epochs in member.pending_revocation.items():
        # The member owns these partitions until it has given them up.
        owned.setdefault(topic_id, []).extend(epochs)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.target.get(member.member_id, {}), topics),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(partitions: Mapping[bytes, Collection[int]], topics: TopicView) -> Assignment:
    """The assignment with topic names. Deleted topics are left out, because their names are no longer known."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
