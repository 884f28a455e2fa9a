"""Decisions about topics: creating, adding partitions, deleting.

Rule 1: every item of a request has its own outcome. An item that fails does not affect the others. An item that occurs
        twice fails each time, because it is not known which one is intended.
Rule 2: the records of a topic are consecutive: TopicRecord, its settings, its partitions.
Rule 3: with `validate_only` the response is the same, and nothing is written.
Rule 4: if a request does not set the number of replicas, a topic gets three, or one per broker if there are fewer.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config import NUM_PARTITIONS, Config
from ottla.config.replication import DEFAULT_REPLICATION_FACTOR
from ottla.core.metadata.config_entries import topic_entries
from ottla.core.metadata.configs import CHANGES_MAX, topic_config
from ottla.core.metadata.image import TOPIC, Image, Partition, Topic
from ottla.core.metadata.names import CLUSTER_METADATA, check_name, collision_key
from ottla.core.metadata.placement import PlacementRandom, Usable, default_directory
from ottla.core.metadata.records import MetadataRecord
from ottla.core.metadata.snapshot import partition_record
from ottla.wire.api.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
)
from ottla.wire.api.delete_topics import DeletableTopicResult
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.wire.rows import Shared
from ottla.wire.types import NO_UUID

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
_REPLICAS_BY_DEFAULT: Final = 3
_OPEN: Final = -1  # The request leaves it to the broker.


Named = tuple[str | None, bytes]
"""A topic given by its name or by its id."""
Described = dict[tuple[tuple[str, str], ...], Shared[CreatableTopicConfigs]]
"""Descriptions of settings, by the overrides of a topic."""


class Surroundings(NamedTuple):
    """The inputs for creating topics other than the image."""

    config: Config
    chance: PlacementRandom
    new_id: Callable[[], bytes]


# Creating.


def create_each(
    image: Image,
    topics: Iterable[CreatableTopic],
    around: Surroundings,
    new_names: dict[str, str],
    described: Described,
) -> tuple[list[MetadataRecord], list[CreatableTopicResult]]:
    """Create topics, each of which is named once in the request. All slices of a request share `described` and
    `new_names`, with which later names may collide."""
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    for topic in topics:
        try:
            made, result = _create_topic(image, topic, around, new_names, described)
        except Refused as refusal:
            results.append(failed_topic(topic.name, refusal))
            continue
        if (key := collision_key(topic.name)) is not None:
            new_names[key] = topic.name
        records += made
        results.append(result)
    return records, results


def named_twice(name: str) -> CreatableTopicResult:
    return failed_topic(name, Refused(Error.INVALID_REQUEST, "the topic is named more than once in the request"))


def check_size(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise Refused(
            Error.POLICY_VIOLATION,
            f"{partitions} partitions in one request, at most {PARTITIONS_PER_REQUEST_MAX} are allowed: send several",
        )


def partitions_wanted(topic: CreatableTopic, config: Config) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config[NUM_PARTITIONS] if topic.num_partitions == _OPEN else max(topic.num_partitions, 0)


def _create_topic(
    image: Image, topic: CreatableTopic, around: Surroundings, new_names: dict[str, str], described: Described
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    _check_new_name(image, topic.name, new_names)
    overrides = _overrides(topic)
    configs = _described(overrides, around.config, described)
    if topic.assignments:
        placed = _assigned(image, topic)
    else:
        placed = _placed(image, topic, around)
    new = Topic(topic.name, around.new_id())
    records: list[MetadataRecord] = [TopicRecord(name=new.name, topic_id=new.topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC, resource_name=new.name, name=name, value=value)
        for name, value in overrides.items()
    ]
    records += [
        partition_record(new, index, _new_partition(image, replicas), image.level)
        for index, replicas in enumerate(placed)
    ]
    result = CreatableTopicResult(
        name=new.name,
        topic_id=new.topic_id,
        error_code=Error.NONE,
        error_message=None,
        num_partitions=len(placed),
        replication_factor=len(placed[0]),
        configs=configs,
    )
    return records, result


def _described(overrides: dict[str, str], config: Config, described: Described) -> Shared[CreatableTopicConfigs]:
    """The effective settings of a topic. Topics with the same overrides share one description."""
    key = tuple(overrides.items())
    if key not in described:
        described[key] = Shared(
            [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in topic_entries(topic_config(config, overrides), None)
            ]
        )
    return described[key]


def _check_new_name(image: Image, name: str, new_names: dict[str, str]) -> None:
    if name == CLUSTER_METADATA:
        raise Refused(Error.INVALID_REQUEST, f"{name} is the cluster's own and no topic to make")
    check_name(name)
    if name in image.topics:
        raise Refused(Error.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if (key := collision_key(name)) is not None:
        other = next(iter(image.collisions.get(key, ())), new_names.get(key))
        if other is not None:
            raise Refused(
                Error.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with topic {other!r}: metrics write '.' and '_' alike",
            )


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    if len(topic.configs) > CHANGES_MAX:
        raise Refused(Error.POLICY_VIOLATION, f"more than {CHANGES_MAX} settings of one topic")
    without = [config.name for config in topic.configs if config.value is None]
    if without:
        raise Refused(Error.INVALID_CONFIG, f"settings without a value: {', '.join(without)}")
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _assigned(image: Image, topic: CreatableTopic) -> list[list[int]]:
    """The replicas of each partition, listed in the request."""
    if topic.replication_factor != _OPEN or topic.num_partitions != _OPEN:
        raise Refused(
            Error.INVALID_REQUEST,
            "with an assignment of replicas the numbers of partitions and replicas must be left open (-1)",
        )
    by_index: dict[int, list[int]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise Refused(Error.INVALID_REPLICA_ASSIGNMENT, f"partition {index} is assigned twice")
        _check_assignment(image, index, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[index] = assignment.broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise Refused(Error.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on without a gap")
    return [by_index[index] for index in sorted(by_index)]


def _check_assignment(image: Image, index: int, replicas: list[int], replication_factor: int | None) -> None:
    def refuse(why: str) -> Refused:
        return Refused(Error.INVALID_REPLICA_ASSIGNMENT, f"partition {index}: {why}")

    if not replicas:
        raise refuse("the list of replicas is empty")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise refuse(f"there is no broker {broker_id}")
        if replicas.count(broker_id) > 1:
            raise refuse(f"broker {broker_id} is listed more than once")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refuse(f"{len(replicas)} replicas, other partitions have {replication_factor}")
    if not any(image.brokers[broker_id].active for broker_id in replicas):
        raise refuse("every broker listed is fenced or stopping")


def _placed(image: Image, topic: CreatableTopic, around: Surroundings) -> list[list[int]]:
    """The replicas of each partition, chosen by placement."""
    if topic.replication_factor < _OPEN or topic.replication_factor == 0:
        raise Refused(Error.INVALID_REPLICATION_FACTOR, "at least one replica is needed, or -1 for the default")
    if topic.num_partitions < _OPEN or topic.num_partitions == 0:
        raise Refused(Error.INVALID_PARTITIONS, "at least one partition is needed, or -1 for the default")
    usable = Usable(image.brokers.values(), around.chance)
    replication_factor = topic.replication_factor
    if replication_factor == _OPEN:
        replication_factor = default_replication_factor(around.config, usable)
    return [usable.place(replication_factor) for _ in range(partitions_wanted(topic, around.config))]


def default_replication_factor(config: Config, usable: Usable) -> int:
    said = config[DEFAULT_REPLICATION_FACTOR]
    return said if said > 0 else max(min(_REPLICAS_BY_DEFAULT, usable.total), 1)


def _new_partition(image: Image, replicas: list[int]) -> Partition:
    isr = tuple(broker_id for broker_id in replicas if image.brokers[broker_id].active)
    return Partition(
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(default_directory(image, broker_id) for broker_id in replicas),
    )


def failed_topic(name: str, refusal: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.error, error_message=refusal.text)


# Growing.


def grow_each(
    image: Image, topics: Iterable[CreatePartitionsTopic], chance: PlacementRandom, named: Mapping[str, int]
) -> tuple[list[MetadataRecord], list[CreatePartitionsTopicResult]]:
    """Add partitions to topics. `named` has the number of times that each topic occurs in the request."""
    records: list[MetadataRecord] = []
    results: list[CreatePartitionsTopicResult] = []
    twice = Refused(Error.INVALID_REQUEST, "the topic is named more than once in the request")
    for topic in topics:
        outcome: Refused | None = twice if named[topic.name] > 1 else None
        if outcome is None:
            try:
                records += _grow(image, topic, chance)
            except Refused as refusal:
                outcome = refusal
        results.append(
            CreatePartitionsTopicResult(
                name=topic.name,
                error_code=outcome.error if outcome else Error.NONE,
                error_message=outcome.text if outcome else None,
            )
        )
    return records, results


def _grow(image: Image, wanted: CreatePartitionsTopic, chance: PlacementRandom) -> list[MetadataRecord]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")
    count = len(topic.partitions)
    additional = wanted.count - count
    if additional <= 0:
        raise Refused(
            Error.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {count} partitions; {wanted.count} would be no increase",
        )
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise Refused(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{additional} partitions are to be added and {len(wanted.assignments)} assigned",
        )
    check_size(additional)
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        usable = Usable(image.brokers.values(), chance)
        placed = [usable.place(replication_factor) for _ in range(additional)]
    else:
        placed = [assignment.broker_ids for assignment in wanted.assignments]
        for index, replicas in enumerate(placed, count):
            _check_assignment(image, index, replicas, replication_factor)
    return [
        partition_record(topic, index, _new_partition(image, replicas), image.level)
        for index, replicas in enumerate(placed, count)
    ]


# Deleting.


def found_id(image: Image, named: Named) -> bytes | None:
    """The id of the topic with this name or id; None if there is none."""
    topic = _find(image, *named)
    return topic.topic_id if isinstance(topic, Topic) else None


def delete_each(
    image: Image, topics: Iterable[Named], repeated: Mapping[Named, int], hits: Mapping[bytes, int]
) -> tuple[list[MetadataRecord], list[DeletableTopicResult]]:
    """Delete topics. `repeated` counts how often the request has each name or id, `hits` how often each topic."""
    records: list[MetadataRecord] = []
    results: list[DeletableTopicResult] = []
    for name, topic_id in topics:
        topic = _find(image, name, topic_id)
        if (name is None) == (topic_id == NO_UUID):
            assert isinstance(topic, Refused), "named by both or by neither"
            results += [_deleted(name, topic_id, topic)] * repeated[name, topic_id]  # Answered each time, as in Kafka.
            continue
        if repeated[name, topic_id] > 1:
            topic = Refused(Error.INVALID_REQUEST, "the topic is named more than once in the request")
        elif isinstance(topic, Topic) and hits[topic.topic_id] > 1:
            topic = Refused(Error.INVALID_REQUEST, "the topic is named by its id and by its name")
        if isinstance(topic, Refused):
            results.append(_deleted(name, topic_id, topic))
        else:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            results.append(_deleted(topic.name, topic.topic_id, None))
    return records, results


def _find(image: Image, name: str | None, topic_id: bytes) -> Topic | Refused:
    if name is None and topic_id == NO_UUID:
        return Refused(Error.INVALID_REQUEST, "neither a name nor an id of a topic")
    if name is not None and topic_id != NO_UUID:
        return Refused(Error.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    if name is None:
        found = image.topic_by_id(topic_id)
        return found if found is not None else Refused(Error.UNKNOWN_TOPIC_ID)
    found = image.topics.get(name)
    return found if found is not None else Refused(Error.UNKNOWN_TOPIC_OR_PARTITION)


def _deleted(name: str | None, topic_id: bytes, refusal: Refused | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=refusal.error if refusal else Error.NONE,
        error_message=refusal.text if refusal else None,
    )
