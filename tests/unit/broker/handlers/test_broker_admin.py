"""The admin APIs as a client meets them: every answer must also fit its version."""

import logging
from collections.abc import Awaitable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from broker_quorum_samples import LISTENER, Home, new_disk, run

from ottla.broker.network.dispatch import Call, handler_of
from ottla.core.log.files import METADATA_TOPIC
from ottla.observe.trace import AREAS
from ottla.wire.api import ApiKey, alter_configs, request_class
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.codec import decode, encode
from ottla.wire.errors import Error
from ottla.wire.schema import message_of
from ottla.wire.types import NO_UUID

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture(autouse=True)
def levels_kept() -> Iterator[None]:
    """Loggers belong to the process."""
    before = {name: logging.getLogger(name).level for name in ("ottla", *(f"ottla.{area}" for area in AREAS))}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


class Client:
    """Sends requests through the codec, as a connection would, and decodes what comes back."""

    def __init__(self, home: Home) -> None:
        self.home = home

    async def send(self, request: Any, version: int | None = None, *, listener: str = LISTENER) -> Any:
        facts = message_of(type(request))
        assert facts.api_key is not None
        version = facts.versions[-1] if version is None else version
        connection: Any = SimpleNamespace(listener=listener, role="broker", peer="test")
        call = Call(self.home.node(), connection, facts.api_key, version, 1, "client")
        arrived = decode(type(request), version, encode(request, version))
        response = handler_of(ApiKey(facts.api_key))(arrived, call)
        if isinstance(response, Awaitable):
            response = await response
        return decode(type(response), version, encode(response, version))


def scenario(work: Any, **settings: str) -> None:
    """Run `work(client)` against a node with one broker."""
    home = Home(new_disk(), {name.replace("_", "."): value for name, value in settings.items()})

    async def main() -> None:
        await home.open()
        await home.join()
        await work(Client(home))

    run(main)


