"""Making, growing and deleting topics: every item has its own outcome."""

import pytest
from core_metadata_samples import Cluster, create_partitions, delete_topics, numbered, topic

from ottla.core.metadata.topics import PARTITIONS_PER_REQUEST_MAX
from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.api.create_topics import CreatableTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic(""), Error.INVALID_TOPIC_EXCEPTION),
        (topic("."), Error.INVALID_TOPIC_EXCEPTION),
        (topic(".."), Error.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), Error.INVALID_TOPIC_EXCEPTION),
        (topic("naïve"), Error.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), Error.INVALID_TOPIC_EXCEPTION),
        (topic("line\n"), Error.INVALID_TOPIC_EXCEPTION),
        (topic("has.dot"), Error.TOPIC_ALREADY_EXISTS),
        (topic("has_dot"), Error.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), Error.INVALID_REQUEST),
        (topic("t", 0), Error.INVALID_PARTITIONS),
        (topic("t", -2), Error.INVALID_PARTITIONS),
        (topic("t", 1, 0), Error.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), Error.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 3), Error.INVALID_REPLICATION_FACTOR),
        (topic("t", configs={"retention.ms": None}), Error.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": "soon"}), Error.INVALID_CONFIG),
        (topic("t", configs={"no.such.setting": "1"}), Error.INVALID_CONFIG),
        (topic("t", 1, 1, assignments={0: [1]}), Error.INVALID_REQUEST),
        (topic("t", 2, assignments={0: [1]}), Error.INVALID_REQUEST),
        (topic("t", assignments={0: []}), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: [7]}), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: [1, 1]}), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: [1], 1: [1, 2]}), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={1: [1]}), Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_topic_is_refused_and_its_neighbour_made(wanted: CreatableTopic, error: Error) -> None:
    cluster = Cluster(brokers=2)
    cluster.create(topic("has.dot"))
    bad, good = cluster.create(wanted, topic("good")).topics
    assert (bad.error_code, good.error_code) == (error, Error.NONE)
    assert bad.error_message
    assert sorted(cluster.image.topics) == ["good", "has.dot"]


@pytest.mark.parametrize("name", ["x" * 249, "a-b_c.D9", "...", "_"])
def test_name_that_kafka_takes_is_taken(name: str) -> None:
    assert Cluster().create(topic(name)).topics[0].error_code == Error.NONE


def test_topics_of_one_request_may_collide_too() -> None:
    cluster = Cluster()
    results = {one.name: one.error_code for one in cluster.create(topic("a.b"), topic("a_b")).topics}
    assert results == {"a.b": Error.NONE, "a_b": Error.INVALID_TOPIC_EXCEPTION}


def test_topic_named_twice_is_not_made() -> None:
    """Nobody can tell which of the two was meant."""
    cluster = Cluster()
    results = cluster.create(topic("t"), topic("u"), topic("t", 5)).topics
    assert [(one.name, one.error_code) for one in results] == [("u", Error.NONE), ("t", Error.INVALID_REQUEST)]
    assert list(cluster.image.topics) == ["u"]


def test_assignment_is_kept_as_given() -> None:
    cluster = Cluster(brokers=3)
    made = cluster.create(topic("t", assignments={1: [3, 1], 0: [2, 3]})).topics[0]
    assert (made.error_code, made.num_partitions, made.replication_factor) == (Error.NONE, 2, 2)
    assert [(p.replicas, p.isr, p.leader) for _, _, p in cluster.image.partitions()] == [
        ((2, 3), (2, 3), 2),
        ((3, 1), (3, 1), 3),
    ]


def test_fenced_broker_is_assigned_but_neither_in_sync_nor_leading() -> None:
    cluster = Cluster(brokers=2)
    cluster.join(1, ready=False)
    cluster.create(topic("t", assignments={0: [1, 2]}))
    partition = cluster.image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)
    refused = cluster.create(topic("u", assignments={0: [1]})).topics[0]
    assert refused.error_code == Error.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_replicas_left_open_are_three_or_one_per_broker(brokers: int, replicas: int) -> None:
    """Kafka's default of one loses the topic with its disk."""
    assert Cluster(brokers=brokers).create(topic("t")).topics[0].replication_factor == replicas


def test_settings_say_the_defaults() -> None:
    cluster = Cluster(brokers=3, num_partitions="4", default_replication_factor="2")
    made = cluster.create(topic("t", -1)).topics[0]
    assert (made.num_partitions, made.replication_factor) == (4, 2)


def test_answer_tells_the_settings_that_count() -> None:
    made = Cluster(log_retention_ms="77").create(topic("t", configs={"cleanup.policy": "compact"})).topics[0]
    told = {one.name: (one.value, one.config_source) for one in made.configs or []}
    assert told["cleanup.policy"] == ("compact", 1)
    assert told["retention.ms"] == ("77", 4)
    assert told["segment.bytes"] == ("1073741824", 5)


