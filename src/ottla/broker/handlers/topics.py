"""CreateTopics, DeleteTopics, CreatePartitions.

The answer comes when the change is committed and this broker has acted on it: the topic can be used at once.
"""

from ottla.broker.dispatch import Call
from ottla.broker.node import Node
from ottla.config import DELETE_TOPIC_ENABLE
from ottla.core.metadata import topics
from ottla.core.metadata.topics import Surroundings
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

_RESERVED_BELOW = 100  # Of ids as numbers: Kafka keeps the first hundred for itself.
_DELETION_DISABLED_SINCE = 3


async def create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    around = surroundings(call.node)
    try:
        return await call.node.metadata.propose(lambda image: topics.create_topics(image, request, around))
    except Refused as refusal:
        return topics.all_failed(dict.fromkeys(topic.name for topic in request.topics), refusal)


async def delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    try:
        if not call.node.config[DELETE_TOPIC_ENABLE]:
            disabled = call.version >= _DELETION_DISABLED_SINCE
            raise Refused(Error.TOPIC_DELETION_DISABLED if disabled else Error.INVALID_REQUEST)
        return await call.node.metadata.propose(lambda image: topics.delete_topics(image, request))
    except Refused as refusal:
        asked = [(name, NO_UUID) for name in request.topic_names]
        asked += [(topic.name or "", topic.topic_id) for topic in request.topics]
        responses = [
            DeletableTopicResult(
                name=name or None, topic_id=topic_id, error_code=refusal.error, error_message=refusal.text
            )
            for name, topic_id in asked
        ]
        return DeleteTopicsResponse(throttle_time_ms=0, responses=responses)


async def create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    random = call.node.random
    try:
        return await call.node.metadata.propose(lambda image: topics.create_partitions(image, request, random))
    except Refused as refusal:
        results = [
            CreatePartitionsTopicResult(name=topic.name, error_code=refusal.error, error_message=refusal.text)
            for topic in request.topics
        ]
        return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def surroundings(node: Node) -> Surroundings:
    return Surroundings(node.config, node.random, lambda: _new_topic_id(node))


def _new_topic_id(node: Node) -> bytes:
    """By chance; none that Kafka reserves, none whose text begins with a hyphen, which tools take for an option."""
    while True:
        topic_id = node.new_id()
        if int.from_bytes(topic_id, "big") >= _RESERVED_BELOW and not uuid_to_text(topic_id).startswith("-"):
            return topic_id