def creatable(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


# Metadata.


@pytest.mark.parametrize("version", list(message_of(request_class(ApiKey.METADATA)).versions))
def test_metadata_tells_brokers_and_topics_in_every_version(version: int) -> None:
    async def work(client: Client) -> None:
        await client.home.create("t", partitions=2)
        everything = MetadataRequest(topics=[] if version == 0 else None)
        told = await client.send(everything, version)
        assert [(one.node_id, one.host, one.port) for one in told.brokers] == [(1, "localhost", 9092)]
        assert [(one.name, len(one.partitions)) for one in told.topics] == [("t", 2)]
        partition = told.topics[0].partitions[0]
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert partition.error_code == Error.NONE
        if version >= 2:
            assert told.cluster_id == "cluster"
        if version >= 1:
            assert told.controller_id == 1
            assert (await client.send(MetadataRequest(topics=[]), version)).topics == []

    scenario(work)


def test_metadata_makes_missing_topics_where_both_sides_want_it() -> None:
    async def work(client: Client) -> None:
        told = await client.send(MetadataRequest(topics=named("new", "bad name", "__consumer_offsets")))
        assert [(one.name, one.error_code) for one in told.topics] == [
            ("new", Error.NONE),
            ("bad name", Error.INVALID_TOPIC_EXCEPTION),
            ("__consumer_offsets", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert len(told.topics[0].partitions) == 3
        assert told.topics[0].partitions[0].leader_id == 1
        unwanted = MetadataRequest(topics=named("other"), allow_auto_topic_creation=False)
        told = await client.send(unwanted)
        assert told.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert list(client.home.image.topics) == ["new"]

    scenario(work, num_partitions="3")


def test_metadata_makes_nothing_where_the_broker_does_not_want_it() -> None:
    async def work(client: Client) -> None:
        told = await client.send(MetadataRequest(topics=named("new")))
        assert told.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION

    scenario(work, auto_create_topics_enable="false")


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_topics_that_cannot_be_asked_for_so_are_refused_in_words(version: int) -> None:
    """Once the connection was closed: the client could not know why."""

    async def work(client: Client) -> None:
        await client.home.create("t")
        topic_id = client.home.image.topics["t"].topic_id
        by_id = MetadataRequestTopic(topic_id=topic_id, name=None)
        both = MetadataRequestTopic(topic_id=topic_id, name="t")
        nameless = MetadataRequestTopic(name=None)
        for asked in ([by_id], [both], [nameless], [MetadataRequestTopic(name="t"), nameless]):
            told = await client.send(MetadataRequest(topics=asked), version)
            is_fine = version >= 12 and asked[0].topic_id == topic_id
            assert {one.error_code for one in told.topics} == {Error.NONE if is_fine else Error.INVALID_REQUEST}
            assert (told.brokers == []) == (not is_fine)

    scenario(work)


def test_metadata_by_id_tells_a_topic_made_again_from_the_old_one() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        old = client.home.image.topics["t"].topic_id
        await client.home.delete("t")
        await client.home.create("t")
        new = client.home.image.topics["t"].topic_id
        by_id = [MetadataRequestTopic(topic_id=one, name=None) for one in (old, new)]
        told = await client.send(MetadataRequest(topics=by_id))
        assert [(one.error_code, one.name, one.topic_id) for one in told.topics] == [
            (Error.UNKNOWN_TOPIC_ID, None, old),
            (Error.NONE, "t", new),
        ]

    scenario(work)


@pytest.mark.parametrize(("version", "error"), [(5, Error.LEADER_NOT_AVAILABLE), (6, Error.LISTENER_NOT_FOUND)])
def test_client_of_a_listener_that_the_leader_lacks_is_told_so(version: int, error: Error) -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        told = await client.send(MetadataRequest(topics=named("t")), version, listener="OTHER")
        assert told.brokers == []
        partition = told.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (error, -1, [1])

    scenario(work)


def test_operations_are_told_when_asked_for() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        asked = MetadataRequest(
            topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        told = await client.send(asked, 10)
        assert told.topics[0].topic_authorized_operations == 0b1101_1111_1000
        assert told.cluster_authorized_operations == 0b1_1111_1010_0000
        told = await client.send(MetadataRequest(topics=None), 10)
        assert told.topics[0].topic_authorized_operations == told.cluster_authorized_operations == -(2**31)

    scenario(work)


# Topics.


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made_in_every_version(version: int) -> None:
    async def work(client: Client) -> None:
        request = CreateTopicsRequest(topics=[creatable("a", 2, retention_ms="5"), creatable("a b")])
        made, refused = (await client.send(request, version)).topics
        assert (made.name, made.error_code) == ("a", Error.NONE)
        assert refused.error_code == Error.INVALID_TOPIC_EXCEPTION
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (2, 1)
        if version >= 7:
            assert made.topic_id == client.home.image.topics["a"].topic_id

    scenario(work)


def test_request_that_is_too_large_is_refused_item_by_item() -> None:
    async def work(client: Client) -> None:
        told = await client.send(CreateTopicsRequest(topics=[creatable("a", 10_001), creatable("b")]))
        assert [one.error_code for one in told.topics] == [Error.POLICY_VIOLATION] * 2

    scenario(work)


def test_topics_are_deleted_and_grown() -> None:
    async def work(client: Client) -> None:
        await client.home.create("a", "b")
        grown = [CreatePartitionsTopic(name="b", count=4, assignments=None)]
        told = await client.send(CreatePartitionsRequest(topics=grown, timeout_ms=1, validate_only=False))
        assert [(one.name, one.error_code) for one in told.results] == [("b", Error.NONE)]
        assert len(client.home.image.topics["b"].partitions) == 4
        told = await client.send(DeleteTopicsRequest(topic_names=["a", "nope"], timeout_ms=1), 1)
        assert [(one.name, one.error_code) for one in told.responses] == [
            ("a", Error.NONE),
            ("nope", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert list(client.home.image.topics) == ["b"]

    scenario(work)


@pytest.mark.parametrize(("version", "error"), [(2, Error.INVALID_REQUEST), (6, Error.TOPIC_DELETION_DISABLED)])
def test_deletion_may_be_switched_off(version: int, error: Error) -> None:
    async def work(client: Client) -> None:
        await client.home.create("a")
        states = [DeleteTopicState(name="a", topic_id=NO_UUID)] if version >= 6 else []
        request = DeleteTopicsRequest(topics=states, topic_names=[] if states else ["a"], timeout_ms=1)
        told = await client.send(request, version)
        assert [one.error_code for one in told.responses] == [error]
        assert list(client.home.image.topics) == ["a"]

    scenario(work, delete_topic_enable="false")


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="t", partition_index=-1), Cursor(topic_name="u", partition_index=0)]
)
def test_a_cursor_that_points_nowhere_is_refused_in_words(cursor: Cursor) -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
        told = await client.send(request)
        assert [(one.name, one.error_code, one.partitions) for one in told.topics] == [("t", Error.INVALID_REQUEST, [])]
        assert told.next_cursor is None

    scenario(work)


def test_a_kind_of_endpoint_that_is_not_described_here_tells_nothing_of_the_cluster() -> None:
    async def work(client: Client) -> None:
        for kind, error in ((2, Error.MISMATCHED_ENDPOINT_TYPE), (0, Error.UNSUPPORTED_ENDPOINT_TYPE)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
            told = await client.send(request)
            assert (told.error_code, told.cluster_id, told.endpoint_type, told.brokers) == (error, "", 1, [])

    scenario(work)


# Settings.


async def _described(client: Client, kind: int, name: str, keys: list[str] | None = None, **options: bool) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return (await client.send(DescribeConfigsRequest(resources=[resource], **options))).results[0]


def test_settings_are_described_with_source_synonyms_type_and_doc() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        told = await _described(client, TOPIC, "t", ["retention.ms"], include_synonyms=True, include_documentation=True)
        (entry,) = told.configs
        assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("5", 1, 5, False)
        assert [(one.name, one.value, one.source) for one in entry.synonyms[:2]] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "77", 4),
        ]
        assert entry.documentation
        everything = await _described(client, TOPIC, "t")
        assert len(everything.configs) > 30
        assert all(one.synonyms == [] and one.documentation is None for one in everything.configs)
        assert "internal.segment.bytes" not in {one.name for one in everything.configs}

    scenario(work, log_retention_ms="77")


def test_each_kind_of_resource_is_described_or_refused() -> None:
    async def work(client: Client) -> None:
        assert len((await _described(client, BROKER, "1")).configs) > 200
        cluster = await _described(client, BROKER, "")
        assert [(one.name, one.value) for one in cluster.configs] == [("min.insync.replicas", "1")]
        assert (await _described(client, GROUP, "g")).configs
        assert (await _described(client, METRICS, "m")).configs
        assert (await _described(client, LOGGER, "1")).error_code == Error.NONE
        for kind, name, error in (
            (BROKER, "2", Error.INVALID_REQUEST),
            (BROKER, "x", Error.INVALID_REQUEST),
            (TOPIC, "nope", Error.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "", Error.INVALID_TOPIC_EXCEPTION),
            (GROUP, "", Error.INVALID_REQUEST),
            (LOGGER, "2", Error.INVALID_REQUEST),
            (99, "x", Error.INVALID_REQUEST),
        ):
            told = await _described(client, kind, name)
            assert (told.error_code, told.configs) == (error, [])
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in ((GROUP, "g"), (99, "x"))
        ]
        # A kind that there is not fails all, as in Kafka.
        told = await client.send(DescribeConfigsRequest(resources=resources))
        assert [one.error_code for one in told.results] == [Error.INVALID_REQUEST] * 2
        # No names are all names.
        assert len((await _described(client, BROKER, "1", [])).configs) > 200

    scenario(work)


async def _set_levels(client: Client, *changes: tuple[str, int, str | None], name: str = "1", dry: bool = False) -> int:
    configs = [AlterableConfig(name=one, config_operation=operation, value=value) for one, operation, value in changes]
    resource = AlterConfigsResource(resource_type=LOGGER, resource_name=name, configs=configs)
    told = await client.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry))
    error: int = told.responses[0].error_code
    return error


