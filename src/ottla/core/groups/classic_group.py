"""The state of a classic group: its members, the members it waits for, and its phase.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^              |  ^                  |                |
      +--------------+  +------------------+----------------+

Rule 1: in PreparingRebalance the group waits for its members to join again, in CompletingRebalance for the leader's
        assignment.
Rule 2: only the last record of the group (`written`) is durable. The other fields live as long as the coordinator. They
        are built from that record when the group is loaded: Stable if the record has members, Empty if not.
Rule 3: a decision is made on a draft of the group, which takes the group's place when the decision is accepted. Members
        are shared with the draft until it changes them (`own`), because a group may have thousands of members.
Rule 4: the leader is the first member that joined among those that can lead. A group without members has no leader.
"""

from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.core.groups.group import Committer, PartitionCheck
from ottla.core.runtime.decision import Token
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.codec import Malformed, decode_from
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.errors import Error, Refused
from ottla.wire.records.groups import GroupMetadataKey, GroupMetadataValue, MemberMetadata

CONSUMER: Final = "consumer"
_VALUE_VERSION: Final = 3
_SUBSCRIPTION_VERSION_SIZE: Final = 2
_NO_TIMESTAMP: Final = -1

Protocols = tuple[tuple[str, bytes], ...]
"""Names of protocols in the order of preference, each with the member's metadata for it."""


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """The member waits for its first generation. Its client may have disconnected meanwhile."""
    join_token: Token | None = None
    sync_token: Token | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def copy(self) -> "ClassicMember":
        return ClassicMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
            self.is_new,
            self.join_token,
            self.sync_token,
        )

    @property
    def is_heard(self) -> bool:
        """Whether the member waits for a response, so that it need not send heartbeats."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)


class ClassicGroup:
    type: Final = "classic"

    def __init__(self, group_id: str, now_ms: int = _NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.phase = State.EMPTY
        self.came_from: State | None = None
        """The previous state."""
        self.since_ms = now_ms
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_ids: dict[str, str] = {}
        """Member ids by group.instance.id."""
        self._protocol_counts: Counter[str] = Counter()
        """How many members have each protocol."""
        self.metadata_bytes = 0
        """Size of the metadata of all members if the longest protocol of each were chosen."""
        self.pending_joins: dict[str, None] = {}
        """Member ids that were assigned to new members, which must join again with them (KIP-394)."""
        self.pending_syncs: dict[str, None] = {}
        self.member_was_added = False
        """A member joined during the initial delay, so the delay is prolonged."""
        self.initial_delay: tuple[int, int] | None = None
        """Length of the current round of the initial delay, and of the rounds that may still follow, in ms."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if not known."""
        self.written: GroupMetadataValue | None = None
        """The value of the group's last record. Only replay sets it."""
        self._owned: set[str] = set()
        """Ids of the members that this draft does not share with the group it was copied from."""

    def draft(self) -> "ClassicGroup":
        """A copy of the group. Changes of the draft do not affect the group."""
        draft = copy(self)
        draft.members = dict(self.members)
        draft.static_ids = dict(self.static_ids)
        draft._protocol_counts = Counter(self._protocol_counts)
        draft.pending_joins = dict(self.pending_joins)
        draft.pending_syncs = dict(self.pending_syncs)
        draft._owned = set()
        return draft

    def own(self, member: ClassicMember) -> ClassicMember:
        """This draft's own copy of the member, which may be changed."""
        member_id = member.member_id
        if member_id not in self._owned:
            self._owned.add(member_id)
            self.members[member_id] = member.copy()
        return self.members[member_id]

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        group = cls(group_id, value.current_state_timestamp)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        for member in value.members:
            group.add(
                ClassicMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=(
                        member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
                    ),
                    session_timeout_ms=member.session_timeout,
                    protocols=((value.protocol or "", member.subscription),),
                    assignment=member.assignment,
                ),
                value.protocol_type,
            )
        group.phase = State.STABLE if value.members else State.EMPTY
        group.subscribed_topics = group._subscribed_topics()
        group.written = value
        return group

    def record(self) -> CoordinatorRecord:
        """The record of the current group, including its members and their assignments."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, _VALUE_VERSION)

    def empty_record(self) -> CoordinatorRecord:
        """The record of a new group without members."""
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=self.since_ms,
            members=[],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, _VALUE_VERSION)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    # Members.

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._owned.add(member.member_id)
        self._count(member.protocols)
        self.pending_joins.pop(member.member_id, None)

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Change the protocols of a member that the draft owns (`own`)."""
        self._discount(member.protocols)
        member.protocols = protocols
        self._count(protocols)

    def _count(self, protocols: Protocols) -> None:
        self._protocol_counts.update(_names(protocols))
        self.metadata_bytes += longest(protocols)

    def _discount(self, protocols: Protocols) -> None:
        self._protocol_counts.subtract(_names(protocols))
        self.metadata_bytes -= longest(protocols)

    def remove(self, member_id: str) -> ClassicMember | None:
        member = self.members.pop(member_id, None)
        self._owned.discard(member_id)
        if member is not None:
            self._discount(member.protocols)
            if member.group_instance_id is not None:
                self.static_ids.pop(member.group_instance_id, None)
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        return member

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Replace the id of a static member by that of its restarted client; assignment and metadata stay."""
        old = self.members.pop(old_id)
        member = ClassicMember(
            member_id=new_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = member
        self._owned.add(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old.group_instance_id is not None:
            self.static_ids[old.group_instance_id] = new_id
        return member

    def last_assignment(self, member: ClassicMember) -> bytes:
        """The last assignment that was sent to a member. In a rebalance it may still own those partitions."""
        known = () if member.assignment or self.written is None else self.written.members
        for told in known:
            if member.member_id == told.member_id or (
                member.group_instance_id is not None and member.group_instance_id == told.group_instance_id
            ):
                return told.assignment
        return member.assignment

    @property
    def is_unassigned(self) -> bool:
        """Whether the group came from the consumer protocol (`consumer/migration`) and has yet to rebalance."""
        return self.written is not None and self.written.leader is None and bool(self.written.members)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        if group_instance_id is not None:
            known = self.static_ids.get(group_instance_id)
            if known is None:
                raise Refused(Error.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no instance {group_instance_id!r}")
            if known != member_id:
                raise Refused(
                    Error.FENCED_INSTANCE_ID,
                    f"group {self.group_id!r}: instance {group_instance_id!r} is member {known!r} now, "
                    f"not {member_id!r}: another client took over",
                )
        member = self.members.get(member_id)
        if member is None:
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no member {member_id!r}")
        return member

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_joins and all(member.join_token is not None for member in self.members.values())

    @property
    def joined(self) -> int:
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Choose a leader among the members that have joined. Returns False if none has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols.

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join: all current members must support one of them."""
        if self.phase is State.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        counts = self._protocol_counts
        return protocol_type == self.protocol_type and any(counts[name] == len(self.members) for name in names)

    def selected_protocol(self) -> str | None:
        """The protocol that most members prefer among the protocols that all members support."""
        counts, everybody = self._protocol_counts, len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes.update([next(name for name, _ in member.protocols if counts[name] == everybody)])
        return votes.most_common(1)[0][0] if votes else None

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER or (self.members and self.protocol_name is None):
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                metadata = member.metadata(self.protocol_name)
                told, _ = decode_from(ConsumerProtocolSubscription, 0, metadata, _SUBSCRIPTION_VERSION_SIZE)
                topics.update(told.topics)
        except Malformed:
            return None
        return frozenset(topics)

    # States.

    def enter(self, phase: State, now_ms: int) -> None:
        self.came_from, self.phase, self.since_ms = self.phase, phase, now_ms

    def begin_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.selected_protocol()
        self.subscribed_topics = self._subscribed_topics()
        self.enter(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)
        self.pending_syncs.clear()

    def joined_response(
        self, member_id: str, *, with_members: bool, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The JoinGroup response with the current generation. Only the leader gets the list of members."""
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in (self.members.values() if with_members else ())
        ]
        return JoinGroupResponse(
            error_code=Error.NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type or None,
            protocol_name=self.protocol_name or None,  # An empty name is sent as null, as in Kafka.
            leader=(self.leader_id if leader is None else leader) or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )

    # The interface of all groups (`Group`).

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def is_empty(self) -> bool:
        return self.phase is State.EMPTY

    def check_commit(self, committer: Committer) -> PartitionCheck | None:
        if committer.generation_id < 0 and self.is_empty:
            return None  # A client that uses the group only to store offsets.
        if committer.generation_id >= 0 or committer.member_id or committer.group_instance_id is not None:
            self.check_member(committer.member_id, committer.group_instance_id)
            self.check_generation(committer.generation_id)
        elif not committer.is_transactional and not self.is_empty:
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has members; the commit names none")
        if not committer.is_transactional and self.phase is State.COMPLETING_REBALANCE:
            raise Refused(
                Error.REBALANCE_IN_PROGRESS, f"group {self.group_id!r} is rebalancing: sync with it, then commit"
            )
        return None

    def check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise Refused(
                Error.ILLEGAL_GENERATION,
                f"group {self.group_id!r} is in generation {self.generation_id}, the request is of {generation_id}",
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Every client may fetch the offsets of a classic group."""

    def check_offset_deletion(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise Refused(Error.NON_EMPTY_GROUP, f"group {self.group_id!r} has members of type {self.protocol_type!r}")

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise Refused(Error.NON_EMPTY_GROUP, f"group {self.group_id!r} still has {len(self.members)} members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic. A group of consumers with unknown subscriptions may read any topic."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def retention_begins(self, committed_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_ms
        if self.is_empty:
            return committed_ms if self.since_ms == _NO_TIMESTAMP else self.since_ms
        if self.protocol_type == CONSUMER and self.subscribed_topics is not None and self.phase is State.STABLE:
            return committed_ms
        return None


def _names(protocols: Protocols) -> Iterable[str]:
    """The names without duplicates: a client may list a protocol twice."""
    return dict.fromkeys(name for name, _ in protocols).keys()


def longest(protocols: Protocols) -> int:
    return max((len(metadata) for _, metadata in protocols), default=0)
