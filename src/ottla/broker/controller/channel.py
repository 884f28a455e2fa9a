"""The channel by which a broker sends requests to the controller and gets the responses.

The requests are those of Kafka, in the version that the sender uses. Request and response are the same whether the
controller is in this process or elsewhere. Errors are part of the response; nothing is raised.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from ottla.broker.controller import broker_requests, config_requests, topic_requests
from ottla.broker.controller.controller import Controller, ControllerCall
from ottla.broker.network.backlog import Budget
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.api.alter_configs import AlterConfigsRequest
from ottla.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.broker_registration import BrokerRegistrationRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest
from ottla.wire.api.create_topics import CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.api.update_features import UpdateFeaturesRequest
from ottla.wire.schema import message_of

_Decide = Callable[[Any, ControllerCall], Awaitable[Any]]

DECIDED_HERE: Final[dict[type, _Decide]] = {
    CreateTopicsRequest: topic_requests.create_topics,
    DeleteTopicsRequest: topic_requests.delete_topics,
    CreatePartitionsRequest: topic_requests.create_partitions,
    AlterConfigsRequest: config_requests.alter_configs,
    IncrementalAlterConfigsRequest: config_requests.incremental_alter_configs,
    BrokerRegistrationRequest: broker_requests.broker_registration,
    BrokerHeartbeatRequest: broker_requests.broker_heartbeat,
    AssignReplicasToDirsRequest: broker_requests.assign_replicas_to_dirs,
    AllocateProducerIdsRequest: broker_requests.allocate_producer_ids,
    UpdateFeaturesRequest: broker_requests.update_features,
}
"""The requests that the controller decides."""


class ControllerChannel(Protocol):
    async def send(self, request: Any, *, version: int | None = None, budget: Budget | None = None) -> Any:
        """Send a request; returns the response when the decision is committed and published on this node.

        `version` is the latest one unless the request came from a client. A controller in this process spends
        `budget`, so that a long request gives way to others; without one the request gets a new budget.
        """


class LocalChannel:
    """The channel to a controller in this process."""

    def __init__(self, controller: Controller, new_budget: Callable[[], Budget]) -> None:
        self._controller = controller
        self._new_budget = new_budget

    async def send(self, request: Any, *, version: int | None = None, budget: Budget | None = None) -> Any:
        decide = DECIDED_HERE[type(request)]
        if version is None:
            version = message_of(type(request)).versions[-1]
        return await decide(request, ControllerCall(self._controller, version, budget or self._new_budget()))