def test_levels_of_loggers_are_described_and_changed() -> None:
    """They belong to the process: nothing of them is written down (KIP-412)."""

    async def work(client: Client) -> None:
        async def level(name: str) -> str:
            (entry,) = (await _described(client, LOGGER, "1", [name])).configs
            assert (entry.config_source, entry.read_only, entry.is_sensitive) == (6, False, False)
            return str(entry.value)

        written = client.home.raft_log.end_offset
        names = {one.name for one in (await _described(client, LOGGER, "1")).configs}
        assert {"root", "ottla", "ottla.log", "ottla.request"} <= names
        assert await _set_levels(client, ("ottla", 0, "WARN"), ("ottla.log", 0, "DEBUG")) == Error.NONE
        assert [await level(name) for name in ("ottla", "ottla.log", "ottla.node")] == ["WARN", "DEBUG", "WARN"]
        assert await _set_levels(client, ("ottla.log", 1, None)) == Error.NONE
        assert await level("ottla.log") == "WARN"
        assert await _set_levels(client, ("ottla", 0, "FATAL"), dry=True) == Error.NONE
        assert await level("ottla") == "WARN"
        assert client.home.raft_log.end_offset == written

    scenario(work)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("ottla.no", 0, "INFO")], Error.INVALID_CONFIG),
        ([("ottla.no", 1, None)], Error.INVALID_CONFIG),
        ([("ottla", 0, "info")], Error.INVALID_CONFIG),
        ([("ottla", 0, "OFF")], Error.INVALID_CONFIG),
        ([("ottla", 0, None)], Error.INVALID_REQUEST),
        ([("root", 1, None)], Error.INVALID_REQUEST),
        ([("ottla", 2, "INFO")], Error.INVALID_REQUEST),
        ([("ottla", 0, "INFO"), ("ottla", 0, "WARN")], Error.INVALID_REQUEST),
        ([("ottla", 0, "ERROR"), ("ottla.no", 0, "INFO")], Error.INVALID_CONFIG),
    ],
)
def test_impossible_levels_are_refused_whole(changes: list[tuple[str, int, str | None]], error: Error) -> None:
    async def work(client: Client) -> None:
        before = (await _described(client, LOGGER, "1")).configs
        assert await _set_levels(client, *changes) == error
        assert await _set_levels(client, ("ottla", 0, "ERROR"), name="2") == Error.INVALID_REQUEST
        assert (await _described(client, LOGGER, "1")).configs == before

    scenario(work)


