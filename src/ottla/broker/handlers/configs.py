"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import partial
from typing import Final

from ottla.broker.dispatch import Call
from ottla.broker.handlers.loggers import alter_loggers, check_broker, logger_entries
from ottla.core.metadata import configs
from ottla.core.metadata.config_entries import (
    Entry,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    topic_entries,
)
from ottla.core.metadata.configs import CHANGES_MAX, Change, Operation, Outcome, ResourceChange
from ottla.core.metadata.decision import Decision
from ottla.core.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.core.metadata.names import check_name
from ottla.wire.api import alter_configs as replacing
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import Shared

_ENTRIES_MAX: Final = 50_000
"""That may be described in one answer, beside those that are shared."""
_ENTRY_COST: Final = 4
_CHANGES_PER_DECISION: Final = 64
_CHANGE_COST: Final = 8
"""Of a setting that is checked, written and replayed, counted in elements that are only looked at."""
_ALL_TYPES: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


# Reading.


async def describe_configs(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    strange = next((one.resource_type for one in request.resources if one.resource_type not in _ALL_TYPES), None)
    described = _Described(request, call)
    results = []
    for resource in request.resources:
        configs: Sequence[DescribeConfigsResourceResult] = ()
        refusal: Refused | None = None
        told = described.entries
        try:
            if strange is not None:  # Fails all, as in Kafka.
                raise Refused(Error.INVALID_REQUEST, f"resources of type {strange} have no settings")
            configs = described.of(resource)
        except Refused as refused:
            refusal = refused
        results.append(
            DescribeConfigsResult(
                error_code=refusal.error if refusal else Error.NONE,
                error_message=refusal.text if refusal else "",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
        cost = 1 + len(resource.configuration_keys or ()) + _ENTRY_COST * (described.entries - told)
        if call.budget.is_spent(cost):
            await call.budget.give_way()
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


class _Described:
    """What a request was told. A request may name a broker five thousand times, or ten thousand topics: those that have
    the same settings share one description."""

    def __init__(self, request: DescribeConfigsRequest, call: Call) -> None:
        self._request = request
        self._call = call
        self._known: dict[Hashable, Shared[DescribeConfigsResourceResult]] = {}
        self.entries = 0
        """In all descriptions."""

    def of(self, resource: DescribeConfigsResource) -> Sequence[DescribeConfigsResourceResult]:
        key = self._key(resource)
        known = None if key is None else self._known.get(key)
        if known is None:
            if self.entries >= _ENTRIES_MAX:
                raise Refused(
                    Error.INVALID_REQUEST, f"more than {_ENTRIES_MAX} settings are described: ask for fewer at a time"
                )
            entries = _entries(resource, self._call)
            self.entries += len(entries)
            known = Shared([_told(entry, self._request) for entry in entries])
            if key is not None:
                self._known[key] = known
        return known

    def _key(self, resource: DescribeConfigsResource) -> Hashable | None:
        """Equal for resources with equal descriptions; None where there is nothing to describe."""
        kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
        image = self._call.node.metadata.image
        if kind == TOPIC and name not in image.topics:
            return None
        is_named = kind not in (TOPIC, GROUP, CLIENT_METRICS) or not name
        said: Hashable = name if is_named else tuple(image.config(kind, name).items())
        return kind, said, tuple(keys) if keys else None


def _entries(resource: DescribeConfigsResource, call: Call) -> list[Entry]:
    kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys or None
    config, image = call.node.config, call.node.metadata.image
    if kind == TOPIC:
        check_name(name)
        if name not in image.topics:
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic_entries(config.for_topic(image.config(TOPIC, name)), keys)
    if kind == BROKER and not name:
        return cluster_entries(image.config(BROKER, ""), keys)
    if kind in (BROKER, BROKER_LOGGER):
        check_broker(name, call)
        return broker_entries(config, keys) if kind == BROKER else logger_entries(keys)
    if not name:
        raise Refused(Error.INVALID_REQUEST, "settings of a group or of client metrics need its name")
    overrides = image.config(kind, name)
    if kind == GROUP:
        return group_entries(config.for_group(overrides), keys)
    return client_metrics_entries(config.for_client_metrics(overrides), keys)


def _told(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.text, source=one.source) for one in synonyms],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


async def list_config_resources(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    """The resources that have or may have settings; version 0 knows client metrics alone."""
    known = _ALL_TYPES if call.version > 0 else (CLIENT_METRICS,)
    asked = set(request.resource_types or known)
    if any(kind not in known for kind in asked):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=Error.UNSUPPORTED_VERSION, config_resources=[]
        )
    image = call.node.metadata.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    named: dict[int, Collection[str]] = {TOPIC: image.topics, BROKER: brokers, BROKER_LOGGER: brokers}
    resources: list[ConfigResource] = []
    for kind in (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC):
        if kind not in asked:
            continue
        names = named[kind] if kind in named else [name for type_, name in image.configs if type_ == kind]
        make = partial(_config_resource, kind)
        resources += await call.budget.each(await call.budget.sorted(names), make)
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=Error.NONE, config_resources=resources)


def _config_resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)


