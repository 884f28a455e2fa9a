"""The uniform assignor for members that subscribed to different topics.

Rule 1: partitions without an owner go to the least loaded subscriber, topic by topic. Topics with the most partitions
        per subscriber come first, because they leave the least choice.
Rule 2: then, topic by topic, partitions move from the most to the least loaded subscriber. This ends when the two loads
        differ by at most one, or when no subscriber with a higher load has a partition of the topic.
Rule 3: the algorithm ends when no topic needs a move, or after `_ROUNDS_MAX` rounds. With subscriptions that overlap in
        chains, each round about halves the imbalance, and removing the rest is not worth the time.
"""

import heapq
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.core.groups.consumer.assignors.spec import Assignment, GroupSpec

_ROUNDS_MAX: Final = 16
_SIGNED_HALVES: Final = struct.Struct(">qq")
_NOBODY: Final = -1


def assign_mixed(spec: GroupSpec) -> Mapping[str, Assignment]:
    return _Mixed(spec).assign()


class _Mixed:
    """The state of the algorithm. A member is represented by its index in the sorted list of ids."""

    def __init__(self, spec: GroupSpec) -> None:
        self._partitions = spec.partitions
        self._member_ids = sorted(spec.members)
        self._load = [0] * len(self._member_ids)
        self._subscribers: dict[bytes, list[int]] = {}
        for place, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(place)
        self._owners = {topic_id: [_NOBODY] * spec.partitions[topic_id] for topic_id in self._subscribers}
        for place, member_id in enumerate(self._member_ids):
            topics = spec.members[member_id].topics
            for topic_id, partitions in spec.assigned_to(member_id).items():
                if topic_id in topics:
                    self._load[place] += len(partitions)
                    for partition in partitions:
                        self._owners[topic_id][partition] = place

    def assign(self) -> dict[str, Assignment]:
        for topic_id in self._in_order(self._subscribers):
            self._hand_out(topic_id)
        self._balance([topic_id for topic_id, members in self._subscribers.items() if len(members) > 1])
        assignment: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, place in enumerate(owners):
                assignment[self._member_ids[place]].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in share.items()}
            for member_id, share in assignment.items()
        }

    def _in_order(self, topics: Iterable[bytes]) -> list[bytes]:
        def order(topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
            subscribers = len(self._subscribers[topic_id])
            # Kafka compares topic ids as two signed 64-bit numbers.
            return -self._partitions[topic_id] / subscribers, subscribers, _SIGNED_HALVES.unpack(topic_id)

        return sorted(topics, key=order)

    def _ranked(self, topic_id: bytes) -> list[tuple[int, int, int]]:
        """Load, rank and index of a topic's subscribers, the least loaded first."""
        by_load = sorted(self._subscribers[topic_id], key=lambda place: (self._load[place], place))
        return [(self._load[place], rank, place) for rank, place in enumerate(by_load)]

    def _hand_out(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        least_loaded = self._ranked(topic_id)  # A sorted list is a heap.
        for partition, owner in enumerate(owners):
            if owner == _NOBODY:
                load, rank, place = least_loaded[0]
                heapq.heapreplace(least_loaded, (load + 1, rank, place))
                owners[partition] = place
                self._load[place] += 1

    def _balance(self, topics: list[bytes]) -> None:
        ordered = self._in_order(topics)
        without_move = 0
        for topic_id in ordered * _ROUNDS_MAX:
            if without_move == len(ordered):
                return
            without_move = 1 if self._balance_topic(topic_id) else without_move + 1

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of one topic (Rule 2). Returns whether any partition moved."""
        least_loaded = self._ranked(topic_id)
        if least_loaded[-1][0] - least_loaded[0][0] <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, place in enumerate(owners):
            owned.setdefault(place, []).append(partition)
        most_loaded = [(-load, -rank, place) for load, rank, place in reversed(least_loaded)]
        moved = False
        while most_loaded:
            most, rank, giver = most_loaded[0]
            if not owned.get(giver):
                heapq.heappop(most_loaded)
                continue
            least, taker_rank, taker = least_loaded[0]
            if -most - least <= 1:
                break
            heapq.heapreplace(most_loaded, (most + 1, rank, giver))
            heapq.heapreplace(least_loaded, (least + 1, taker_rank, taker))
            owners[owned[giver].pop()] = taker
            self._load[giver] -= 1
            self._load[taker] += 1
            moved = True
        return moved
