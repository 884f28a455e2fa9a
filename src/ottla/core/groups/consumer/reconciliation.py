"""Moves a member from its current assignment to its target assignment, one heartbeat at a time.

Rule 1: the member first gives up partitions, in its old epoch. It enters the target's epoch only when it reports that
        it owns none of them any more. So no partition has two owners.
Rule 2: in the target's epoch the member gets the free partitions at once, and the others as their owners give them up.
Rule 3: a member does not get topics that it does not subscribe to, even if the target has them: the target may be older
        than the subscription.
"""

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.member import Member, MemberState, OwnedPartitions
from ottla.wire.errors import Error, Refused

Reported = Mapping[bytes, Set[int]] | None
"""The partitions that a member reports as owned; None if the request contains no report."""
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_NOTHING: Final[Set[int]] = frozenset()


class Reconciliation(NamedTuple):
    """The target of a reconciliation, and the state that it depends on."""

    epoch: int
    """Epoch of the target assignment."""
    target: Assignment
    subscribed: Set[bytes]
    """Ids of the topics that the member subscribed to."""
    owned: Callable[[bytes], Mapping[int, int]]
    """Returns the partitions of a topic that members of the group own."""
    subscription_changed: bool = False
    """Whether this heartbeat changed the member's subscription."""
    reported: Reported = None

    def step(self, member: Member) -> Member:
        """The member after this heartbeat. Returns `member` itself if nothing changes."""
        if member.state == MemberState.STABLE and member.member_epoch == self.epoch:
            return self._shrink(member)
        if member.state == MemberState.UNREVOKED_PARTITIONS and self._reports_any(member.pending_revocation):
            return self._shrink(member)
        if member.state == MemberState.UNKNOWN:
            if self.reported is None or any(self.reported.values()):
                raise Refused(
                    Error.FENCED_MEMBER_EPOCH,
                    f"member {member.member_id} is in a state unknown here: it must give up its partitions and rejoin",
                )
            return self._advance(member._replace(member_epoch=self.epoch))
        return self._advance(member)

    def _reports_any(self, pending: OwnedPartitions) -> bool:
        """Whether the member still owns some of these partitions. Without a report it counts as owning all of them."""
        if self.reported is None:
            return True
        return any(not pending[topic_id].keys().isdisjoint(self.reported.get(topic_id, ())) for topic_id in pending)

    def _shrink(self, member: Member) -> Member:
        """Revoke partitions of topics that the member no longer subscribes to, whatever the target is."""
        dropped = {
            topic_id: member.assigned[topic_id] for topic_id in member.assigned if topic_id not in self.subscribed
        }
        if not self.subscription_changed or not dropped:
            return member
        kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in dropped}
        pending = dict(member.pending_revocation)
        for topic_id, epochs in dropped.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
        if self._reports_any(pending):
            return member.in_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
        return member.in_epoch(member.member_epoch, member.state, kept, member.pending_revocation)

    def _advance(self, member: Member) -> Member:
        """Move the member towards the target: first revoke partitions, then assign new ones."""
        kept: dict[bytes, Mapping[int, int]] = {}
        dropped: dict[bytes, Mapping[int, int]] = {}
        new: dict[bytes, set[int]] = {}
        waits = False
        for topic_id in self.target.keys() | member.assigned.keys():
            wanted: Set[int] = self.target.get(topic_id, _NOTHING) if topic_id in self.subscribed else _NOTHING
            has = member.assigned.get(topic_id, _NONE)
            if has.keys() <= wanted:
                if has:
                    kept[topic_id] = has
                if len(has) == len(wanted):
                    continue
            else:
                keeps = {partition: epoch for partition, epoch in has.items() if partition in wanted}
                if keeps:
                    kept[topic_id] = keeps
                dropped[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in wanted}
            lacks = set(wanted).difference(has)
            free = lacks.difference(self.owned(topic_id))
            gives_up = member.pending_revocation.get(topic_id)
            if gives_up and len(free) < len(lacks):
                free.update(lacks.intersection(gives_up))  # Partitions that the member itself gave up are free for it.
            waits = waits or len(free) < len(lacks)
            if free:
                new[topic_id] = free
        if dropped and self._reports_any(dropped):
            return member.in_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, dropped)
        for topic_id, free in new.items():
            kept[topic_id] = {**kept.get(topic_id, _NONE), **dict.fromkeys(free, self.epoch)}
        return member.in_epoch(self.epoch, MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE, kept, {})
