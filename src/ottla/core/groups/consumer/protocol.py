"""The consumer protocol (KIP-848) of a shard: requests, replay and timers."""

from collections.abc import Callable
from typing import Final

from ottla.core.groups.classic import ClassicProtocol
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer import classic_members
from ottla.core.groups.consumer.description import described, not_described
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.groups import Awaited, ConsumerGroups
from ottla.core.groups.consumer.heartbeat import heartbeat
from ottla.core.groups.consumer.leaving import fence
from ottla.core.groups.consumer.progress import refresh_regexes
from ottla.core.groups.consumer.settings import ConsumerSettings
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.group import Group, GroupClient
from ottla.core.groups.timers import GroupEffects, Timer
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.api.consumer_group_describe import DescribedGroup
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Refused

_MATCHES_PER_TICK: Final = 1_000
"""Number of topic names that one tick matches with patterns, which takes a few milliseconds."""


class ConsumerProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        settings: ConsumerSettings,
        topics: TopicView,
        classic: ClassicProtocol,
        new_uuid: Callable[[], str],
    ) -> None:
        self._here = ConsumerGroups(groups, settings, topics, new_uuid)
        self._classic = classic

    def group(self, group_id: str) -> ConsumerGroup | None:
        """The group if it is a consumer group with members. A group without members may change its protocol."""
        group = self._here.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) and group.members else None

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of a type in `wire/records/consumer_groups.py`."""
        self._here.replay(record)

    def replay_run(self, run: GroupRecords) -> None:
        self._here.replay_run(run)

    # Requests.

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: GroupClient, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        return heartbeat(self._here, request, client, now_ms)

    def describe(self, group_id: str) -> DescribedGroup:
        try:
            group = self._here.find(group_id)
        except Refused as refusal:
            return not_described(group_id, refusal)
        return described(group, self._here.settings.assignors[0], self._here.topics)

    # Requests of classic members of a consumer group.

    def classic_join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: GroupClient, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        return classic_members.join(self._here, group, request, client, now_ms)

    def classic_sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> Decision[SyncGroupResponse]:
        return classic_members.sync(self._here, group, request, now_ms)

    def classic_heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int
    ) -> Decision[HeartbeatResponse]:
        return classic_members.heartbeat(self._here, group, request, now_ms)

    def classic_leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int
    ) -> Decision[LeaveGroupResponse]:
        return classic_members.leave(self._here, group, request, now_ms)

    # Timers.

    def loaded(self, now_ms: int) -> None:
        self._here.loaded(now_ms)

    def next_deadline(self) -> int | None:
        return self._here.deadlines.next()

    def clock_set(self, by_ms: int) -> None:
        self._here.deadlines.shift(by_ms)

    def tick(self, now_ms: int, out: GroupEffects) -> None:
        """Handle the timers that are due, with at most one decision per group: the next one must see the records of the
        first."""
        here, matches = self._here, _MATCHES_PER_TICK
        for group_id, timers in here.due(now_ms).items():
            group = here.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                here.resolutions.pop(group_id, None)
            if isinstance(group, ClassicGroup):
                self._go_on_as_classic(group, timers, now_ms, out)
            elif isinstance(group, ConsumerGroup):
                lost = here.lost(group, timers)
                regexes = Timer(Awaited.REGEXES, group_id)
                if lost:
                    out.records += fence(here, group, lost, now_ms)
                    if regexes in timers:
                        here.deadlines.set(regexes, now_ms)
                elif regexes in timers:
                    records, matches = refresh_regexes(here, group, now_ms, matches)
                    out.records += records

    def _go_on_as_classic(self, group: ClassicGroup, timers: list[Timer], now_ms: int, out: GroupEffects) -> None:
        if Timer(Awaited.DOWNGRADE, group.group_id) in timers:
            self._classic.loaded(group, now_ms, out)
