"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections import Counter
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
from ottla.core.metadata.configs import Change, Operation, Outcome, ResourceChange
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

_ALL_TYPES: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


# Reading.


def describe_configs(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    strange = [one.resource_type for one in request.resources if one.resource_type not in _ALL_TYPES]
    results = []
    for resource in request.resources:
        entries: list[Entry] = []
        refusal: Refused | None = None
        try:
            if strange:  # Fails all, as in Kafka.
                raise Refused(Error.INVALID_REQUEST, f"resources of type {strange[0]} have no settings")
            entries = _entries(resource, call)
        except Refused as refused:
            refusal = refused
        results.append(
            DescribeConfigsResult(
                error_code=refusal.error if refusal else Error.NONE,
                error_message=refusal.text if refusal else "",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_told(entry, request) for entry in entries],
            )
        )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


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


def list_config_resources(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    """The resources that have or may have settings; version 0 knows client metrics alone."""
    known = _ALL_TYPES if call.version > 0 else (CLIENT_METRICS,)
    asked = request.resource_types or known
    if any(kind not in known for kind in asked):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=Error.UNSUPPORTED_VERSION, config_resources=[]
        )
    image = call.node.metadata.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    named = {TOPIC: image.topic_names(), BROKER: brokers, BROKER_LOGGER: brokers}
    resources = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
        if kind in asked
        for name in named.get(kind, sorted(name for type_, name in image.configs if type_ == kind))
    ]
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=Error.NONE, config_resources=resources)


# Writing.


async def alter_configs(request: replacing.AlterConfigsRequest, call: Call) -> replacing.AlterConfigsResponse:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, Operation.SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    outcomes = await _alter(changes, call, validate_only=request.validate_only)
    responses = [
        replacing.AlterConfigsResourceResponse(
            error_code=refusal.error if refusal else Error.NONE,
            error_message=refusal.text if refusal else None,
            resource_type=kind,
            resource_name=name,
        )
        for kind, name, refusal in outcomes
    ]
    return replacing.AlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, call: Call
) -> incremental.IncrementalAlterConfigsResponse:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Change(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = await _alter_with_loggers(changes, call, validate_only=request.validate_only)
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=refusal.error if refusal else Error.NONE,
            error_message=refusal.text if refusal else None,
            resource_type=kind,
            resource_name=name,
        )
        for kind, name, refusal in outcomes
    ]
    return incremental.IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _alter_with_loggers(changes: list[ResourceChange], call: Call, *, validate_only: bool) -> list[Outcome]:
    """Loggers are this broker's own; all else is the controller's."""
    named = Counter((one.resource_type, one.resource_name) for one in changes)
    ours = [
        one for one in changes if one.resource_type == BROKER_LOGGER and named[BROKER_LOGGER, one.resource_name] == 1
    ]
    outcomes = [
        Outcome(one.resource_type, one.resource_name, alter_loggers(one, call, validate_only=validate_only))
        for one in ours
    ]
    others = [one for one in changes if one not in ours]
    return outcomes + (await _alter(others, call, validate_only=validate_only) if others else [])


async def _alter(changes: list[ResourceChange], call: Call, *, validate_only: bool) -> list[Outcome]:
    node = call.node
    try:
        return await node.metadata.propose(
            lambda image: configs.alter(
                image, changes, config=node.config, node_id=node.node_id, validate_only=validate_only
            )
        )
    except Refused as refusal:
        return [Outcome(one.resource_type, one.resource_name, refusal) for one in changes]
