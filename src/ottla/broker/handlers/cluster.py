"""Metadata, DescribeCluster, DescribeTopicPartitions: who is there and who leads what."""

from collections.abc import Awaitable, Iterable
from typing import Final

from ottla.broker.dispatch import Call
from ottla.broker.handlers.topics import surroundings
from ottla.config import AUTO_CREATE_TOPICS_ENABLE
from ottla.config.network import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla.core.metadata import topics
from ottla.core.metadata.names import is_internal, name_fault
from ottla.core.metadata.views import (
    brokers_seen,
    describe_partitions,
    error_of_missing,
    topic_missing,
    topic_seen,
)
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

# Which operations there are, by the bits of Kafka's codes; without an authoriser all of them are allowed.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
_NOT_ASKED: Final = -(2**31)

_IDS_SINCE: Final = 12
_BROKERS, _CONTROLLERS = 1, 2


def metadata(request: MetadataRequest, call: Call) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Topics by name or id, or all; a missing one is made where both sides want it."""
    asked, image = request.topics, call.node.metadata.image
    if asked is None or (call.version == 0 and not asked):
        return _metadata(request, call, image.topic_names(), [])
    if (refusal := _refusal(asked, call.version)) is not None:
        return _metadata_refused(asked, refusal)
    names = list(dict.fromkeys(topic.name for topic in asked if topic.name is not None))
    ids = list(dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != NO_UUID))
    if ids:
        found = [(topic_id, image.topic_by_id(topic_id)) for topic_id in ids]
        names = [topic.name for _, topic in found if topic is not None]
        unknown = [topic_missing(None, Error.UNKNOWN_TOPIC_ID, topic_id) for topic_id, topic in found if topic is None]
        return _metadata(request, call, names, unknown)
    creates = request.allow_auto_topic_creation and call.node.config[AUTO_CREATE_TOPICS_ENABLE]
    missing = [name for name in names if name not in image.topics and not name_fault(name) and not is_internal(name)]
    if creates and missing:
        return _metadata_after_creation(request, call, names, missing)
    return _metadata(request, call, names, [])


def _refusal(asked: list[MetadataRequestTopic], version: int) -> Refused | None:
    """Why topics cannot be asked for so."""
    by_id = any(topic.topic_id != NO_UUID for topic in asked)
    if version < _IDS_SINCE and by_id:
        return Refused(Error.INVALID_REQUEST, f"a topic by its id in Metadata version {version}")
    if not by_id and any(topic.name is None for topic in asked):
        return Refused(Error.INVALID_REQUEST, "a topic without a name or an id")
    return None


def _metadata_refused(asked: list[MetadataRequestTopic], refusal: Refused) -> MetadataResponse:
    """As the client asked, so that it finds the error where it looks."""
    return MetadataResponse(
        brokers=[],
        cluster_id=None,
        controller_id=-1,
        topics=[
            MetadataResponseTopic(
                error_code=refusal.error,
                name=topic.name or "",
                topic_id=topic.topic_id,
                is_internal=False,
                partitions=[],
            )
            for topic in asked
        ],
        error_code=refusal.error,
    )


async def _metadata_after_creation(
    request: MetadataRequest, call: Call, names: list[str], missing: list[str]
) -> MetadataResponse:
    wanted = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
            for name in missing
        ]
    )
    around = surroundings(call.node)
    errors: dict[str, Error] = {}
    try:
        made = await call.node.metadata.propose(lambda image: topics.create_topics(image, wanted, around))
        errors = {topic.name: Error(topic.error_code) for topic in made.topics if topic.error_code}
    except Refused as refusal:
        errors = dict.fromkeys(missing, refusal.error)
    return _metadata(request, call, names, [], errors)


def _metadata(
    request: MetadataRequest,
    call: Call,
    names: Iterable[str],
    unknown: list[MetadataResponseTopic],
    errors: dict[str, Error] | None = None,
) -> MetadataResponse:
    image, listener = call.node.metadata.image, call.connection.listener
    told: list[MetadataResponseTopic] = []
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            told.append(topic_seen(image, topic, listener, call.version))
        else:
            told.append(topic_missing(name, (errors or {}).get(name, error_of_missing(name))))
    if request.include_topic_authorized_operations:
        for one in told:
            one.topic_authorized_operations = TOPIC_OPERATIONS
    whole = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers_seen(image, listener),
        cluster_id=call.node.cluster_id,
        controller_id=call.node.node_id,
        topics=unknown + told,
        cluster_authorized_operations=CLUSTER_OPERATIONS if whole else _NOT_ASKED,
    )


def describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    image, listener = call.node.metadata.image, call.connection.listener
    error = Error.NONE
    if request.endpoint_type == _CONTROLLERS:
        error = Error.MISMATCHED_ENDPOINT_TYPE
    elif request.endpoint_type != _BROKERS:
        error = Error.UNSUPPORTED_ENDPOINT_TYPE
    brokers = [
        DescribeClusterBroker(
            broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker_id, broker in sorted(image.brokers.items())
        if (endpoint := broker.endpoint(listener)) is not None and (request.include_fenced_brokers or not broker.fenced)
    ]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=error,
        error_message=error.text if error else None,
        endpoint_type=_BROKERS,
        cluster_id="" if error else call.node.cluster_id,
        controller_id=-1 if error else call.node.node_id,
        brokers=[] if error else brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations and not error else _NOT_ASKED
        ),
    )


def describe_topic_partitions(request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    """Page by page, in the order of names; an empty list asks for all topics."""
    image, cursor = call.node.metadata.image, request.cursor
    everything = not request.topics
    asked = image.topic_names() if everything else sorted({topic.name for topic in request.topics})
    first_partition: dict[str, int] = {}
    if cursor is not None:
        asked = [name for name in asked if name >= cursor.topic_name]
        if cursor.partition_index < 0 or (not everything and cursor.topic_name not in asked):
            # There is no such place to go on from. Only topics that were named can carry the error.
            return DescribeTopicPartitionsResponse(
                throttle_time_ms=0,
                topics=[
                    DescribeTopicPartitionsResponseTopic(
                        error_code=Error.INVALID_REQUEST, name=topic.name, topic_id=NO_UUID, partitions=[]
                    )
                    for topic in request.topics
                ],
                next_cursor=None,
            )
        first_partition[cursor.topic_name] = cursor.partition_index
    limit = min(call.node.config[MAX_REQUEST_PARTITION_SIZE_LIMIT], request.response_partition_limit)
    return describe_partitions(
        image,
        asked,
        call.connection.listener,
        first_partition=first_partition,
        limit=max(limit, 1),
        skip_missing=everything,
        operations=TOPIC_OPERATIONS,
    )
