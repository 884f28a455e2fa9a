"""Read and change settings of topics and brokers."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.client import Client
from ottla.rpc.addresses import Address
from ottla.rpc.errors import ClientError, Declined, error_of
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.errors import Error


class ResourceType(IntEnum):
    """What a setting belongs to; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A topic by name, a broker by id, or with the name "" the default of all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "the brokers' default"
        return f"{self.kind.name.lower()} {self.name}"


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are Kafka's."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2  # Changed at run time, for one broker.
    BROKERS = 3  # Changed at run time, for all brokers.
    FILE = 4  # The broker's properties file.
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as described by the broker."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None = None


async def describe_configs(
    client: Client,
    resources: Sequence[Resource],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> dict[Resource, list[ConfigEntry] | ClientError]:
    """The settings of each resource, sorted by name, or the error."""
    asked = None if names is None else list(names)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=one.kind, resource_name=one.name, configuration_keys=asked)
            for one in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    outcomes: dict[Resource, list[ConfigEntry] | ClientError] = {}
    connection, answer = await client.persist(lambda: _call(client, request, resources))
    assert isinstance(answer, DescribeConfigsResponse)
    for result in answer.results:
        resource = Resource(ResourceType(result.resource_type), result.resource_name)
        error = error_of(result.error_code)
        if error is Error.NONE:
            outcomes[resource] = sorted(map(_entry, result.configs))
        else:
            outcomes[resource] = _declined(error, connection, resource, result.error_message)
    return outcomes


async def alter_configs(
    client: Client, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[Resource, ClientError | None]:
    """Change some settings of each resource and leave the others; None per resource on success."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=one.name, config_operation=one.operation, value=one.value) for one in wanted
                ],
            )
            for resource, wanted in changes.items()
        ],
        validate_only=validate_only,
    )
    # Repeating it is harmless: Kafka treats appended and subtracted values as sets.
    connection, answer = await client.persist(lambda: _call(client, request, list(changes)))
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    outcomes: dict[Resource, ClientError | None] = {}
    for result in answer.responses:
        resource = Resource(ResourceType(result.resource_type), result.resource_name)
        error = error_of(result.error_code)
        failed = error is not Error.NONE
        outcomes[resource] = _declined(error, connection, resource, result.error_message) if failed else None
    return outcomes


async def _call(
    client: Client, request: object, resources: Sequence[Resource]
) -> "tuple[Address, DescribeConfigsResponse | IncrementalAlterConfigsResponse]":
    """Only the broker itself knows its settings; any broker answers for the rest."""
    own = {one.name for one in resources if one.kind is ResourceType.BROKER and one.name}
    if len(own) == 1 and next(iter(own)).isdecimal():
        node = int(next(iter(own)))
        if node not in client.cluster.brokers:
            await client.metadata.all_topics()
        connection, answer = await client.call_node(node, request)
    else:
        connection, answer = await client.call_any(request)
    return connection.address, answer


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        result.name,
        result.value,
        _source(result.config_source),
        result.read_only,
        result.is_sensitive,
        tuple(ConfigSynonym(one.name, one.value, _source(one.source)) for one in result.synonyms),
        result.documentation or "",
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


def _declined(error: Error, broker: Address, resource: Resource, text: str | None) -> Declined:
    return Declined(error, broker=broker, subject=str(resource), text=text)
