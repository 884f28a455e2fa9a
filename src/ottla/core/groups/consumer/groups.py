"""The consumer groups of a shard: what they go by, and what is due.

Rule 1: deadlines live as long as the shard; they begin anew when it is loaded. A deadline names a group and a member,
        and means nothing when they are gone.
Rule 2: of one group, one thing is done per `tick`: what the next one decides must see the records of the first.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from ottla.core.coordination import BadRecord, CoordinatorRecord
from ottla.core.deadlines import Deadlines
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.member import Member, MemberState
from ottla.core.groups.consumer.regexes import Regexes, Resolution
from ottla.core.groups.consumer.settings import ConsumerSettings
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.group import Group
from ottla.core.groups.timers import Timer
from ottla.wire.errors import Error, Refused
from ottla.wire.records.consumer_groups import ConsumerGroupMetadataKey


class Awaited(StrEnum):
    """Why a deadline was set."""

    HEARTBEAT = "heartbeat"
    """The member has not been heard of."""
    REVOCATION = "revocation"
    """The member has not given up what it must."""
    JOIN = "join"
    """The classic member was told to join again and has not."""
    SYNC = "sync"
    """The classic member has joined and has not asked for its assignment."""
    REGEXES = "regexes"
    """The group's patterns are to be resolved."""
    DOWNGRADE = "downgrade"
    """The group has become a classic one, which now goes on by itself."""


_OF_MEMBERS: Final = (Awaited.HEARTBEAT, Awaited.REVOCATION, Awaited.JOIN, Awaited.SYNC)


class ConsumerGroups:
    def __init__(
        self,
        groups: dict[str, Group],
        settings: ConsumerSettings,
        topics: TopicView,
        new_uuid: Callable[[], str],
    ) -> None:
        """`groups` has all groups of the shard, of whatever protocol."""
        self.groups = groups
        self.new_uuid = new_uuid
        self.settings = settings
        self.topics = topics
        self.regexes = Regexes()
        self.resolutions: dict[str, Resolution] = {}
        """By group: those that are under way."""
        self.deadlines: Deadlines[Timer] = Deadlines()
        self._revoking_epochs: dict[Timer, int] = {}

    def find(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            told = "does not exist" if group is None else f"is not a consumer group but a {group.type} one"
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"group {group_id!r} {told}")
        return group

    # Replaying.

    def replay(self, record: CoordinatorRecord) -> None:
        """A record of `wire/records/consumer_groups.py`."""
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
                raise BadRecord(f"{type(key).__name__} for group {group_id!r}, which is a {group.type} group")
            # Offsets alone make a group without a record of its own; this is the same one.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.replay(key, value)

    def replay_run(self, run: GroupRecords) -> None:
        """As `replay` of each."""
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
        """The member was heard of; its session begins anew."""
        classic = member.classic
        session_ms = self.settings.session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        self.deadlines.set(Timer(Awaited.HEARTBEAT, group_id, member.member_id), now_ms + session_ms)

    def watch_revocation(self, group_id: str, member: Member, now_ms: int) -> None:
        """A member has its rebalance timeout to give up partitions. Classic members have to join within theirs."""
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
        """The member has left: nothing is expected of it any more."""
        for awaited in _OF_MEMBERS:
            self.deadlines.cancel(Timer(awaited, group_id, member_id))
        self._revoking_epochs.pop(Timer(Awaited.REVOCATION, group_id, member_id), None)

    def due(self, now_ms: int) -> dict[str, list[Timer]]:
        """What is due, by group."""
        by_group: dict[str, list[Timer]] = {}
        for timer in self.deadlines.due(now_ms):
            by_group.setdefault(timer.group_id, []).append(timer)
        return by_group

    def lost(self, group: ConsumerGroup, timers: list[Timer]) -> list[Member]:
        """The members that let their deadlines pass."""
        lost = dict.fromkeys(timer.member_id for timer in timers if self._has_failed(group, timer))
        return [group.members[member_id] for member_id in lost]

    def _has_failed(self, group: ConsumerGroup, timer: Timer) -> bool:
        member = group.members.get(timer.member_id)
        if member is None or timer.due not in _OF_MEMBERS:
            return False
        return timer.due != Awaited.REVOCATION or self._revoking_epochs.pop(timer, None) == member.member_epoch
