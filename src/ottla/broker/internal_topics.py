"""The topics that coordinators keep their state in, made when first needed.

One gets as many replicas as its setting asks for, or as there are brokers if they are fewer: a single node coordinates
groups and transactions without a setting. A topic's settings have bounds that the broker's settings they come from do
not have (`offsets.topic.segment.bytes` may be 1, `segment.bytes` not): as in Kafka, there is no coordinator then, and a
warning says why.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinator import Coordinator
from ottla.broker.handlers.topics import surroundings
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
from ottla.core.metadata import topics
from ottla.core.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.observe.trace import warn
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class InternalTopic(NamedTuple):
    partitions: int
    replicas: int
    configs: dict[str, str]
    settings: str
    """What the settings begin with that all of this comes from."""


async def ensure_internal_topic(node: "Node", name: str) -> None:
    """Returns when the topic is there; refused if it cannot be made now."""
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
    around = surroundings(node)
    made = await node.metadata.propose(lambda image: topics.create_topics(image, request, around))
    error = Error(made.topics[0].error_code)
    if error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
        reason = f"{error.name}: {made.topics[0].error_message}"
        _warn_once(node, name, wanted, reason)
        raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"topic {name} cannot be made: {reason}")


def _warn_once(node: "Node", name: str, wanted: InternalTopic, reason: str) -> None:
    """Nobody else would say why there is no coordinator: a client is only told that there is none."""
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
