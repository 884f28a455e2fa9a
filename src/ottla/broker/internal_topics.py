"""The topics that coordinators keep their state in, made when first needed.

One gets as many replicas as its setting asks for, or as there are brokers if they are fewer: a single node coordinates
groups and transactions without a setting.
"""

from typing import TYPE_CHECKING, NamedTuple

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
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class InternalTopic(NamedTuple):
    partitions: int
    replicas: int
    configs: dict[str, str]


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
        raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"topic {name} cannot be made: {made.topics[0].error_message}")


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
    )
