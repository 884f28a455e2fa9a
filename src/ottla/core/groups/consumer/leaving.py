"""Members leave a consumer group, or are removed from it.

Rule 1: the partitions of a removed member are free at once. If the member was only slow, its next heartbeat is refused,
        and it has to give up all its partitions before it may join again.
Rule 2: the group epoch increases, and the next heartbeat of any member computes a new target.
Rule 3: a static member that will come back (epoch -2) stays a member and keeps its partitions until its session is
        over.
"""

from collections.abc import Sequence

from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.groups import ConsumerGroups
from ottla.core.groups.consumer.member import LEAVE_FOR_A_WHILE_EPOCH, Member
from ottla.core.groups.consumer.migration import downgrade, may_downgrade
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.errors import Error, Refused


def fence(
    here: ConsumerGroups, group: ConsumerGroup, members: Sequence[Member], now_ms: int
) -> list[CoordinatorRecord]:
    """The records that remove members from their group. Also cancels the deadlines of these members."""
    if not members:
        return []
    if may_downgrade(here, group, members):
        return downgrade(here, group, members, now_ms, rebalances=True)
    group_id = group.group_id
    records = [record for member in members for record in written.no_member(group_id, member.member_id)]
    subscriptions = group.subscriptions.without(members, group.resolved_regexes)
    records += [
        written.no_regex(group_id, regex) for regex in group.subscriptions.regexes if regex not in subscriptions.regexes
    ]
    metadata_hash = here.topics.hash_of(subscriptions.topics())
    records.append(written.epoch_record(group_id, group.epoch + 1, metadata_hash))
    for member in members:
        here.forget(group_id, member.member_id)
    return records


def leave_for_a_while(group: ConsumerGroup, member: Member) -> list[CoordinatorRecord]:
    """The record of a static member that leaves and will come back. The assignment epoch of its partitions becomes 0,
    because the member that replaces it commits in an epoch of its own."""
    leaving = member._replace(
        member_epoch=LEAVE_FOR_A_WHILE_EPOCH,
        pending_revocation={},
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
    )
    return [written.current_record(group.group_id, leaving)]


def check_instance(member: Member | None, member_id: str, instance_id: str) -> Member:
    """The static member with an instance id. Raises Refused if it is unknown or has another member id."""
    if member is None:
        raise Refused(Error.UNKNOWN_MEMBER_ID, f"instance id {instance_id!r} is unknown")
    if member.member_id != member_id:
        raise Refused(
            Error.FENCED_INSTANCE_ID,
            f"instance id {instance_id!r} belongs to member {member.member_id}, so {member_id!r} is fenced",
        )
    return member
