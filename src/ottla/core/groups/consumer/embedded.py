"""The subscriptions and assignments of consumers, which are encoded inside the requests of the classic protocol.

The coordinator of a classic group does not decode these bytes. A group with members of both protocols has to.
"""

from struct import Struct as Layout
from typing import Final, TypeVar

from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.topics import TopicView
from ottla.wire.codec import Malformed, decode_from, encode
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition

T = TypeVar("T")

_VERSION: Final = Layout(">h")
_VERSION_MAX: Final = 3


def version_of(data: bytes) -> int:
    """The version of the encoded data, at most the newest known version: later versions only append fields."""
    if len(data) < _VERSION.size or (version := int(_VERSION.unpack_from(data)[0])) < 0:
        raise Malformed("ConsumerProtocol", 0, "version", f"{len(data)} bytes do not begin with a version")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(assignment: Assignment, version: int, topics: TopicView) -> bytes:
    """Encode an assignment for a classic member. Deleted topics are left out."""
    partitions = [
        TopicPartition(topic=topic.name, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
        if (topic := topics.by_id(topic_id)) is not None
    ]
    told = ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=None)
    return _VERSION.pack(version) + encode(told, version)


def by_id(partitions: list[TopicPartition], topics: TopicView) -> dict[bytes, frozenset[int]]:
    """The partitions by topic id. Topics that do not exist are left out."""
    return {
        topic.topic_id: frozenset(one.partitions)
        for one in partitions
        if (topic := topics.by_name(one.topic)) is not None
    }


def _read(cls: type[T], data: bytes) -> T:
    told, _ = decode_from(cls, version_of(data), data, _VERSION.size)
    return told
