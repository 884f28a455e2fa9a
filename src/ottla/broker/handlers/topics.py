"""CreateTopics, DeleteTopics, CreatePartitions: the controller decides.

The response is sent when the change is committed and this broker has applied it, so the topic can be used immediately.
"""

from ottla.broker.network.dispatch import Call
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


async def create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    response: CreateTopicsResponse = await call.node.controller.send(request, version=call.version, budget=call.budget)
    return response


async def delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    response: DeleteTopicsResponse = await call.node.controller.send(request, version=call.version, budget=call.budget)
    return response


async def create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    response: CreatePartitionsResponse = await call.node.controller.send(
        request, version=call.version, budget=call.budget
    )
    return response
