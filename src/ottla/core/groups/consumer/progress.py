"""The steps of a member's heartbeat (or classic join), and the records that they write.

Rule 1: the member is written if it has changed. The group epoch increases if a subscription or the subscribed topics
        have changed. The target is computed for the newest epoch, but not more often than the assignment interval
        allows. Then the member is reconciled with the target.
Rule 2: a new pattern is not resolved within its heartbeat, but later and together with all patterns of the group. Until
        then it matches no topics. The group epoch does not increase for it, because the resolution increases it.
"""

from enum import IntEnum
from typing import Final

from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.group import ConsumerGroup, Subscriptions
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.groups import Awaited, ConsumerGroups
from ottla.core.groups.consumer.member import Member
from ottla.core.groups.consumer.reconciliation import Reconciliation, Reported
from ottla.core.groups.consumer.regexes import Resolution, ResolvedRegex
from ottla.core.groups.consumer.target import TargetAssignment, compute_target, subscribed_ids
from ottla.core.groups.timers import Timer
from ottla.core.runtime.shard import CoordinatorRecord

REGEX_REFRESH_INTERVAL_MS_MIN: Final = 10_000


class RegexChange(IntEnum):
    """The change that a request makes to the member's pattern."""

    NONE = 0
    UNRESOLVED = 1
    """The new pattern has not been resolved yet."""
    RESOLVED = 2
    """The topics of the new pattern are known, or the member has no pattern any more."""


class GroupProgress:
    """The steps of one request. `old` is the current or a new member; `new` has the changes of the request."""

    def __init__(self, here: ConsumerGroups, group: ConsumerGroup, old: Member, new: Member, now_ms: int) -> None:
        self.records = GroupRecords(group.group_id)
        self.epoch = group.epoch
        self._here = here
        self._group = group
        self._old = old
        self._new = new
        self._now_ms = now_ms
        self._changed: Subscriptions | None = None

    @property
    def _subscriptions(self) -> Subscriptions:
        """The subscriptions of the group with the changes of this request."""
        if self._changed is None:
            group = self._group
            self._changed = group.subscriptions.changed(self._old, self._new, group.resolved_regexes)
        return self._changed

    def write_member(self) -> bool:
        """Write the member if it has changed. Returns whether its subscribed topic names have changed."""
        if self._new is self._old or self._new == self._old:
            return False
        self.records.member(self._new)
        return self._new.topic_names != self._old.topic_names

    def write_regex(self) -> RegexChange:
        group, counts = self._group, self._group.subscriptions.regexes
        old, new = self._old.topic_regex, self._new.topic_regex
        change, is_unknown = RegexChange.NONE, False
        if old != new:
            change = RegexChange.UNRESOLVED
            if old and counts.get(old) == 1:
                self.records.other(written.no_regex(group.group_id, old))
            if new and new not in counts:
                self._here.regexes.check(new)
                is_unknown = True
            elif (new in group.resolved_regexes) if new else old:
                change = RegexChange.RESOLVED
        if is_unknown or counts:
            self._refresh_regexes_if_due(is_unknown)
        return change

    def _refresh_regexes_if_due(self, is_unknown: bool) -> None:
        timer = Timer(Awaited.REGEXES, self._group.group_id)
        last, now_ms = self._group.last_refresh(), self._now_ms
        if timer in self._here.deadlines or not self._subscriptions.regexes:
            return
        if last is not None:
            age_ms = now_ms - last.timestamp
            if age_ms <= REGEX_REFRESH_INTERVAL_MS_MIN:
                return
            is_old = age_ms > self._here.settings.regex_refresh_interval_ms
            is_old = is_old or last.version < self._here.topics.version_with_new_topics
        else:
            is_old = True
        if is_unknown or is_old or len(self._subscriptions.regexes) != len(self._group.resolved_regexes):
            self._here.deadlines.set(timer, now_ms)

    def write_epoch(self, *, is_new: bool) -> None:
        """Increase the group epoch if `is_new`, or if the topics have changed since the last epoch."""
        group, topics = self._group, self._here.topics
        if not is_new and group.has_seen(topics.changes, self._now_ms):
            return
        metadata_hash = topics.hash_of(self._subscriptions.topics())
        if is_new or metadata_hash != group.metadata_hash:
            self.epoch += 1
            self.records.epoch(self.epoch, metadata_hash)
        group.saw(topics.changes, self.epoch, self._now_ms)
        if group.has_partition_metadata:
            self.records.other(written.no_partition_metadata(group.group_id))

    def write_target(self) -> TargetAssignment:
        group, settings = self._group, self._here.settings
        if group.assignment_epoch >= self.epoch or not self._may_assign():
            return TargetAssignment(group.assignment_epoch, group.target_of(self._new))
        members = len(group.members)
        if self._new.member_id not in group.members and group.static_member(self._new.instance_id) is None:
            members += 1
        preferred = group.preferred_assignor(self._old, self._new)
        assignors = settings.assignors
        return compute_target(
            group,
            self.epoch,
            self._new,
            assignor=preferred if preferred is not None and preferred in assignors else assignors[0],
            is_homogeneous=self._subscriptions.are_homogeneous(members),
            topics=self._here.topics,
            now_ms=self._now_ms,
            records=self.records,
        )

    def _may_assign(self) -> bool:
        """Whether the assignment interval has passed. It saves a computation per member if many join at once."""
        interval_ms = self._here.settings.assignment_interval_ms(self._group.group_id)
        last_ms = self._group.assignment_timestamp
        return last_ms == 0 or interval_ms == 0 or self._now_ms >= last_ms + interval_ms

    def write_assignment(self, target: TargetAssignment, reported: Reported, *, subscription_changed: bool) -> Member:
        """Reconcile the member with the target, and write it if it has changed. Returns the member after the step."""
        group, member = self._group, self._new
        if not subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        step = Reconciliation(
            epoch=target.epoch,
            target=target.assignment,
            subscribed=subscribed_ids(group, member, self._here.topics),
            owned=group.owned,
            subscription_changed=subscription_changed,
            reported=reported,
        )
        after = step.step(member)
        if after is not member and after != member:
            self.records.current(after)
            self._here.watch_revocation(group.group_id, after, self._now_ms)
        return after


