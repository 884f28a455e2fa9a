"""The consumer groups of a shard, with their settings, topics and deadlines.

Rule 1: deadlines live as long as the shard and start again when it is loaded. A deadline names a group and a member. It
        has no effect if they do not exist any more.
Rule 2: each `tick` makes at most one decision per group, because the next decision must see the records of the first.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.member import Member, MemberState
from ottla.core.groups.consumer.regexes import Regexes, Resolution
from ottla.core.groups.consumer.settings import ConsumerSettings
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.group import Group
from ottla.core.groups.timers import Timer
from ottla.core.runtime.deadlines import Deadlines
from ottla.core.runtime.shard import BadCoordinatorRecord, CoordinatorRecord
from ottla.wire.errors import Error, Refused
from ottla.wire.records.consumer_groups import ConsumerGroupMetadataKey


class Awaited(StrEnum):
    """Why a deadline was set."""

    HEARTBEAT = "heartbeat"
    """The member must send its next heartbeat."""
    REVOCATION = "revocation"
    """The member must give up partitions."""
    JOIN = "join"
    """The classic member got REBALANCE_IN_PROGRESS and must join again."""
    SYNC = "sync"
    """The classic member has joined and must request its assignment."""
    REGEXES = "regexes"
    """The group's patterns have to be resolved."""
    DOWNGRADE = "downgrade"
    """The group was converted to a classic group, which now has to start its sessions."""


_OF_MEMBERS: Final = (Awaited.HEARTBEAT, Awaited.REVOCATION, Awaited.JOIN, Awaited.SYNC)


class ConsumerGroups:
    def __init__(
        self,
        groups: dict[str, Group],
        settings: ConsumerSettings,
        topics: TopicView,
        new_uuid: Callable[[], str],
    ) -> None:
        """`groups` has all groups of the shard, of any protocol."""
        self.groups = groups
        self.new_uuid = new_uuid
        self.settings = settings
        self.topics = topics
        self.regexes = Regexes()
        self.resolutions: dict[str, Resolution] = {}
        """The unfinished resolutions of patterns, by group."""
        self.deadlines: Deadlines[Timer] = Deadlines()
        self._revoking_epochs: dict[Timer, int] = {}

    def find(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            told = "does not exist" if group is None else f"is not a consumer group but a {group.type} one"
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"group {group_id!r} {told}")
        return group

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of a type in `wire/records/consumer_groups.py`."""
        key, value = record.key, record.value
        group_id: str = key.group_id
        group = self.groups.get(group_id)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            if isinstance(group, ConsumerGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            if group is not None and group.protocol_type:
                raise BadCoordinatorRecord(
                    f"{type(key).__name__} for group {group_id!r}, which is a {group.type} group"
                )
            # A classic group here has only offsets. It becomes a consumer group.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.replay(key, value)

    def replay_run(self, run: GroupRecords) -> None:
        """Has the same effect as `replay` of each record."""
        group = self.groups.get(run.group_id)
        if isinstance(group, ConsumerGroup):
            run.change(group)
        else:
            for record in run:
                self.replay(record)

    # Deadlines.

    def loaded(self, now_ms: int) -> None:
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.expect(group.group_id, member, now_ms)
                    self.watch_revocation(group.group_id, member, now_ms)

    def expect(self, group_id: str, member: Member, now_ms: int) -> None:
        """Restart the session of a member after a request from it."""
        classic = member.classic
        session_ms = self.settings.session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        self.deadlines.set(Timer(Awaited.HEARTBEAT, group_id, member.member_id), now_ms + session_ms)

    def watch_revocation(self, group_id: str, member: Member, now_ms: int) -> None:
        """Set or cancel the deadline by which a member must give up partitions: its rebalance timeout. Classic members
        have to join within that time instead (`expect_join`)."""
        timer = Timer(Awaited.REVOCATION, group_id, member.member_id)
        if member.state == MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._revoking_epochs[timer] = member.member_epoch
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)
        else:
            self._revoking_epochs.pop(timer, None)
            self.deadlines.cancel(timer)

    def expect_join(self, group_id: str, member: Member, now_ms: int) -> None:
        timer = Timer(Awaited.JOIN, group_id, member.member_id)
        if timer not in self.deadlines:
            self.deadlines.set(timer, now_ms + member.rebalance_timeout_ms)

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a member that has left."""
        for awaited in _OF_MEMBERS:
            self.deadlines.cancel(Timer(awaited, group_id, member_id))
        self._revoking_epochs.pop(Timer(Awaited.REVOCATION, group_id, member_id), None)

    def due(self, now_ms: int) -> dict[str, list[Timer]]:
        """The timers that are due, by group."""
        by_group: dict[str, list[Timer]] = {}
        for timer in self.deadlines.due(now_ms):
            by_group.setdefault(timer.group_id, []).append(timer)
        return by_group

    def lost(self, group: ConsumerGroup, timers: list[Timer]) -> list[Member]:
        """The members that missed a deadline."""
        lost = dict.fromkeys(timer.member_id for timer in timers if self._has_failed(group, timer))
        return [group.members[member_id] for member_id in lost]

    def _has_failed(self, group: ConsumerGroup, timer: Timer) -> bool:
        member = group.members.get(timer.member_id)
        if member is None or timer.due not in _OF_MEMBERS:
            return False
        return timer.due != Awaited.REVOCATION or self._revoking_epochs.pop(timer, None) == member.member_epoch