def test_loggers_and_topics_are_changed_in_one_request_and_neither_twice() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        level = AlterableConfig(name="ottla.log", config_operation=0, value="ERROR")
        setting = AlterableConfig(name="segment.ms", config_operation=0, value="7")
        loggers = AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[level])
        topic = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[setting])
        for resources, errors in (
            ([loggers, topic], {(LOGGER, Error.NONE), (TOPIC, Error.NONE)}),
            ([topic, loggers, loggers], {(LOGGER, Error.INVALID_REQUEST), (TOPIC, Error.NONE)}),
        ):
            told = await client.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
            assert {(one.resource_type, one.error_code) for one in told.responses} == errors
            assert len(told.responses) == len(resources)

    scenario(work)


def test_settings_of_another_broker_are_refused_in_their_place() -> None:
    """The broker that was asked answers for itself; everything else is the controller's. Order is the request's."""

    async def work(client: Client) -> None:
        await client.home.create("t")
        named = [(BROKER, "2"), (TOPIC, "t"), (BROKER, "x"), (BROKER, "1")]
        errors = [Error.INVALID_REQUEST, Error.NONE, Error.INVALID_REQUEST, Error.NONE]
        resources = [AlterConfigsResource(resource_type=kind, resource_name=name, configs=[]) for kind, name in named]
        told = await client.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
        assert [(one.resource_type, one.resource_name) for one in told.responses] == named
        assert [one.error_code for one in told.responses] == errors
        whole = [
            alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
            for kind, name in named
        ]
        told = await client.send(alter_configs.AlterConfigsRequest(resources=whole, validate_only=True))
        assert [one.error_code for one in told.responses] == errors

    scenario(work)


