"""A request for each difference that is known, so that one which is mended leaves the table."""

from collections.abc import Callable, Iterator

from odd.generator import Case
from odd.scenarios import BROKER_LOGGER, TOPIC, alter, described, fetch, produce
from odd.values import Batch
from odd.world import World
from ottla.wire.api import ApiKey
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.wire.api.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest

Example = Callable[[World], Iterator[Case]]


def what_is_built(_: World) -> Iterator[Case]:
    yield Case(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="odd", client_software_version="1"))


def words(world: World) -> Iterator[Case]:
    yield produce(world.named("plain"), Batch(), acks=5)
    yield described((TOPIC, world.named("plain")))
    yield described((BROKER_LOGGER, "1"))


def the_quorum(_: World) -> Iterator[Case]:
    asked = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
    yield Case(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=[asked]))
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=3)
    yield Case(ApiKey.UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[update], validate_only=True))


def what_is_named_twice(world: World) -> Iterator[Case]:
    data = [PartitionProduceData(index=0, records=Batch())] * 2  # type: ignore[arg-type]
    topics = [TopicProduceData(name=world.named("plain"), partition_data=data)]
    yield Case(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="unknown",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=world.named("plain"), partitions=[0, 0])],
    )
    yield Case(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)


def what_kafka_does_not_foresee(world: World) -> Iterator[Case]:
    topic = world.named("plain")
    yield produce(topic, Batch(patch=(("length", -1),)), Batch())
    yield fetch(topic, partition_max_bytes=-1)
    yield fetch("__transaction_state")
    asked = [ListOffsetsTopic(name=topic, partitions=[]), ListOffsetsTopic(name="unknown", partitions=[])]
    yield Case(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, isolation_level=9, topics=asked))
    yield Case(ApiKey.ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest(transactions=[]))
    # An operation that there is not.
    yield alter(TOPIC, topic, ("retention.ms", 99, "1"))
    yield from the_quorum(world)


EXAMPLES: tuple[Example, ...] = (
    what_is_built,
    words,
    the_quorum,
    what_is_named_twice,
    what_kafka_does_not_foresee,
)
