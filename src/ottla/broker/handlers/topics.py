"""CreateTopics, DeleteTopics, CreatePartitions.

The answer comes when the change is committed and this broker has acted on it: the topic can be used at once.

A request for thousands of topics is decided in parts. Every topic of a request has an outcome of its own, so only a
client that never got its answer can tell.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from ottla.broker.backlog import Budget
from ottla.broker.dispatch import Call
from ottla.broker.node import Node
from ottla.config import DELETE_TOPIC_ENABLE, Config
from ottla.core.metadata import topics
from ottla.core.metadata.decision import Decision
from ottla.core.metadata.image import Image
from ottla.core.metadata.topics import Named, Surroundings
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

_RESERVED_BELOW = 100  # Of ids as numbers: Kafka keeps the first hundred for itself.
_DELETION_DISABLED_SINCE = 3
_PER_DECISION = 64
"""Partitions and settings, or topics to be deleted."""
_RECORD_COST = 8
"""Of a record that is decided, written and replayed, counted in elements that are only looked at."""


# Making.


async def create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    try:
        return await make_topics(request, call.node, call.budget)
    except Refused as refused:
        refusal = refused  # The name of an exception is gone when its block ends.
    named: dict[str, None] = {}
    async for part in call.budget.parts(request.topics):
        named |= dict.fromkeys(topic.name for topic in part)
    results = await call.budget.each(named, lambda name: topics.failed_topic(name, refusal))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


async def make_topics(request: CreateTopicsRequest, node: Node, budget: Budget) -> CreateTopicsResponse:
    around, named, partitions = surroundings(node), Counter[str](), 0
    async for part in budget.parts(request.topics):
        named.update(topic.name for topic in part)
    once: list[CreatableTopic] = []
    async for part in budget.parts(request.topics):
        new = [topic for topic in part if named[topic.name] == 1]
        partitions += sum(topics.partitions_wanted(topic, around.config) for topic in new)
        topics.check_size(partitions)
        once += new
    results: list[CreatableTopicResult] = []
    new_names: dict[str, str] = {}
    described: topics.Described = {}

    def create(few: list[CreatableTopic], image: Image) -> Decision[list[CreatableTopicResult]]:
        records, made = topics.create_each(image, few, around, new_names, described)
        return Decision([] if request.validate_only else records, made)

    for few, weight in _few_at_a_time(once, around.config):
        made = node.metadata.decide(partial(create, few))
        results += made
        if budget.is_spent(weight * _RECORD_COST):
            await budget.give_way()
    await node.metadata.committed()
    repeated = [name for name, count in named.items() if count > 1]
    results += await budget.each(repeated, topics.named_twice)
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _few_at_a_time(wanted: list[CreatableTopic], config: Config) -> Iterator[tuple[list[CreatableTopic], int]]:
    """Topics that are decided together, and how many partitions and settings they have."""
    few: list[CreatableTopic] = []
    weight = 0
    for topic in wanted:
        few.append(topic)
        weight += 1 + topics.partitions_wanted(topic, config) + len(topic.configs)
        if weight >= _PER_DECISION:
            yield few, weight
            few, weight = [], 0
    if few:
        yield few, weight


def surroundings(node: Node) -> Surroundings:
    return Surroundings(node.config, node.random, lambda: _new_topic_id(node))


def _new_topic_id(node: Node) -> bytes:
    """By chance; none that Kafka reserves, none whose text begins with a hyphen, which tools take for an option."""
    while True:
        topic_id = node.new_id()
        if int.from_bytes(topic_id, "big") >= _RESERVED_BELOW and not uuid_to_text(topic_id).startswith("-"):
            return topic_id


# Deleting.


async def delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    budget = call.budget
    asked: list[Named] = await budget.each(request.topic_names, lambda name: (name, NO_UUID))
    asked += await budget.each(request.topics, lambda topic: (topic.name, topic.topic_id))
    try:
        if not call.node.config[DELETE_TOPIC_ENABLE]:
            disabled = call.version >= _DELETION_DISABLED_SINCE
            raise Refused(Error.TOPIC_DELETION_DISABLED if disabled else Error.INVALID_REQUEST)
        results = await _delete(asked, call.node, budget)
    except Refused as refused:
        refusal = refused  # The name of an exception is gone when its block ends.
        results = await budget.each(
            asked,
            lambda one: DeletableTopicResult(
                name=one[0] or None, topic_id=one[1], error_code=refusal.error, error_message=refusal.text
            ),
        )
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


async def _delete(asked: list[Named], node: Node, budget: Budget) -> list[DeletableTopicResult]:
    repeated, hits = Counter[Named](), Counter[bytes]()
    image = node.metadata.image
    async for part in budget.parts(asked):
        repeated.update(part)
        hits.update(hit for one in part if (hit := topics.found_id(image, one)) is not None)
    results: list[DeletableTopicResult] = []

    def delete(few: Sequence[Named], image: Image) -> Decision[list[DeletableTopicResult]]:
        return Decision(*topics.delete_each(image, few, repeated, hits))

    async for few in budget.parts(list(repeated), _PER_DECISION):
        deleted = node.metadata.decide(partial(delete, few))
        results += deleted
        if budget.is_spent(len(few) * _RECORD_COST):
            await budget.give_way()
    await node.metadata.committed()
    return results


# Growing.


async def create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    node, budget = call.node, call.budget
    named = Counter[str]()
    async for part in budget.parts(request.topics):
        named.update(topic.name for topic in part)
    distinct = list({topic.name: topic for topic in request.topics}.values())
    results: list[CreatePartitionsTopicResult] = []

    def grow(topic: CreatePartitionsTopic, image: Image) -> Decision[list[CreatePartitionsTopicResult]]:
        records, outcome = topics.grow_each(image, [topic], node.random, named)
        return Decision([] if request.validate_only else records, outcome)

    try:
        for topic in distinct:
            grown = node.metadata.decide(partial(grow, topic))
            results += grown
            if budget.is_spent(_RECORD_COST):
                await budget.give_way()
        await node.metadata.committed()
    except Refused as refused:
        refusal = refused
        results = await budget.each(
            request.topics,
            lambda topic: CreatePartitionsTopicResult(
                name=topic.name, error_code=refusal.error, error_message=refusal.text
            ),
        )
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)