def test_settings_are_altered_one_by_one_and_all_together() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        changes = [AlterableConfig(name="segment.ms", config_operation=0, value="9")]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=changes)
        other = AlterConfigsResource(resource_type=TOPIC, resource_name="nope", configs=changes)
        told = await client.send(IncrementalAlterConfigsRequest(resources=[resource, other], validate_only=False))
        assert [one.error_code for one in told.responses] == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.home.image.config(TOPIC, "t") == {"retention.ms": "5", "segment.ms": "9"}
        whole = alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[alter_configs.AlterableConfig(name="retention.ms", value="8")],
        )
        told = await client.send(alter_configs.AlterConfigsRequest(resources=[whole], validate_only=False))
        assert [one.error_code for one in told.responses] == [Error.NONE]
        assert client.home.image.config(TOPIC, "t") == {"retention.ms": "8"}

    scenario(work)


def test_resources_are_listed_by_type() -> None:
    async def work(client: Client) -> None:
        await client.home.create("t")
        told = await client.send(ListConfigResourcesRequest(resource_types=[TOPIC, BROKER]))
        assert [(one.resource_type, one.resource_name) for one in told.config_resources] == [
            (BROKER, "1"),
            (TOPIC, "t"),
        ]
        assert (await client.send(ListConfigResourcesRequest(), 0)).config_resources == []
        assert (
            await client.send(ListConfigResourcesRequest(resource_types=[3]))
        ).error_code == Error.UNSUPPORTED_VERSION

    scenario(work)


# The cluster.


def test_cluster_is_described() -> None:
    async def work(client: Client) -> None:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        told = await client.send(asked)
        assert (told.cluster_id, told.controller_id, told.error_code) == ("cluster", 1, Error.NONE)
        assert [(one.broker_id, one.host, one.port) for one in told.brokers] == [(1, "localhost", 9092)]
        for endpoint_type, error in ((2, Error.MISMATCHED_ENDPOINT_TYPE), (7, Error.UNSUPPORTED_ENDPOINT_TYPE)):
            asked = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
            assert (await client.send(asked)).error_code == error

    scenario(work)


def test_partitions_are_told_page_by_page() -> None:
    async def work(client: Client) -> None:
        await client.home.create("a", "b", "c", partitions=3)
        pages, cursor = [], None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=4, cursor=cursor)
            told = await client.send(request)
            pages.append([(one.name, [each.partition_index for each in one.partitions]) for one in told.topics])
            if told.next_cursor is None:
                break
            cursor = Cursor(topic_name=told.next_cursor.topic_name, partition_index=told.next_cursor.partition_index)
        assert pages == [
            [("a", [0, 1, 2]), ("b", [0])],
            [("b", [1, 2]), ("c", [0, 1])],
            [("c", [2])],
        ]
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="c"), TopicRequest(name="nope")])
        told = await client.send(asked)
        assert [(one.name, one.error_code) for one in told.topics] == [
            ("c", Error.NONE),
            ("nope", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    scenario(work)


def test_producers_get_ids() -> None:
    async def work(client: Client) -> None:
        def asked(**fields: Any) -> InitProducerIdRequest:
            return InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1000} | fields)

        first = await client.send(asked(), 0)
        again = await client.send(asked(producer_id=first.producer_id, producer_epoch=0), 5)
        assert (first.producer_id, first.producer_epoch, first.error_code) == (0, 0, Error.NONE)
        assert (again.producer_id, again.producer_epoch) == (1, 0)
        for fields, error in (
            ({"producer_id": 5}, Error.INVALID_REQUEST),
            ({"transactional_id": ""}, Error.INVALID_REQUEST),
        ):
            told = await client.send(asked(**fields), 5)
            assert (told.error_code, told.producer_id) == (error, -1)

    scenario(work)