def refresh_regexes(
    here: ConsumerGroups, group: ConsumerGroup, now_ms: int, matches: int
) -> tuple[list[CoordinatorRecord], int]:
    """Resolve a group's patterns and write the topics that they match. The group epoch increases if these have changed.

    Makes at most about `matches` matches. If patterns are left, a timer for them is due at once, after other work.
    Returns the records and the number of matches that were not used.
    """
    topics, group_id = here.topics, group.group_id
    wanted = group.subscriptions.regexes
    resolution = here.resolutions.pop(group_id, None) or Resolution(topics.image.topics, topics.version)
    left = resolution.step(here.regexes, wanted, matches)
    if not resolution.has(wanted):
        here.resolutions[group_id] = resolution
        here.deadlines.set(Timer(Awaited.REGEXES, group_id), now_ms)
        return [], left
    resolved = {regex: ResolvedRegex(resolution.found[regex], resolution.version, now_ms) for regex in wanted}
    names, _, _ = group.subscriptions
    after = names.keys() | {topic for one in resolved.values() for topic in one.topics}
    metadata_hash = topics.hash_of(after)
    is_new = metadata_hash != group.metadata_hash or any(
        one.topics != (old.topics if (old := group.resolved_regexes.get(regex)) is not None else frozenset())
        for regex, one in resolved.items()
    )
    result = [written.regex_record(group_id, regex, one) for regex, one in resolved.items()]
    if is_new:
        result.append(written.epoch_record(group_id, group.epoch + 1, metadata_hash))
        group.saw(topics.changes, group.epoch + 1, now_ms)
    return result, left
