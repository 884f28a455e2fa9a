"""Metadata, DescribeCluster, DescribeTopicPartitions: brokers, topics and leaders."""

from bisect import bisect_left
from typing import Final

from ottla.broker.network.dispatch import Call
from ottla.config import AUTO_CREATE_TOPICS_ENABLE
from ottla.config.network import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla.core.metadata.names import is_internal, name_fault
from ottla.core.metadata.views import (
    PartitionsPage,
    brokers_seen,
    error_of_missing,
    topic_missing,
    topic_seen,
)
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

# The allowed operations as a bit field of Kafka's codes. Without an authoriser all operations are allowed.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
_NOT_ASKED: Final = -(2**31)

_IDS_SINCE: Final = 12
_BROKERS, _CONTROLLERS = 1, 2


async def metadata(request: MetadataRequest, call: Call) -> MetadataResponse:
    """Describe topics by name or id, or all topics. A missing one is created if client and broker allow it."""
    asked, image = request.topics, call.node.metadata.image
    if asked is None or (call.version == 0 and not asked):
        return await _metadata(request, call, await call.budget.sorted(image.topics), [])
    try:
        names, ids = await _names_and_ids(asked, call)
    except Refused as refusal:
        return await _metadata_refused(asked, refusal, call)
    if ids:
        names, unknown = {}, []
        async for part in call.budget.parts(list(ids)):
            found = [(topic_id, image.topic_by_id(topic_id)) for topic_id in part]
            names |= {topic.name: None for _, topic in found if topic is not None}
            unknown += [
                topic_missing(None, Error.UNKNOWN_TOPIC_ID, topic_id) for topic_id, topic in found if topic is None
            ]
        return await _metadata(request, call, list(names), unknown)
    errors: dict[str, Error] = {}
    if request.allow_auto_topic_creation and call.node.config[AUTO_CREATE_TOPICS_ENABLE]:
        errors = await _create_missing(list(names), call)
    return await _metadata(request, call, list(names), [], errors)


async def _names_and_ids(asked: list[MetadataRequestTopic], call: Call) -> tuple[dict[str, None], dict[bytes, None]]:
    """The names and ids in the order of the request, each once."""
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    is_unnamed = False
    async for part in call.budget.parts(asked):
        names |= {topic.name: None for topic in part if topic.name is not None}
        ids |= {topic.topic_id: None for topic in part if topic.topic_id != NO_UUID}
        is_unnamed = is_unnamed or any(topic.name is None for topic in part)
    if ids and call.version < _IDS_SINCE:
        raise Refused(Error.INVALID_REQUEST, f"a topic by its id in Metadata version {call.version}")
    if is_unnamed and not ids:
        raise Refused(Error.INVALID_REQUEST, "a topic without a name or an id")
    return names, ids


async def _metadata_refused(asked: list[MetadataRequestTopic], refusal: Refused, call: Call) -> MetadataResponse:
    """The response with an error for each topic, by name or id as in the request."""
    return MetadataResponse(
        brokers=[],
        cluster_id=None,
        controller_id=-1,
        topics=await call.budget.each(
            asked,
            lambda topic: MetadataResponseTopic(
                error_code=refusal.error,
                name=topic.name or "",
                topic_id=topic.topic_id,
                is_internal=False,
                partitions=[],
            ),
        ),
        error_code=refusal.error,
    )


async def _create_missing(names: list[str], call: Call) -> dict[str, Error]:
    """Create the missing topics; returns the errors of those that could not be created."""
    image = call.node.metadata.image
    missing: list[str] = []
    async for part in call.budget.parts(names):
        missing += [
            name for name in part if name not in image.topics and not name_fault(name) and not is_internal(name)
        ]
    if not missing:
        return {}
    wanted = CreateTopicsRequest(
        topics=await call.budget.each(
            missing,
            lambda name: CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
            ),
        )
    )
    made: CreateTopicsResponse = await call.node.controller.send(wanted, budget=call.budget)
    return {topic.name: Error(topic.error_code) for topic in made.topics if topic.error_code}


async def _metadata(
    request: MetadataRequest,
    call: Call,
    names: list[str],
    unknown: list[MetadataResponseTopic],
    errors: dict[str, Error] | None = None,
) -> MetadataResponse:
    image, listener, version = call.node.metadata.image, call.listener, call.version
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_ASKED
    told: list[MetadataResponseTopic] = []
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            told.append(topic_seen(image, topic, listener, version))
        else:
            told.append(topic_missing(name, (errors or {}).get(name, error_of_missing(name))))
        if call.budget.is_spent(1 + len(told[-1].partitions)):
            await call.budget.give_way()
    for one in told:
        one.topic_authorized_operations = operations
    whole = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers_seen(image, listener),
        cluster_id=call.node.cluster_id,
        controller_id=call.node.node_id,
        topics=unknown + told,
        cluster_authorized_operations=CLUSTER_OPERATIONS if whole else _NOT_ASKED,
    )


def describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    image, listener = call.node.metadata.image, call.listener
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


async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    """Describe topics page by page, in the order of their names; an empty list requests all topics."""
    image, cursor = call.node.metadata.image, request.cursor
    everything = not request.topics
    named: dict[str, None] = {}
    async for part in call.budget.parts(request.topics):
        named |= dict.fromkeys(topic.name for topic in part)
    asked = await call.budget.sorted(named or image.topics)
    first_partition: dict[str, int] = {}
    if cursor is not None:
        first = bisect_left(asked, cursor.topic_name)
        if cursor.partition_index < 0 or (not everything and asked[first : first + 1] != [cursor.topic_name]):
            return await _no_such_place(request, call)
        asked = asked[first:]
        first_partition[cursor.topic_name] = cursor.partition_index
    limit = min(call.node.config[MAX_REQUEST_PARTITION_SIZE_LIMIT], request.response_partition_limit)
    page = PartitionsPage(
        image,
        call.listener,
        first_partition=first_partition,
        limit=max(limit, 1),
        skip_missing=everything,
        operations=TOPIC_OPERATIONS,
    )
    for name in asked:
        if page.is_full_before(name):
            break
        if call.budget.is_spent():
            await call.budget.give_way()
    return page.response()


async def _no_such_place(request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    """The response to a cursor that is not a valid position. Only named topics can carry the error."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=await call.budget.each(
            request.topics,
            lambda topic: DescribeTopicPartitionsResponseTopic(
                error_code=Error.INVALID_REQUEST, name=topic.name, topic_id=NO_UUID, partitions=[]
            ),
        ),
        next_cursor=None,
    )
