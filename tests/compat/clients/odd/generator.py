"""Requests drawn from the declarations of wire/.

Rule 1: a seed gives the same requests, whatever the servers answer.
Rule 2: each request has its own share of odd fields, from hardly any to many: with few of them it passes the checks
        before the one that matters.
Rule 3: what would end the comparison is not drawn: the broker's own settings and the cluster's features are only
        validated, internal topics are not deleted or changed, nothing waits for longer than a moment, and nothing is
        asked that Kafka never answers.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final, NamedTuple

from odd.peer import Peer
from odd.pools import BY_TYPE, INTERNAL, Pools
from odd.values import Batch, Given
from odd.world import World
from ottla.broker.network.dispatch import ROUTES
from ottla.wire.api import ApiKey, request_class
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnTransaction
from ottla.wire.schema import Struct, message_of, structure_of
from ottla.wire.shapes import Field, Structure

ODDNESS: Final = (0.02, 0.1, 0.1, 0.25, 0.5)
BROKER, BROKER_LOGGER = 4, 8
_CHANGES_METADATA: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)
_TRANSACTIONS_SINCE: Final = 4
_RESOURCES: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
_WEIGHTS: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 6,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 3,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 2,
    ApiKey.METADATA: 2,
}


class Case(NamedTuple):
    """A request as it goes to both servers; what they gave stands in it by name."""

    api: ApiKey
    version: int
    request: Any
    keep: Callable[[Peer, Any], None] | None = None
    """Notes what a server gave in its answer."""

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} {_shown(self.request)}"

    @property
    def starts_timers(self) -> bool:
        """What is answered after it depends on how much time has passed: a member that joined has to go on soon."""
        return self.api is ApiKey.JOIN_GROUP

    @property
    def changes_metadata(self) -> bool:
        return self.api in _CHANGES_METADATA


class Generator:
    def __init__(self, seed: int, world: World) -> None:
        self._random = Random(seed)
        self._pools = Pools(world)
        self._oddness = 0.0

    def go_on_in(self, world: World) -> None:
        self._pools = Pools(world)

    def draw(self, api: ApiKey | None = None) -> Case:
        random = self._random
        if api is None:
            api = random.choices(list(ROUTES), [_WEIGHTS.get(one, 1) for one in ROUTES])[0]
        cls = request_class(api)
        facts = message_of(cls)
        version = random.choice(facts.versions[:-1] if facts.unstable else facts.versions)
        self._oddness = random.choice(ODDNESS)
        request = self._structure(structure_of(cls), version)
        return Case(api, version, _kept_harmless(request, api, version))

    def _structure(self, structure: Structure, version: int) -> Any:
        drawn: Any = structure.blank()
        for field in structure.fields:
            if field.in_version(version):
                setattr(drawn, field.name, self._field(field, structure.cls.__name__, version))
        return drawn

    def _field(self, field: Field, structure: str, version: int) -> Any:
        is_odd = self._random.random() < self._oddness
        nullable = field.nullable_in(version)
        if field.array:
            return self._array(field, structure, version, nullable, is_odd)
        if field.structure is not None:
            if field.optional and not is_odd:
                return None
            return self._structure(field.structure, version)
        return self._value(field, structure, nullable, is_odd)

    def _array(self, field: Field, structure: str, version: int, nullable: bool, is_odd: bool) -> list[Any] | None:
        def element() -> Any:
            if field.structure is not None:
                return self._structure(field.structure, version)
            return self._value(field, structure, False, self._random.random() < self._oddness)

        if not is_odd:
            return [element()]
        shapes: list[str] = ["empty", "twice", "two", "three", "one"] + (["null"] if nullable else [])
        match self._random.choice(shapes):
            case "null":
                return None
            case "empty":
                return []
            case "twice":
                one = element()
                return [one, one]
            case "two":
                return [element(), element()]
            case "three":
                return [element(), element(), element()]
            case _:
                return [element()]

    def _value(self, field: Field, structure: str, nullable: bool, is_odd: bool) -> Any:
        assert field.primitive is not None
        pool = self._pools.find(structure, field.name)
        if pool is None:
            choices: Sequence[Any] = BY_TYPE[field.primitive.name]
        else:
            choices = pool.odd if is_odd else pool.sound
        if not nullable:
            choices = [one for one in choices if one is not None]
        return self._random.choice(choices)


def _shown(value: Any) -> str:
    """Without the fields that hold their defaults."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Struct):
        given = [
            f"{one.name}={_shown(getattr(value, one.name))}"
            for one in value.__structure__.fields
            if one.required or getattr(value, one.name) != one.default()
        ]
        return f"({', '.join(given)})"
    return str(value) if isinstance(value, Given | Batch) else repr(value)


def _kept_harmless(request: Any, api: ApiKey, version: int) -> Any:
    if api is ApiKey.ALTER_CONFIGS:
        # One that is named twice makes Kafka's controller fail over, and nobody is answered.
        request.resources = list({(one.resource_type, one.resource_name): one for one in request.resources}.values())
    if api is ApiKey.ADD_PARTITIONS_TO_TXN and version >= _TRANSACTIONS_SINCE and not request.transactions:
        # Kafka never answers; so it is where a marker has no partition.
        request.transactions = [structure_of(AddPartitionsToTxnTransaction).blank()]
    if api is ApiKey.WRITE_TXN_MARKERS:
        for marker in request.markers:
            marker.topics = [topic for topic in marker.topics if topic.partition_indexes]
        request.markers = [marker for marker in request.markers if marker.topics]
    if api in _RESOURCES:
        for resource in request.resources:
            if resource.resource_type == BROKER or resource.resource_name in INTERNAL:
                request.validate_only = True
    if api is ApiKey.UPDATE_FEATURES:
        request.validate_only = version >= 1
        if version == 0:
            request.feature_updates = [one for one in request.feature_updates if one.feature in ("", "unknown")]
    if api is ApiKey.CREATE_TOPICS:
        for topic in request.topics:
            if topic.name in (*INTERNAL, "__share_group_state"):
                request.validate_only = True
    return request


def warm_ups(case: Case) -> list[Case]:
    """Sound requests whose bytes are those of a Produce before its records. Sent first, they open Ottla's short way
    (`broker/fastpath/produce_lane`) for it; sent to both servers, they change both alike."""
    if case.api is not ApiKey.PRODUCE or case.request.transactional_id is not None:
        return []
    topics = case.request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1 or case.request.acks not in (1, -1):
        return []
    sound = deepcopy(case.request)
    sound.topic_data[0].partition_data[0].records = Batch()
    return [Case(case.api, case.version, sound)] * 2