# Writing.


async def alter_configs(request: replacing.AlterConfigsRequest, call: Call) -> replacing.AlterConfigsResponse:
    def change(resource: replacing.AlterConfigsResource) -> ResourceChange:
        changes = [Change(config.name, Operation.SET, config.value) for config in resource.configs[: CHANGES_MAX + 1]]
        return ResourceChange(resource.resource_type, resource.resource_name, changes, replaces=True)

    changes = await call.budget.each(request.resources, change, cost=lambda resource: 1 + len(resource.configs))
    outcomes = await _alter(changes, call, validate_only=request.validate_only)
    responses = await call.budget.each(
        outcomes,
        lambda outcome: replacing.AlterConfigsResourceResponse(
            error_code=outcome.refusal.error if outcome.refusal else Error.NONE,
            error_message=outcome.refusal.text if outcome.refusal else None,
            resource_type=outcome.resource_type,
            resource_name=outcome.resource_name,
        ),
    )
    return replacing.AlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, call: Call
) -> incremental.IncrementalAlterConfigsResponse:
    def change(resource: incremental.AlterConfigsResource) -> ResourceChange:
        changes = [
            Change(config.name, config.config_operation, config.value) for config in resource.configs[: CHANGES_MAX + 1]
        ]
        return ResourceChange(resource.resource_type, resource.resource_name, changes)

    changes = await call.budget.each(request.resources, change, cost=lambda resource: 1 + len(resource.configs))
    outcomes = await _alter_with_loggers(changes, call, validate_only=request.validate_only)
    responses = await call.budget.each(
        outcomes,
        lambda outcome: incremental.AlterConfigsResourceResponse(
            error_code=outcome.refusal.error if outcome.refusal else Error.NONE,
            error_message=outcome.refusal.text if outcome.refusal else None,
            resource_type=outcome.resource_type,
            resource_name=outcome.resource_name,
        ),
    )
    return incremental.IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _alter_with_loggers(changes: list[ResourceChange], call: Call, *, validate_only: bool) -> list[Outcome]:
    """Loggers are this broker's own; all else is the controller's."""
    budget = call.budget
    named = await _named(changes, call)
    ours: list[ResourceChange] = []
    others: list[ResourceChange] = []
    async for part in budget.parts(changes):
        for one in part:
            is_ours = one.resource_type == BROKER_LOGGER and named[BROKER_LOGGER, one.resource_name] == 1
            (ours if is_ours else others).append(one)
    outcomes = await budget.each(
        ours,
        lambda one: Outcome(
            one.resource_type, one.resource_name, alter_loggers(one, call, validate_only=validate_only)
        ),
        cost=lambda one: 1 + len(one.changes),
    )
    return outcomes + (await _alter(others, call, validate_only=validate_only) if others else [])


async def _named(changes: list[ResourceChange], call: Call) -> Counter[tuple[int, str]]:
    """How often each resource is named."""
    named = Counter[tuple[int, str]]()
    async for part in call.budget.parts(changes):
        named.update((one.resource_type, one.resource_name) for one in part)
    return named


async def _alter(changes: list[ResourceChange], call: Call, *, validate_only: bool) -> list[Outcome]:
    """Decided one resource after the other: each has its own outcome."""
    node, budget = call.node, call.budget
    named = await _named(changes, call)
    outcomes: list[Outcome] = []

    def alter(few: Sequence[ResourceChange], image: Image) -> Decision[list[Outcome]]:
        return configs.alter(
            image, few, named=named, config=node.config, node_id=node.node_id, validate_only=validate_only
        )

    try:
        for few in _few_at_a_time(changes):
            altered = node.metadata.decide(partial(alter, few))
            outcomes += altered
            if budget.is_spent(_CHANGE_COST * sum(1 + len(one.changes) for one in few)):
                await budget.give_way()
        await node.metadata.committed()
    except Refused as refused:
        refusal = refused  # The name of an exception is gone when its block ends.
        return await budget.each(changes, lambda one: Outcome(one.resource_type, one.resource_name, refusal))
    return outcomes


def _few_at_a_time(changes: list[ResourceChange]) -> Iterator[list[ResourceChange]]:
    """Resources that are decided together."""
    few: list[ResourceChange] = []
    weight = 0
    for one in changes:
        few.append(one)
        weight += 1 + len(one.changes)
        if weight >= _CHANGES_PER_DECISION:
            yield few
            few, weight = [], 0
    if few:
        yield few
