"""The state of a consumer group, built by replaying its records.

Rule 1: `replay` is the only mutator.
Rule 2: the group epoch increases when a member's subscription or the subscribed topics change. The assignment epoch is
        the group epoch for which the target was computed. The member epoch is the assignment epoch that the member has
        reached. Hence member <= assignment <= group, and a group is stable when all are equal.
Rule 3: `_owner_epochs` has an entry for every owned partition: the epoch of its owner. A partition is free for another
        member only if it has no entry.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.core.groups.consumer import records
from ottla.core.groups.consumer.assignors import Assignment, Balance
from ottla.core.groups.consumer.member import LEAVE_EPOCH, Member
from ottla.core.groups.consumer.regexes import ResolvedRegex
from ottla.core.groups.consumer.topics import NO_TOPICS_HASH
from ottla.core.groups.group import Committer, PartitionCheck
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.errors import Error, Refused
from ottla.wire.records import consumer_groups as wire
from ottla.wire.schema import Struct

CONSUMER: Final = "consumer"
FIRST_EPOCH: Final = 1
_NO_EPOCH: Final = -1
_TOPICS_REFRESH_INTERVAL_MS: Final = (1 << 31) - 1
_COMMIT_WITH_EPOCH_VERSION: Final = 9

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"


Counts = Mapping[str, int]
"""Number of occurrences by name. Names with a count of 0 are left out."""


class Subscriptions(NamedTuple):
    """The number of members per subscribed name and per regular expression, and of expressions per matched topic."""

    names: Counts
    regexes: Counts
    matched: Counts

    def topics(self) -> Set[str]:
        return self.names.keys() | self.matched.keys()

    def are_homogeneous(self, members: int) -> bool:
        """Whether all members subscribed to the same topics: only by name, or only by one regular expression."""
        if not self.regexes:
            return all(count == members for count in self.names.values())
        return next(iter(self.regexes.values())) == members and not self.names

    def changed(self, old: Member, new: Member, resolved: Mapping[str, ResolvedRegex]) -> "Subscriptions":
        """The subscriptions after `new` has replaced `old`."""
        names = _moved(self.names, old.topic_names, new.topic_names)
        regexes = _moved(self.regexes, _one(old.topic_regex), _one(new.topic_regex))
        return self._with(names, regexes, resolved)

    def without(self, members: Iterable[Member], resolved: Mapping[str, ResolvedRegex]) -> "Subscriptions":
        names, regexes = self.names, self.regexes
        for member in members:
            names = _moved(names, member.topic_names, ())
            regexes = _moved(regexes, _one(member.topic_regex), ())
        return self._with(names, regexes, resolved)

    def _with(self, names: Counts, regexes: Counts, resolved: Mapping[str, ResolvedRegex]) -> "Subscriptions":
        """The subscriptions with new counts. Expressions that no member uses any more match no topics."""
        matched = self.matched
        for regex in self.regexes.keys() - regexes.keys():
            if regex in resolved:
                matched = _moved(matched, resolved[regex].topics, ())
        return Subscriptions(names, regexes, matched)


def _one(value: str | None) -> tuple[str, ...]:
    return (value,) if value else ()


def _moved(counts: Counts, gone: Collection[str], come: Collection[str]) -> Counts:
    """The counts without the names in `gone` and with those in `come`. Returns `counts` itself if both are equal."""
    if gone == come:
        return counts
    after = dict(counts)  # Copied at every join, and copying a `Counter` takes seven times as long.
    for name in come:
        after[name] = after.get(name, 0) + 1
    for name in gone:
        left = after.get(name, 0) - 1
        if left > 0:
            after[name] = left
        else:
            after.pop(name, None)
    return after


_NOBODY: Final = Member("")
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


class ConsumerGroup:
    type: Final = CONSUMER
    protocol_type: Final = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = NO_TOPICS_HASH
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[str, Member] = {}
        self.member_ids: list[str] = []
        """Sorted, because assignors process the members in this order."""
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.target: dict[str, Assignment] = {}
        self._balance: Balance | None = None
        self.unassigned: set[str] = set()
        """Ids of the members that have no target assignment, not even an empty one."""
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.subscriptions = Subscriptions({}, {}, {})
        self.has_partition_metadata = False
        """The log has a record with the sizes of topics, written by a release before 4.1. It has to be removed."""
        self.classic_members = 0
        self._assignors: Counts = {}
        self._owner_epochs: dict[bytes, dict[int, int]] = {}
        # Not durable: the state of the topics at the last check, the epoch of that check, and the latest time for the
        # next check.
        self.refresh_at_ms = 0
        self.seen_changes = -1
        self.seen_epoch = 0

    # Queries.

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return STABLE if reconciled else RECONCILING

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"member {member_id!r} is not in group {self.group_id}")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target_of(self, member: Member) -> Assignment:
        """The target assignment of a member. A static member that came back has that of the member it replaces."""
        if member.instance_id is None:
            return self.target.get(member.member_id, {})
        return self.target.get(self.static_members.get(member.instance_id, member.member_id), {})

    def owned(self, topic_id: bytes) -> Mapping[int, int]:
        """The owned partitions of a topic, each with the epoch of its owner."""
        return self._owner_epochs.get(topic_id, _NOTHING)

    @property
    def balance(self) -> Balance:
        """The balance of the target. It is maintained from the first use on, which pays only in large groups."""
        if self._balance is None:
            self._balance = Balance()
            for member_id, part in self.target.items():
                self._balance.put(member_id, None, part)
        return self._balance

    @property
    def is_assigned(self) -> bool:
        """Whether exactly the members of the group have a target assignment."""
        return not self.unassigned and len(self.target) == len(self.members)

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """The assignor that most members request; None if no member requests one. `new` counts instead of `old`."""
        was, now = old or _NOBODY, new or _NOBODY
        counts = _moved(self._assignors, _one(was.server_assignor), _one(now.server_assignor))
        return max(sorted(counts), key=counts.__getitem__) if counts else None

    def shares_classic_protocol(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member may join: all classic members of the group must support one of its assignors."""
        if protocol_type != self.protocol_type:
            return False
        known = Counter(name for member in self.classic() for name, _ in member.classic.protocols)  # type: ignore[union-attr]
        return any(known[name] == self.classic_members for name in names)

    def classic(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.classic is not None)

    def waits_for_others(self, member: Member) -> bool:
        """Whether other members still own partitions that the target assigns to this member."""
        return any(
            not set(partitions).difference(member.assigned.get(topic_id, ())).isdisjoint(self.owned(topic_id))
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
        )

    def has_seen(self, changes: int, now_ms: int) -> bool:
        """Whether the topics were checked for the current group epoch. A check does not count if its decision could not
        be written."""
        return self.seen_changes == changes and now_ms < self.refresh_at_ms and self.seen_epoch <= self.epoch

    def saw(self, changes: int, epoch: int, now_ms: int) -> None:
        self.seen_changes, self.seen_epoch, self.refresh_at_ms = changes, epoch, now_ms + _TOPICS_REFRESH_INTERVAL_MS

    def last_refresh(self) -> ResolvedRegex | None:
        """Any of the resolved expressions, because all are refreshed at the same time; None if there is none."""
        return next(iter(self.resolved_regexes.values()), None)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group from the log."""
        return records.no_group(self.group_id, self.members, self.resolved_regexes)

    # The interface of all groups (`Group`).

    def check_commit(self, committer: Committer) -> PartitionCheck | None:
        """A client may commit without membership while the group has no members. A member may commit in its epoch, or
        in an older epoch in which it already owned the partition."""
        epoch = committer.generation_id
        if epoch < 0 and not self.members:
            return None
        if committer.is_transactional and (committer.member_id, committer.group_instance_id, epoch) == ("", None, -1):
            return None
        member = self.member(committer.member_id)
        if not committer.is_transactional and member.classic is None and committer.version < _COMMIT_WITH_EPOCH_VERSION:
            raise Refused(
                Error.UNSUPPORTED_VERSION,
                f"a member of the consumer protocol commits with OffsetCommit {_COMMIT_WITH_EPOCH_VERSION} or later",
            )
        if epoch == member.member_epoch:
            return None
        stale = Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
        if epoch > member.member_epoch:
            raise Refused(stale, f"member {member.member_id} is in epoch {member.member_epoch}, the commit in {epoch}")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.owned_epoch(topic_id, partition)
            if since is None or epoch < since:
                told = "does not own it" if since is None else f"owns it since epoch {since}"
                raise Refused(stale, f"{topic}-{partition}: member {member.member_id} {told}, the commit is of {epoch}")

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise Refused(
                Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION,
                f"member {member_id} is in epoch {member.member_epoch}, the request in {member_epoch}",
            )

    def check_offset_deletion(self) -> None:
        """Allowed at any time: the caller protects the topics that members subscribe to."""

    def check_deletion(self) -> None:
        if self.members:
            raise Refused(Error.NON_EMPTY_GROUP, f"group {self.group_id!r} still has {len(self.members)} members")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.names or topic in self.subscriptions.matched

    def retention_begins(self, committed_ms: int) -> int | None:
        return committed_ms

    # Replay.

    def replay(self, key: Struct, value: Any) -> None:
        """Apply a record of this group. `ConsumerGroups` handles the record that removes the group."""
        match key:
            case wire.ConsumerGroupTargetAssignmentMemberKey():  # First, because most records are of this type.
                self.replay_target(key.member_id, value)
            case wire.ConsumerGroupCurrentMemberAssignmentKey():
                self.replay_current(key.member_id, value)
            case wire.ConsumerGroupMetadataKey() if value is not None:
                self.replay_epoch(value)
            case wire.ConsumerGroupTargetAssignmentMetadataKey():
                self.replay_target_epoch(value)
            case wire.ConsumerGroupMemberMetadataKey():
                self.replay_member(key.member_id, value)
            case wire.ConsumerGroupRegularExpressionKey():
                self.replay_regex(key.regular_expression, value)
            case wire.ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None

    def replay_epoch(self, value: wire.ConsumerGroupMetadataValue) -> None:
        self.put_epoch(value.epoch, value.metadata_hash)

    def replay_member(self, member_id: str, value: wire.ConsumerGroupMemberMetadataValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put(old, (old or Member(member_id))._replace(**records.read_member(value)))
        elif old is not None:
            self._put(old, None)

    def replay_target_epoch(self, value: wire.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        if value is None:
            self.put_target_epoch(_NO_EPOCH, 0)
        else:
            self.put_target_epoch(value.assignment_epoch, value.assignment_timestamp)

    def replay_target(self, member_id: str, value: wire.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        self.put_target(member_id, None if value is None else records.read_target(value))

    def replay_current(self, member_id: str, value: wire.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put(old, (old or Member(member_id))._replace(**records.read_current(value)))
        elif old is not None:
            gone = old._replace(
                member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={}, pending_revocation={}
            )
            self._put(old, gone)

    def replay_regex(self, regex: str, value: wire.ConsumerGroupRegularExpressionValue | None) -> None:
        old = self.resolved_regexes.pop(regex, None)
        before: frozenset[str] = frozenset() if old is None else old.topics
        after: frozenset[str] = frozenset()
        if value is not None:
            after = frozenset(value.topics)
            self.resolved_regexes[regex] = ResolvedRegex(after, value.version, value.timestamp)
        self.subscriptions = self.subscriptions._replace(matched=_moved(self.subscriptions.matched, before, after))

    # The changes that records make.

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash

    def put_target_epoch(self, epoch: int, timestamp: int) -> None:
        self.assignment_epoch, self.assignment_timestamp = epoch, timestamp

    def put_target(self, member_id: str, part: Assignment | None) -> None:
        if self._balance is not None:
            self._balance.put(member_id, self.target.get(member_id), part)
        if part is not None:
            self.target[member_id] = part
            self.unassigned.discard(member_id)
        elif self.target.pop(member_id, None) is not None and member_id in self.members:
            self.unassigned.add(member_id)

    def put_member(self, member: Member) -> None:
        """Add a member, or replace the member with the same id."""
        self._put(self.members.get(member.member_id), member)

    def _put(self, old: Member | None, new: Member | None) -> None:
        """Replace `old` by `new`, which has the same id. None stands for no member."""
        self._count(old, new)
        if old is not None:
            self._release(old)
        if new is not None:
            self._own(new)
            if new.member_id not in self.members:
                insort(self.member_ids, new.member_id)
                if new.member_id not in self.target:
                    self.unassigned.add(new.member_id)
            self.members[new.member_id] = new
            if new.instance_id is not None:
                self.static_members[new.instance_id] = new.member_id
        elif old is not None:
            del self.members[old.member_id]
            del self.member_ids[bisect_left(self.member_ids, old.member_id)]
            self.unassigned.discard(old.member_id)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                del self.static_members[old.instance_id]

    def _count(self, old: Member | None, new: Member | None) -> None:
        """Update the counts over all members."""
        if old is not None and new is not None and old.counts_as(new):
            return
        was, now = old or _NOBODY, new or _NOBODY
        names, regexes, matched = self.subscriptions
        names = _moved(names, was.topic_names, now.topic_names)
        regexes = _moved(regexes, _one(was.topic_regex), _one(now.topic_regex))
        self._assignors = _moved(self._assignors, _one(was.server_assignor), _one(now.server_assignor))
        self.classic_members += (now.classic is not None) - (was.classic is not None)
        self.subscriptions = Subscriptions(names, regexes, matched)

    def _own(self, member: Member) -> None:
        epoch = member.member_epoch
        for topic_id, owned in chain(member.assigned.items(), member.pending_revocation.items()):
            epochs = self._owner_epochs.setdefault(topic_id, {})
            if epochs.keys().isdisjoint(owned):
                epochs.update(dict.fromkeys(owned, epoch))
            else:
                epochs.update((partition, max(epochs.get(partition, epoch), epoch)) for partition in owned)

    def _release(self, member: Member) -> None:
        """Remove the member as owner of its partitions, unless a partition has an owner with another epoch. In a
        compacted log the record of the new owner may come before that of the old one."""
        epoch = member.member_epoch
        for topic_id, owned in chain(member.assigned.items(), member.pending_revocation.items()):
            epochs = self._owner_epochs.get(topic_id, {})
            for partition in owned:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._owner_epochs.pop(topic_id, None)
