"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from collections.abc import Iterable

from ottla.broker.coordinators.internal_topics import ensure_internal_topic
from ottla.broker.network.dispatch import Call
from ottla.core.metadata.image import BrokerEndpoint
from ottla.core.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.core.runtime.shard import hash_cost, partition_of
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.errors import Error, Refused
from ottla.wire.uuids import uuid_from_text

_KEYS_SINCE = 4
_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
_SHARE, _SHARE_SINCE = 2, 6


async def find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """Find coordinators. Creates the internal topic when it is first needed."""
    keys = request.coordinator_keys if call.version >= _KEYS_SINCE else [request.key]
    found = await _find(keys, request.key_type, call)
    if call.version >= _KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(keys: Iterable[str], key_type: int, call: Call) -> list[Coordinator]:
    topic = _TOPICS.get(key_type)
    if key_type == _SHARE and call.version >= _SHARE_SINCE:
        return [
            _nobody(key, Error.COORDINATOR_NOT_AVAILABLE if _is_share_key(key) else Error.INVALID_REQUEST)
            for key in keys
        ]
    try:
        if topic is None:
            raise Refused(Error.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
        await ensure_internal_topic(call.node, topic)
    except Refused as refused:
        error = refused.error
        return await call.budget.each(keys, lambda key: _nobody(key, error))
    found = topic
    # The cost of hashing a key grows with its length.
    return await call.budget.each(keys, lambda key: _coordinator(key, found, call), cost=hash_cost)


def _is_share_key(key: str) -> bool:
    """Whether the key is GROUP:TOPIC_ID:PARTITION. The group's name may contain colons."""
    match key.rsplit(":", 2):
        case group, topic_id, partition if group.strip():
            try:
                uuid_from_text(topic_id)
                int(partition)
            except ValueError:
                return False
            return True
    return False


def _coordinator(key: str, topic: str, call: Call) -> Coordinator:
    image = call.node.metadata.image
    partitions = image.topics[topic].partitions
    leader = image.brokers.get(partitions[partition_of(key, len(partitions))].leader)
    endpoint: BrokerEndpoint | None = None
    if leader is not None and not leader.fenced:
        endpoint = leader.endpoint(call.listener)
    if leader is None or endpoint is None:
        return _nobody(key, Error.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key,
        node_id=leader.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=Error.NONE,
        error_message="" if call.version >= _KEYS_SINCE else Error.NONE.name,
    )


def _nobody(key: str, error: Error) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.text)
