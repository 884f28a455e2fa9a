"""The internal topics in which coordinators keep their state. They are created when first needed.

Such a topic gets as many replicas as its setting requires, or as there are brokers if they are fewer: a single node
coordinates groups and transactions without a setting. Its settings come from settings of the broker that have wider
bounds (`offsets.topic.segment.bytes` may be 1, `segment.bytes` may not). If the topic cannot have a value, the cluster
has no coordinator of this kind, as in Kafka, and a warning gives the reason.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinators.coordinator import Coordinator
from ottla.config import Config
from ottla.config.groups import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from ottla.config.transactions import (
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
)
from ottla.core.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.observe.trace import warn
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class InternalTopic(NamedTuple):
    partitions: int
    replicas: int
    configs: dict[str, str]
    settings: str
    """The prefix of the broker's settings for this topic; the warning names it."""


async def ensure_internal_topic(node: "Node", name: str) -> None:
    """Create the topic if it does not exist; returns when it does. Raises Refused if it cannot be created now."""
    if name in node.metadata.image.topics:
        return
    wanted = _wanted(name, node.config, len(node.metadata.image.live_brokers()))
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=wanted.partitions,
                replication_factor=wanted.replicas,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.configs.items()],
            )
        ]
    )
    made: CreateTopicsResponse = await node.controller.send(request)
    error = Error(made.topics[0].error_code)
    if error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
        reason = f"{error.name}: {made.topics[0].error_message}"
        _warn_once(node, name, wanted, reason)
        raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"topic {name} cannot be made: {reason}")


def _warn_once(node: "Node", name: str, wanted: InternalTopic, reason: str) -> None:
    """Log why there is no coordinator, once per reason: clients get only an error without it, and retry often."""
    coordinator: Coordinator[Any] = node.groups if name == CONSUMER_OFFSETS else node.transactions.coordinator
    if reason != coordinator.why_no_topic:
        coordinator.why_no_topic = reason
        warn("internal_topic.not_made", topic=name, reason=reason, change=wanted.settings)


def _wanted(name: str, config: Config, brokers: int) -> InternalTopic:
    if name == CONSUMER_OFFSETS:
        return InternalTopic(
            config[OFFSETS_TOPIC_NUM_PARTITIONS],
            max(min(config[OFFSETS_TOPIC_REPLICATION_FACTOR], brokers), 1),
            {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
            },
            "offsets.topic.*",
        )
    assert name == TRANSACTION_STATE, f"{name} is no topic of a coordinator here"
    replicas = max(min(config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR], brokers), 1)
    return InternalTopic(
        config[TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        replicas,
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(config[TRANSACTION_STATE_LOG_MIN_ISR], replicas)),
            "segment.bytes": str(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
        },
        "transaction.state.log.*",
    )
