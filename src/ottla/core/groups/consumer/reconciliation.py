"""How a member comes from what it owns to what it should own, one heartbeat at a time.

Rule 1: first it gives up what is no longer its own, in its old epoch; only when it reports that it owns none of it any
        more does it enter the target's epoch. So no partition has two owners.
Rule 2: in the target's epoch it gets what is free at once, and the rest as the others give it up.
Rule 3: what a member is not subscribed to is not its own, whatever the target says: the target may be older than the
        subscription.
"""

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.member import Member, MemberState, OwnedPartitions
from ottla.wire.errors import Error, Refused

Reported = Mapping[bytes, Set[int]] | None
"""What a member says it owns; None when it does not say."""
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_NOTHING: Final[Set[int]] = frozenset()


class Reconciliation(NamedTuple):
    """What a member is to be reconciled to."""

    epoch: int
    """Of the target assignment."""
    target: Assignment
    subscribed: Set[bytes]
    """The ids of the topics that the member subscribed to."""
    owned: Callable[[bytes], Mapping[int, int]]
    """The partitions of a topic that members of the group own."""
    subscription_changed: bool = False
    """The member brought another subscription with this very heartbeat."""
    reported: Reported = None

    def step(self, member: Member) -> Member:
        """The member after this heartbeat; the same one when it has to stay where it is."""
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
        """The member still owns some of these; who says nothing owns all."""
        if self.reported is None:
            return True
        return any(not pending[topic_id].keys().isdisjoint(self.reported.get(topic_id, ())) for topic_id in pending)

    def _shrink(self, member: Member) -> Member:
        """Take away what is not subscribed to any more, without looking at the target."""
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
        """Towards the target: give up, then take."""
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
                free.update(lacks.intersection(gives_up))  # What the member itself has just given up is free for it.
            waits = waits or len(free) < len(lacks)
            if free:
                new[topic_id] = free
        if dropped and self._reports_any(dropped):
            return member.in_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, dropped)
        for topic_id, free in new.items():
            kept[topic_id] = {**kept.get(topic_id, _NONE), **dict.fromkeys(free, self.epoch)}
        return member.in_epoch(self.epoch, MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE, kept, {})
