"""Every API in every version that is offered: clients of all ages must get an answer that fits what they asked."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from nodes.topics import Server, Topics
from nodes.wire import Wire, batch_of

from ottla.wire.api import ApiKey, alter_configs, describe_producers, incremental_alter_configs
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.api.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.types import NO_UUID

TOPIC_RESOURCE = 2
METADATA_LEVEL = 29
OLDEST_PRODUCE = 3
"""Older ones are offered and refused: librdkafka takes a broker without them for one that cannot compress."""


class Named:
    """A topic by name and by id; requests take what their version knows."""

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name, self.topic_id = name, topic_id


def produce(topic: Named, version: int) -> object:
    by_id = version >= 13
    data = TopicProduceData(
        name="" if by_id else topic.name,
        topic_id=topic.topic_id if by_id else NO_UUID,
        partition_data=[PartitionProduceData(index=0, records=batch_of([b"v"]))],
    )
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def fetch(topic: Named, version: int) -> object:
    by_id = version >= 13
    asked = FetchTopic(
        topic="" if by_id else topic.name,
        topic_id=topic.topic_id if by_id else NO_UUID,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    return FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=1000, topics=[asked])


def list_offsets(topic: Named, _version: int) -> object:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=asked)])


def metadata(topic: Named, _version: int) -> object:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])


def offset_for_leader_epoch(topic: Named, _version: int) -> object:
    asked = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=asked)])


def delete_records(topic: Named, _version: int) -> object:
    asked = [DeleteRecordsPartition(partition_index=0, offset=0)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic.name, partitions=asked)], timeout_ms=10_000)


def create_topics(topic: Named, version: int) -> object:
    new = CreatableTopic(
        name=f"{topic.name}-{version}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[new], timeout_ms=10_000, validate_only=True)


def delete_topics(topic: Named, version: int) -> object:
    """In version 6 by id. It is the last version, so the topic is there until then only if nobody deletes it before."""
    unknown = f"{topic.name}-unknown"
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=unknown, topic_id=NO_UUID)], timeout_ms=10_000)
    return DeleteTopicsRequest(topic_names=[unknown], timeout_ms=10_000)


def create_partitions(topic: Named, _version: int) -> object:
    more = CreatePartitionsTopic(name=topic.name, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=True)


def describe_configs(topic: Named, version: int) -> object:
    asked = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=version >= 3)


def replace_configs(topic: Named, _version: int) -> object:
    new = alter_configs.AlterableConfig(name="retention.ms", value="1000000")
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[new])
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def change_configs(topic: Named, _version: int) -> object:
    new = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[new]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def describe_log_dirs(topic: Named, _version: int) -> object:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=[0])])


def active_producers(topic: Named, _version: int) -> object:
    asked = describe_producers.TopicRequest(name=topic.name, partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[asked])


def describe_quorum(_topic: Named, _version: int) -> object:
    asked = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
    return DescribeQuorumRequest(topics=[asked])


def update_features(_topic: Named, version: int) -> object:
    same = FeatureUpdateKey(feature="metadata.version", max_version_level=METADATA_LEVEL)
    return UpdateFeaturesRequest(feature_updates=[same], validate_only=version >= 1)


REQUESTS: dict[ApiKey, Callable[[Named, int], object]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: replace_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: change_configs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.DESCRIBE_PRODUCERS: active_producers,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
    ApiKey.UPDATE_FEATURES: update_features,
    ApiKey.LIST_CONFIG_RESOURCES: lambda _topic, _version: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_CLUSTER: lambda _topic, _version: DescribeClusterRequest(
        include_cluster_authorized_operations=True
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda topic, _version: DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=topic.name)]
    ),
    ApiKey.INIT_PRODUCER_ID: lambda _topic, _version: InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.API_VERSIONS: lambda _topic, _version: ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    ),
}
OF_COORDINATORS = {
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
}
"""One request alone says little: whole conversations with groups and transactions have tests of their own."""


def errors_in(answer: Any) -> Iterator[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, list):
        for one in answer:
            yield from errors_in(one)
    elif is_dataclass(answer):
        for each in fields(answer):
            value = getattr(answer, each.name)
            if each.name == "error_code":
                yield value
            else:
                yield from errors_in(value)


def offered(wire: Wire) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {one.api_key: (one.min_version, one.max_version) for one in wire.call(request, 3).api_keys}


@pytest.mark.parametrize("api", list(REQUESTS), ids=lambda api: api.name.lower())
def test_every_version_is_answered(server: Server, topics: Topics, api: ApiKey) -> None:
    name = topics.create(server)
    with Wire(server.bootstrap) as wire:
        [seen] = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
        topic = Named(name, seen.topic_id)
        first, last = offered(wire)[api]
        for version in range(max(first, OLDEST_PRODUCE) if api is ApiKey.PRODUCE else first, last + 1):
            answer = wire.call(REQUESTS[api](topic, version), version)
            expected = {3} if api is ApiKey.DELETE_TOPICS else {0}
            assert set(errors_in(answer)) <= expected, f"version {version}: {answer}"


def test_every_api_that_is_offered_was_asked(ottla: Server) -> None:
    with Wire(ottla.bootstrap) as wire:
        assert {ApiKey(key) for key in offered(wire)} == set(REQUESTS) | OF_COORDINATORS


def test_offered_versions_are_those_of_kafka(ottla: Server, kafka: Server) -> None:
    """A client must find in Ottla what it would find in Kafka."""
    with Wire(ottla.bootstrap) as ours, Wire(kafka.bootstrap) as theirs:
        expected = offered(theirs)
        assert {key: versions for key, versions in offered(ours).items() if expected[key] != versions} == {}