def test_validation_alone_changes_nothing_and_says_the_same() -> None:
    cluster = Cluster()
    told = cluster.create(topic("t", 3), topic("bad name"), validate_only=True)
    assert [(one.name, one.error_code) for one in told.topics] == [
        ("t", Error.NONE),
        ("bad name", Error.INVALID_TOPIC_EXCEPTION),
    ]
    assert cluster.image.topics == {}
    assert cluster.create(topic("t", 3)).topics[0].error_code == Error.NONE


def test_too_many_partitions_in_one_request_are_refused_whole() -> None:
    with pytest.raises(Refused) as refused:
        Cluster().create(topic("t", PARTITIONS_PER_REQUEST_MAX), topic("u"))
    assert refused.value.error is Error.POLICY_VIOLATION


def test_broker_of_several_directories_says_later_where_a_replica_is() -> None:
    cluster = Cluster()
    cluster.join(1, directories=2)
    cluster.create(topic("t"))
    assert cluster.image.topics["t"].partitions[0].directories == (bytes(15) + b"\x01",)


# Growing.


def _grown(cluster: Cluster, *wanted: CreatePartitionsTopic, validate_only: bool = False) -> list[tuple[str, int]]:
    request = CreatePartitionsRequest(topics=list(wanted), timeout_ms=0, validate_only=validate_only)
    reply = cluster.apply(create_partitions(cluster.image, request, cluster.random))
    return [(one.name, one.error_code) for one in reply.results]


def _more(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    listed = None if assignments is None else [CreatePartitionsAssignment(broker_ids=one) for one in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=listed)


def test_partitions_are_added_with_the_replicas_of_the_others() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(topic("t", 2, 2))
    assert _grown(cluster, _more("t", 5)) == [("t", Error.NONE)]
    partitions = cluster.image.topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert {len(partition.replicas) for partition in partitions.values()} == {2}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (_more("nope", 5), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (_more("t", 2), Error.INVALID_PARTITIONS),
        (_more("t", 1), Error.INVALID_PARTITIONS),
        (_more("t", 4, [[1, 2]]), Error.INVALID_REPLICA_ASSIGNMENT),
        (_more("t", 3, [[1]]), Error.INVALID_REPLICA_ASSIGNMENT),
        (_more("t", 3, [[1, 9]]), Error.INVALID_REPLICA_ASSIGNMENT),
        (_more("t", 3 + PARTITIONS_PER_REQUEST_MAX), Error.POLICY_VIOLATION),
        (_more("t", 3 + PARTITIONS_PER_REQUEST_MAX, [[1, 2]]), Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_growth_is_refused(wanted: CreatePartitionsTopic, error: Error) -> None:
    cluster = Cluster(brokers=2)
    cluster.create(topic("t", 2, 2), topic("other"))
    assert _grown(cluster, wanted, _more("other", 2)) == [(wanted.name, error), ("other", Error.NONE)]


def test_growth_is_validated_without_growing() -> None:
    cluster = Cluster()
    cluster.create(topic("t"))
    assert _grown(cluster, _more("t", 3), validate_only=True) == [("t", Error.NONE)]
    assert _grown(cluster, _more("t", 3), _more("t", 4)) == [("t", Error.INVALID_REQUEST)]
    assert len(cluster.image.topics["t"].partitions) == 1


# Deleting.


def _deleted(cluster: Cluster, *topics: tuple[str | None, bytes]) -> list[tuple[str | None, int]]:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    reply = cluster.apply(delete_topics(cluster.image, DeleteTopicsRequest(topics=states, timeout_ms=0)))
    return [(one.name, one.error_code) for one in reply.responses]


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = Cluster()
    cluster.create(topic("a"), topic("b"), topic("c"))
    by_id = cluster.image.topics["b"].topic_id
    assert _deleted(cluster, ("a", NO_UUID), (None, by_id)) == [("a", Error.NONE), ("b", Error.NONE)]
    assert list(cluster.image.topics) == ["c"]


def test_every_bad_deletion_has_its_own_error() -> None:
    cluster = Cluster()
    cluster.create(topic("a"), topic("b"))
    a, b = (cluster.image.topics[name].topic_id for name in "ab")
    assert _deleted(
        cluster,
        (None, NO_UUID),
        ("a", a),
        ("gone", NO_UUID),
        (None, numbered(3, 3)),
        ("b", NO_UUID),
        (None, b),
        ("a", NO_UUID),
        ("a", NO_UUID),
    ) == [
        (None, Error.INVALID_REQUEST),
        ("a", Error.INVALID_REQUEST),
        ("gone", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (None, Error.UNKNOWN_TOPIC_ID),
        ("b", Error.INVALID_REQUEST),
        (None, Error.INVALID_REQUEST),
        ("a", Error.INVALID_REQUEST),
    ]
    assert sorted(cluster.image.topics) == ["a", "b"]
    # What is named by both or by neither is told each time.
    assert _deleted(cluster, ("a", b), ("a", b), (None, NO_UUID), (None, NO_UUID)) == [
        ("a", Error.INVALID_REQUEST),
        ("a", Error.INVALID_REQUEST),
        (None, Error.INVALID_REQUEST),
        (None, Error.INVALID_REQUEST),
    ]
