"""Images with brokers in them, and requests."""

from collections import Counter
from itertools import count
from random import Random
from typing import Any

from ottla.config import Config
from ottla.core.metadata.brokers import Heartbeat, Registration, heartbeat, register
from ottla.core.metadata.features import SUPPORTED, activate, bootstrap_records
from ottla.core.metadata.image import BrokerEndpoint, Image
from ottla.core.metadata.snapshot import records_of
from ottla.core.metadata.topics import (
    Named,
    Surroundings,
    check_size,
    create_each,
    delete_each,
    found_id,
    grow_each,
    named_twice,
    partitions_wanted,
)
from ottla.core.runtime.decision import Decision
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.schema import structure_of
from ottla.wire.types import NO_UUID

LISTENER = "PLAINTEXT"


def numbered(prefix: int, number: int) -> bytes:
    return bytes([prefix]) + number.to_bytes(15, "big")


class Cluster:
    """A controller in memory: decides, and replays what was decided."""

    def __init__(self, brokers: int = 1, seed: int = 1, **settings: str) -> None:
        self.image = Image()
        self.records: list[Any] = []
        self.config = Config.of(broker={name.replace("_", "."): value for name, value in settings.items()})
        self.random = Random(seed)
        self._ids = count(1)
        self.apply(activate(self.image, bootstrap_records(), 1))
        for broker_id in range(1, brokers + 1):
            self.join(broker_id)

    @property
    def around(self) -> Surroundings:
        return Surroundings(self.config, self.random, lambda: numbered(7, next(self._ids)))

    def apply(self, decision: Decision[Any]) -> Any:
        for record in decision.records:
            self.image.replay(record)
        self.records += decision.records
        return decision.reply

    def join(self, broker_id: int, *, rack: str | None = None, ready: bool = True, directories: int = 1) -> None:
        offset = len(self.records)
        registration = Registration(
            broker_id,
            numbered(8, offset),
            (BrokerEndpoint(LISTENER, f"host{broker_id}", 9092, 0),),
            SUPPORTED,
            rack,
            tuple(numbered(9, 10 * broker_id + number) for number in range(directories)),
        )
        self.apply(register(self.image, registration, offset))
        if ready:
            self.beat(broker_id)

    def beat(self, broker_id: int, *, stops: bool = False, offline: tuple[bytes, ...] = ()) -> None:
        self.apply(heartbeat(self.image, self.heartbeat(broker_id, stops=stops, offline=offline)))

    def heartbeat(self, broker_id: int, *, stops: bool = False, offline: tuple[bytes, ...] = ()) -> Heartbeat:
        """As a broker sends it that has read everything."""
        epoch = self.image.brokers[broker_id].epoch
        return Heartbeat(broker_id, epoch, len(self.records), wants_stop=stops, offline_directories=offline)

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsResponse:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        reply: CreateTopicsResponse = self.apply(create_topics(self.image, request, self.around))
        return reply


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = -1,
    *,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> CreatableTopic:
    if assignments is not None and partitions == 1:
        partitions = -1
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def state(image: Image) -> list[str]:
    """All of an image, comparable, and readable where two differ. `repr` alone would hide the secret values."""
    return [str(_plain(record)) for record in records_of(image)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if hasattr(type(value), "__structure__"):
        fields = structure_of(type(value)).fields
        return (type(value).__name__, [(field.name, _plain(getattr(value, field.name))) for field in fields])
    return value


# Requests decided whole: the controller decides long ones in slices.


def create_topics(image: Image, request: CreateTopicsRequest, around: Surroundings) -> Decision[CreateTopicsResponse]:
    named = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if named[topic.name] == 1]
    check_size(sum(partitions_wanted(topic, around.config) for topic in once))
    records, results = create_each(image, once, around, {}, {})
    results += [named_twice(name) for name, count in named.items() if count > 1]
    reply = CreateTopicsResponse(throttle_time_ms=0, topics=results)
    return Decision(reply, [] if request.validate_only else records)


def create_partitions(
    image: Image, request: CreatePartitionsRequest, chance: Random
) -> Decision[CreatePartitionsResponse]:
    named = Counter(topic.name for topic in request.topics)
    distinct = {topic.name: topic for topic in request.topics}.values()
    records, results = grow_each(image, distinct, chance, named)
    reply = CreatePartitionsResponse(throttle_time_ms=0, results=results)
    return Decision(reply, [] if request.validate_only else records)


def delete_topics(image: Image, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
    """Topics by name or by id. What is named twice, also once each way, is not deleted."""
    asked: list[Named] = [(name, NO_UUID) for name in request.topic_names] + [
        (topic.name, topic.topic_id) for topic in request.topics
    ]
    repeated, hits = Counter(asked), Counter(hit for one in asked if (hit := found_id(image, one)) is not None)
    records, results = delete_each(image, repeated, repeated, hits)
    return Decision(DeleteTopicsResponse(throttle_time_ms=0, responses=results), records)
