"""Images with brokers in them, and requests."""

from itertools import count
from random import Random
from typing import Any

from ottla.config import Config
from ottla.core.metadata.brokers import Registration, register, unfence
from ottla.core.metadata.decision import Decision
from ottla.core.metadata.features import activate, bootstrap_records
from ottla.core.metadata.image import Endpoint, Image
from ottla.core.metadata.snapshot import records_of
from ottla.core.metadata.topics import Surroundings, create_topics
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema import structure_of

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
            (Endpoint(LISTENER, f"host{broker_id}", 9092, 0),),
            rack,
            tuple(numbered(9, 10 * broker_id + number) for number in range(directories)),
        )
        self.apply(register(self.image, registration, offset))
        if ready:
            self.apply(unfence(self.image, broker_id))

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
