"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ottla.broker.controller.config_requests import changed, replaced
from ottla.broker.handlers.loggers import alter_loggers, check_broker, logger_entries
from ottla.broker.network.dispatch import Call
from ottla.core.metadata.config_entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    topic_entries,
)
from ottla.core.metadata.configs import ResourceChange, check_changes
from ottla.core.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
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
"""At most this many settings are described in one response. A shared description counts once."""
_ENTRY_COST: Final = 4
_ALL_TYPES: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

A = TypeVar("A")


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
            if strange is not None:  # One unknown type fails all, as in Kafka.
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
    """The descriptions of one response. Resources with the same settings share one description, because a request may
    name a broker five thousand times, or ten thousand topics."""

    def __init__(self, request: DescribeConfigsRequest, call: Call) -> None:
        self._request = request
        self._call = call
        self._known: dict[Hashable, Shared[DescribeConfigsResourceResult]] = {}
        self.entries = 0
        """The number of settings in all descriptions."""

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
        """A key that is equal for resources with equal descriptions; None if there is nothing to describe."""
        kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
        image = self._call.node.metadata.image
        if kind == TOPIC and name not in image.topics:
            return None
        is_named = kind not in (TOPIC, GROUP, CLIENT_METRICS) or not name
        said: Hashable = name if is_named else tuple(image.config(kind, name).items())
        return kind, said, tuple(keys) if keys else None


def _entries(resource: DescribeConfigsResource, call: Call) -> list[ConfigEntry]:
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


def _told(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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
    """The resources that have or may have settings; version 0 lists client metrics only."""
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
#
# The controller decides, except for two cases that the receiving broker handles: its own loggers, and settings of other
# brokers, which it refuses.


async def alter_configs(request: replacing.AlterConfigsRequest, call: Call) -> replacing.AlterConfigsResponse:
    answer = replacing.AlterConfigsResourceResponse
    responses = await _altered(request, lambda resource: _refuse_other_broker(replaced(resource), call), answer, call)
    return replacing.AlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, call: Call
) -> incremental.IncrementalAlterConfigsResponse:
    def alter_here(resource: incremental.AlterConfigsResource) -> Refused | None:
        if resource.resource_type == BROKER_LOGGER:
            return alter_loggers(changed(resource), call, validate_only=request.validate_only)
        return _refuse_other_broker(changed(resource), call)

    answer = incremental.AlterConfigsResourceResponse
    responses = await _altered(request, alter_here, answer, call, has_loggers=True)
    return incremental.IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _altered(
    request: Any, alter_here: Callable[[Any], Refused | None], answer: Callable[..., A], call: Call, **types: bool
) -> list[A]:
    """The outcome of each resource, in the order of the request. Both APIs have messages of the same shape."""
    here = await _altered_here(request.resources, alter_here, answer, call, **types)
    if not here:
        return await _forward(request, call)
    others = [one for number, one in enumerate(request.resources) if number not in here]
    forwarded = type(request)(resources=others, validate_only=request.validate_only)
    decided = iter(await _forward(forwarded, call) if others else ())
    numbers = range(len(request.resources))
    return await call.budget.each(numbers, lambda number: here[number] if number in here else next(decided))


async def _forward(request: Any, call: Call) -> list[Any]:
    response = await call.node.controller.send(request, version=call.version, budget=call.budget)
    responses: list[Any] = response.responses
    return responses


async def _altered_here(
    resources: list[Any],
    alter_here: Callable[[Any], Refused | None],
    answer: Callable[..., A],
    call: Call,
    *,
    has_loggers: bool = False,
) -> dict[int, A]:
    """The outcomes of the resources that this broker handles itself, by their position in the request. A resource that
    is named twice is left to the controller, which refuses it."""
    named = Counter[tuple[int, str]]()
    async for part in call.budget.parts(resources):
        named.update((one.resource_type, one.resource_name) for one in part)
    own = ("", str(call.node.node_id))
    here: dict[int, A] = {}
    for number, resource in enumerate(resources):
        kind, name = resource.resource_type, resource.resource_name
        cost = 1
        is_here = (kind == BROKER and name not in own) or (has_loggers and kind == BROKER_LOGGER)
        if is_here and named[kind, name] == 1:
            refusal = alter_here(resource)
            here[number] = answer(
                error_code=refusal.error if refusal else Error.NONE,
                error_message=refusal.text if refusal else None,
                resource_type=kind,
                resource_name=name,
            )
            cost += len(resource.configs)
        if call.budget.is_spent(cost):
            await call.budget.give_way()
    return here


def _refuse_other_broker(change: ResourceChange, call: Call) -> Refused:
    try:
        check_changes(change)
    except Refused as refusal:
        return refusal
    own = call.node.node_id
    return Refused(
        Error.INVALID_REQUEST, f"this is broker {own}; settings of broker {change.resource_name!r} are set there"
    )
