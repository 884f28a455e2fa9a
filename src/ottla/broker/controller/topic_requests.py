"""CreateTopics, DeleteTopics and CreatePartitions, decided by the controller.

A request for thousands of topics is decided in slices, and other requests run in between. That is safe because every
topic has its own result in the response. If the client gets no response, some of the topics may have been changed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ottla.broker.controller.controller import Controller, ControllerCall
from ottla.broker.network.backlog import Budget
from ottla.config import DELETE_TOPIC_ENABLE, Config
from ottla.core.metadata import topics
from ottla.core.metadata.image import Image
from ottla.core.metadata.topics import Named
from ottla.core.runtime.decision import Decision
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

_DELETION_DISABLED_SINCE: Final = 3
_PER_DECISION: Final = 64
"""About this many partitions and settings, or topics to be deleted, are decided together."""
_RECORD_COST: Final = 8
"""Deciding, writing and replaying a record costs as much budget as reading this many elements."""


# Creating.


async def create_topics(request: CreateTopicsRequest, call: ControllerCall) -> CreateTopicsResponse:
    budget = call.budget
    try:
        results = await _create(request, call.controller, budget)
    except Refused as refused:
        refusal = refused  # Python deletes the name of an exception after its block.
        named: dict[str, None] = {}
        async for part in budget.parts(request.topics):
            named |= dict.fromkeys(topic.name for topic in part)
        results = await budget.each(named, lambda name: topics.failed_topic(name, refusal))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


async def _create(request: CreateTopicsRequest, controller: Controller, budget: Budget) -> list[CreatableTopicResult]:
    around, named, partitions = controller.surroundings, Counter[str](), 0
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
        return Decision(made, [] if request.validate_only else records)

    for few, weight in _few_at_a_time(once, around.config):
        made = controller.decide(partial(create, few))
        results += made
        if budget.is_spent(weight * _RECORD_COST):
            await budget.give_way()
    await controller.committed()
    repeated = [name for name, count in named.items() if count > 1]
    results += await budget.each(repeated, topics.named_twice)
    return results


def _few_at_a_time(wanted: list[CreatableTopic], config: Config) -> Iterator[tuple[list[CreatableTopic], int]]:
    """The topics in groups that are decided together, each with its number of topics, partitions and settings."""
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


# Deleting.


async def delete_topics(request: DeleteTopicsRequest, call: ControllerCall) -> DeleteTopicsResponse:
    controller, budget = call.controller, call.budget
    asked: list[Named] = await budget.each(request.topic_names, lambda name: (name, NO_UUID))
    asked += await budget.each(request.topics, lambda topic: (topic.name, topic.topic_id))
    try:
        if not controller.config[DELETE_TOPIC_ENABLE]:
            disabled = call.version >= _DELETION_DISABLED_SINCE
            raise Refused(Error.TOPIC_DELETION_DISABLED if disabled else Error.INVALID_REQUEST)
        results = await _delete(asked, controller, budget)
    except Refused as refused:
        refusal = refused
        results = await budget.each(
            asked,
            lambda one: DeletableTopicResult(
                name=one[0] or None, topic_id=one[1], error_code=refusal.error, error_message=refusal.text
            ),
        )
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


async def _delete(asked: list[Named], controller: Controller, budget: Budget) -> list[DeletableTopicResult]:
    repeated, hits = Counter[Named](), Counter[bytes]()
    async for part in budget.parts(asked):
        repeated.update(part)
        hits.update(hit for one in part if (hit := topics.found_id(controller.image, one)) is not None)
    results: list[DeletableTopicResult] = []

    def delete(few: Sequence[Named], image: Image) -> Decision[list[DeletableTopicResult]]:
        records, deleted = topics.delete_each(image, few, repeated, hits)
        return Decision(deleted, records)

    async for few in budget.parts(list(repeated), _PER_DECISION):
        deleted = controller.decide(partial(delete, few))
        results += deleted
        if budget.is_spent(len(few) * _RECORD_COST):
            await budget.give_way()
    await controller.committed()
    return results


# Growing.


async def create_partitions(request: CreatePartitionsRequest, call: ControllerCall) -> CreatePartitionsResponse:
    controller, budget, named = call.controller, call.budget, Counter[str]()
    async for part in budget.parts(request.topics):
        named.update(topic.name for topic in part)
    distinct = list({topic.name: topic for topic in request.topics}.values())
    results: list[CreatePartitionsTopicResult] = []
    chance = controller.surroundings.chance

    def grow(topic: CreatePartitionsTopic, image: Image) -> Decision[list[CreatePartitionsTopicResult]]:
        records, outcome = topics.grow_each(image, [topic], chance, named)
        return Decision(outcome, [] if request.validate_only else records)

    try:
        for topic in distinct:
            grown = controller.decide(partial(grow, topic))
            results += grown
            if budget.is_spent(_RECORD_COST):
                await budget.give_way()
        await controller.committed()
    except Refused as refused:
        refusal = refused
        results = await budget.each(
            request.topics,
            lambda topic: CreatePartitionsTopicResult(
                name=topic.name, error_code=refusal.error, error_message=refusal.text
            ),
        )
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)
