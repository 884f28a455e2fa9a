"""The range assignor: each member gets the same range of every topic, so that one member gets all records of a key.

Rule 1: static members come first, sorted by instance id; the others follow, sorted by member id. A static member
        therefore keeps its range when it comes back with another member id.
Rule 2: the partitions of a topic are divided into ranges of nearly equal length, the longer ones first.
Rule 3: the assignment is not sticky: it depends only on the members and the topics.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.core.groups.consumer.assignors.spec import Assignment, GroupSpec


def assign_ranges(spec: GroupSpec) -> Mapping[str, Assignment]:
    subscribers = Counter(topic_id for member in spec.members.values() for topic_id in member.topics)
    stretches = {
        topic_id: _stretches(spec.partitions[topic_id], count) for topic_id, count in sorted(subscribers.items())
    }
    assignment: dict[str, Assignment] = {}
    for member_id in _in_order(spec):
        taken = {topic_id: frozenset(next(stretches[topic_id])) for topic_id in sorted(spec.members[member_id].topics)}
        assignment[member_id] = {topic_id: partitions for topic_id, partitions in taken.items() if partitions}
    return assignment


def _in_order(spec: GroupSpec) -> list[str]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    return sorted(spec.members, key=place)


def _stretches(partitions: int, members: int) -> Iterator[range]:
    """One range of partitions per member; together they cover all partitions."""
    quota, longer = divmod(partitions, members)
    start = 0
    for index in range(members):
        end = start + quota + (index < longer)
        yield range(start, end)
        start = end