def test_quorum_is_described() -> None:
    async def work(client: Client) -> None:
        partition = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])
        told = await client.send(DescribeQuorumRequest(topics=[partition]))
        one = told.topics[0].partitions[0]
        assert (one.leader_id, one.leader_epoch, one.high_watermark) == (1, 1, client.home.raft_log.end_offset)
        assert [voter.replica_id for voter in one.current_voters] == [1]
        assert told.nodes[0].listeners[0].port == 9093
        for older in (0, 1):
            [topic] = (await client.send(DescribeQuorumRequest(topics=[partition]), older)).topics
            assert topic.partitions[0].leader_id == 1
        other = RequestTopicData(topic_name="t", partitions=[RequestPartitionData(partition_index=0)])
        for asked in ([other], [partition, other], [partition, partition]):
            told = await client.send(DescribeQuorumRequest(topics=asked))
            assert told.error_code == Error.NONE
            errors = {one.error_code for topic in told.topics for one in topic.partitions}
            assert errors == {Error.UNKNOWN_TOPIC_OR_PARTITION}

    scenario(work)


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "error"),
    [
        ("transaction.version", 1, 2, Error.NONE),
        ("transaction.version", 1, 1, Error.INVALID_UPDATE_VERSION),
        ("transaction.version", 9, 1, Error.INVALID_UPDATE_VERSION),
        ("metadata.version", 29, 2, Error.INVALID_UPDATE_VERSION),
        ("no.version", 1, 1, Error.INVALID_UPDATE_VERSION),
        ("group.version", 1, 7, Error.INVALID_UPDATE_VERSION),
    ],
)
def test_features_are_updated(feature: str, level: int, upgrade_type: int, error: Error) -> None:
    async def work(client: Client) -> None:
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        before = dict(client.home.image.features)
        told = await client.send(UpdateFeaturesRequest(feature_updates=[update], validate_only=True))
        assert told.error_code == error
        assert client.home.image.features == before
        await client.send(UpdateFeaturesRequest(feature_updates=[update]))
        assert client.home.image.features == (before | {feature: level} if error == Error.NONE else before)

    scenario(work)


def test_updates_of_features_are_told_one_by_one_to_older_clients_if_all_were_made() -> None:
    async def work(client: Client) -> None:
        good = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
        bad = FeatureUpdateKey(feature="group.version", max_version_level=9)
        for version, updates, told_of in ((1, [good], 1), (2, [good], 0), (1, [good, bad], 0), (1, [bad, good], 0)):
            told = await client.send(UpdateFeaturesRequest(feature_updates=updates, validate_only=True), version)
            assert len(told.results) == told_of
            assert (told.error_code == Error.NONE) == (bad not in updates)
        # Of one that is named twice the last counts.
        worse = FeatureUpdateKey(feature="transaction.version", max_version_level=9)
        for updates, error in (([worse, good], Error.NONE), ([good, worse], Error.INVALID_UPDATE_VERSION)):
            told = await client.send(UpdateFeaturesRequest(feature_updates=updates, validate_only=True), 1)
            assert told.error_code == error

    scenario(work)
