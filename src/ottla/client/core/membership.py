"""A member of a consumer group (KIP-848): the contents of its heartbeats and the meaning of the responses.

Rule 1: the coordinator decides the assignment. The member owns a partition from `took` until `released`, and reports
        changes to the coordinator.
Rule 2: revocation comes first. New partitions are taken when nothing is left to release: by then their former owners
        have released them, and this member its own.
Rule 3: a heartbeat is complete when the member joins and after one without a response; else it has only the changes.
Rule 4: a member that is unknown to the coordinator, or fenced, owns nothing from then on and joins again.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.errors import Error

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2  # A static member keeps its partitions for the time of its session.
OUT: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH})
"""Errors that mean that the member was removed from the group."""


class Slot(NamedTuple):
    """A partition by topic id, as the coordinator names it."""

    topic_id: bytes
    partition: int


class Next(Enum):
    """What the member has to do after a response."""

    NOTHING = "nothing"
    RECONCILE = "reconcile"
    REJOIN = "rejoin"


class Membership:
    """The state of one member."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        topics: Iterable[str],
        *,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOIN
        self.owned: dict[Slot, None] = {}
        self._topics = list(dict.fromkeys(topics))
        self._rack_id = rack_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._target: dict[Slot, None] | None = None
        self._tells_all = True
        self._tells_owned = True
        self._due_ms = 0
        self._interval_ms = 0

    # Heartbeats.

    @property
    def due_ms(self) -> int:
        """When to send the next heartbeat; at once if there is a change to report."""
        return 0 if self._tells_owned else self._due_ms

    def heartbeat(self, now_ms: int) -> ConsumerGroupHeartbeatRequest:
        everything, owned = self._tells_all, self._tells_all or self._tells_owned
        self._tells_all = self._tells_owned = False
        self._due_ms = now_ms + self._interval_ms
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=self._rack_id if everything else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if everything else -1,
            subscribed_topic_names=self._topics if everything else None,
            topic_partitions=_by_topic(self.owned) if owned else None,
        )

    def farewell(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat that leaves the group."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=LEAVE if self.instance_id is None else LEAVE_FOR_A_WHILE,
        )

    def answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> Next:
        """Apply a response without an error."""
        self.epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        self._due_ms = now_ms + self._interval_ms
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self._target = {Slot(one.topic_id, number): None for one in assigned for number in one.partitions}
        return Next.RECONCILE if self.must_reconcile else Next.NOTHING

    def unanswered(self, retry_at_ms: int) -> None:
        """It is unknown whether the coordinator processed the heartbeat: the next one is complete."""
        self._tells_all = True
        self._tells_owned = False
        self._due_ms = retry_at_ms

    def is_out(self) -> list[Slot]:
        """The coordinator has removed the member; returns the partitions it lost. It joins again."""
        lost = list(self.owned)
        self.owned.clear()
        self._target = None
        self.epoch = JOIN
        self._tells_all = self._tells_owned = True
        return lost

    # Partitions.

    @property
    def must_reconcile(self) -> bool:
        return self._target is not None and self._target != self.owned

    @property
    def is_settled(self) -> bool:
        """Whether the member has its latest assignment."""
        return self._target == self.owned

    @property
    def to_release(self) -> list[Slot]:
        return [] if self._target is None else [slot for slot in self.owned if slot not in self._target]

    @property
    def to_take(self) -> list[Slot]:
        if self._target is None or self.to_release:
            return []
        return [slot for slot in self._target if slot not in self.owned]

    def released(self, slots: Iterable[Slot]) -> None:
        """These partitions are not consumed any more, and their offsets are committed."""
        for slot in slots:
            self.owned.pop(slot, None)
        self._tells_owned = True

    def took(self, slots: Iterable[Slot]) -> None:
        """These partitions are consumed from now on, as far as they are still assigned."""
        if self._target is not None:
            self.owned |= {slot: None for slot in slots if slot in self._target}
            self._tells_owned = True


def _by_topic(slots: Iterable[Slot]) -> list[TopicPartitions]:
    topics: dict[bytes, TopicPartitions] = {}
    for slot in sorted(slots):
        entry = topics.setdefault(slot.topic_id, TopicPartitions(topic_id=slot.topic_id, partitions=[]))
        entry.partitions.append(slot.partition)
    return list(topics.values())
