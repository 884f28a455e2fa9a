"""The groups of one partition of `__consumer_offsets`.

Rule 1: `groups` holds every group that has members, offsets or a record, whatever its protocol. A group that was
        created by commits alone has no record. The replay of its offsets creates it, live and at load.
Rule 2: during a load, the replay of a group's record creates the group. Live, the replay only sets `written` of a
        classic group: the decision installs the new group (`Decision.accept`), with its phase and waiting members.
"""

from collections.abc import Callable, Iterable, Sequence

from ottla.config import Config
from ottla.core.groups.classic import ClassicProtocol
from ottla.core.groups.classic_group import ClassicGroup, State
from ottla.core.groups.classic_responses import join_refused
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.protocol import ConsumerProtocol
from ottla.core.groups.consumer.settings import ConsumerSettings
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.group import Group, GroupClient
from ottla.core.groups.offset_requests import OffsetRequests
from ottla.core.groups.offsets import OffsetCommits, Offsets, tombstone
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.timers import Due, GroupEffects, Timer
from ottla.core.metadata.image import Image
from ottla.core.runtime.deadlines import Deadlines
from ottla.core.runtime.decision import Decision, Token
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin
from ottla.wire.api.delete_groups import DeletableGroupResult
from ottla.wire.api.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.api.list_groups import ListedGroup
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Error, Refused
from ottla.wire.records.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_DEAD = "Dead"
_NOT_FOUND_SINCE = 6


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings,
        new_uuid: Callable[[], str],
        config: Callable[[], Config] = Config.of,
        topics: TopicView | None = None,
    ) -> None:
        """`config` returns the current settings of the broker; `topics` is the view of the cluster's topics."""
        topics = TopicView(Image()) if topics is None else topics
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.deadlines: Deadlines[Timer] = Deadlines()
        self.classic = ClassicProtocol(self.groups, self.deadlines, settings, new_uuid)
        self.consumer = ConsumerProtocol(
            self.groups, ConsumerSettings(config, topics.image), topics, self.classic, new_uuid
        )
        self.offset_requests = OffsetRequests(self.groups, self.offsets, self.classic, settings)
        self.is_loaded = False

    # Durable state.

    def replay(self, record: CoordinatorRecord, origin: RecordOrigin) -> None:
        key, value = record.key, record.value
        match key:
            case OffsetCommitKey():
                self._replay_offset(key, value, origin)
            case GroupMetadataKey():
                self._replay_classic(key.group, value)
            case LegacyOffsetCommitKey():
                self._replay_legacy(key, value, origin)
            case _:
                self.consumer.replay(record)

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None, origin: RecordOrigin) -> None:
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(key.group)
        self.offsets.replay(key, value, origin)

    def replay_commits(self, commits: OffsetCommits, first_offset: int) -> None:
        """Has the same effect as `replay` of each record."""
        if commits.group_id not in self.groups:
            self.groups[commits.group_id] = ClassicGroup(commits.group_id)
        self.offsets.replay_commits(commits, first_offset)

    def _replay_legacy(
        self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None, origin: RecordOrigin
    ) -> None:
        told = None
        if value is not None:
            told = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        self._replay_offset(OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), told, origin)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self.groups.get(group_id)
        if value is None:
            if isinstance(known, ClassicGroup):
                del self.groups[group_id]
        elif self.is_loaded and isinstance(known, ClassicGroup):
            known.written = value
        else:
            self.groups[group_id] = ClassicGroup.from_record(group_id, value)

    def replay_marker(self, producer_id: int, _producer_epoch: int, *, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed=committed)

    # Timers.

    def loaded(self, now_ms: int) -> Decision[None]:
        self.is_loaded = True
        out = GroupEffects()
        for group in [*self.groups.values()]:
            if isinstance(group, ClassicGroup):
                self.classic.loaded(group, now_ms, out)
        self.consumer.loaded(now_ms)
        self.deadlines.set(Timer(Due.EXPIRY), now_ms + self.settings.offsets_check_interval_ms)
        return Decision(None, out.records, out.wake)

    def tick(self, now_ms: int) -> Decision[None]:
        out = GroupEffects()
        for timer in self.deadlines.due(now_ms):
            if timer.due == Due.EXPIRY:
                out.records += self.offset_requests.expired(now_ms)
                self.deadlines.set(Timer(Due.EXPIRY), now_ms + self.settings.offsets_check_interval_ms)
            else:
                self.classic.due(timer, now_ms, out)
        self.consumer.tick(now_ms, out)
        return Decision(None, out.records, out.wake)

    def next_deadline(self) -> int | None:
        classic, consumer = self.deadlines.next(), self.consumer.next_deadline()
        if classic is None or consumer is None:
            return classic if consumer is None else consumer
        return min(classic, consumer)

    def clock_set(self, by_ms: int) -> None:
        self.deadlines.shift(by_ms)
        self.consumer.clock_set(by_ms)

    # Requests of the classic protocol, for groups of either protocol.

    def join(
        self, request: JoinGroupRequest, client: GroupClient, now_ms: int, token: Token
    ) -> Decision[JoinGroupResponse]:
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self.classic.join(request, client, now_ms, token)
        if group.members:
            return self.consumer.classic_join(group, request, client, now_ms)
        if request.member_id:
            return Decision(join_refused(Error.UNKNOWN_MEMBER_ID, request.member_id))
        # A group without members takes over the protocol of its next member.
        decision = self.classic.begin(request, client, now_ms, token)
        return decision._replace(records=[*group.tombstones(), *decision.records])

    def sync(self, request: SyncGroupRequest, now_ms: int, token: Token) -> Decision[SyncGroupResponse]:
        group = self.consumer.group(request.group_id)
        if group is not None:
            return self.consumer.classic_sync(group, request, now_ms)
        return self.classic.sync(request, now_ms, token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        group = self.consumer.group(request.group_id)
        if group is not None:
            return self.consumer.classic_heartbeat(group, request, now_ms)
        return self.classic.heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        group = self.consumer.group(request.group_id)
        if group is not None:
            return self.consumer.classic_leave(group, request, now_ms)
        return self.classic.leave(request, now_ms)

    # Groups of any protocol.

    def listed(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """The groups in any of the states and of any of the types. An empty list does not restrict the result."""
        return self.listed_of(self.groups, {normal_state(one) for one in states}, {normal_type(one) for one in types})

    def listed_of(self, group_ids: Iterable[str], states: set[str], types: set[str]) -> list[ListedGroup]:
        """Like `listed`, but only for these groups. States and types must be normalised."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group_id in group_ids
            if (group := self.groups.get(group_id)) is not None
            and (not states or group.state.lower() in states)
            and (not types or group.type in types)
        ]

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Describe a classic group. DescribeGroups treats a group of another protocol as missing."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            is_told = version >= _NOT_FOUND_SINCE
            why = f"there is no group {group_id!r}" if group is None else f"group {group_id!r} is not classic"
            return DescribedGroup(
                error_code=Error.GROUP_ID_NOT_FOUND if is_told else Error.NONE,
                error_message=why if is_told else None,
                group_id=group_id,
                group_state=_DEAD,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        is_stable = group.phase is State.STABLE
        return DescribedGroup(
            error_code=Error.NONE,
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def delete(self, group_ids: Sequence[str]) -> Decision[list[DeletableGroupResult]]:
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in group_ids:
            error = Error.NONE
            try:
                group = self.groups.get(group_id)
                if group is None:
                    raise Refused(Error.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
                group.check_deletion()
                records += [tombstone(group_id, place) for place in self.offsets.places(group_id)]
                records += group.tombstones()
            except Refused as refusal:
                error = refusal.error
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return Decision(results, records)

    def topics_deleted(self, topics: dict[str, bytes]) -> Decision[None]:
        """Delete the offsets of deleted topics. `topics` has their ids by name."""
        return Decision(None, self.offsets.tombstones_of_topics(topics))


def normal_state(state: str) -> str:
    return state.strip().lower()


def normal_type(kind: str) -> str:
    return kind.lower()
