"""Sequences of requests, written by hand: what depends on what was sent before.

A scenario is a function of a world; it gives the requests in their order.
"""

from collections.abc import Callable, Iterator
from typing import Any

from odd.generator import Case
from odd.peer import Peer
from odd.values import Batch, Given
from odd.world import World, remember_producer
from ottla.kernel import Codec
from ottla.wire.api import ApiKey
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_producers import DescribeProducersRequest
from ottla.wire.api.describe_producers import TopicRequest as ProducersOfTopic
from ottla.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.types import NO_UUID

Scenario = Callable[[World], Iterator[Case]]
CLIENT_METRICS, BROKER_LOGGER, TOPIC = 16, 8, 2
INT_MAX = 2**31 - 1


# Requests.


def produce(
    topic: str, *batches: Batch | bytes, version: int = 9, acks: int = -1, transactional_id: str | None = None
) -> Case:
    """Each batch to a partition of its own."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]  # type: ignore[arg-type]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=topics)
    return Case(ApiKey.PRODUCE, version, request)


def of(world: World, producer: str, sequence: int, **fields: Any) -> Batch:
    name = world.named(producer)
    fields.setdefault("epoch", Given("producer_epoch", name))
    return Batch(producer_id=Given("producer_id", name), sequence=sequence, **fields)


def fetch(topic: str, *, version: int = 12, offset: int = 0, isolation: int = 0, **fields: Any) -> Case:
    """Of partition 0, without a session. Fields of the partition and of the request go by their names."""
    own = ("current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes")
    asked = {name: fields.pop(name) for name in own if name in fields}
    partition = FetchPartition(partition=0, fetch_offset=offset, **{"partition_max_bytes": 100_000, **asked})
    whole: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "isolation_level": isolation} | fields
    return Case(ApiKey.FETCH, version, FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])], **whole))


def end_offsets(topic: str) -> Iterator[Case]:
    for isolation in (0, 1):
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
        )
        yield Case(ApiKey.LIST_OFFSETS, 7, request)


def producers_of(*topics: str) -> Case:
    asked = [ProducersOfTopic(name=topic, partition_indexes=[0]) for topic in topics]
    return Case(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=asked))


def init(world: World, name: str, transactional_id: str | None) -> Case:
    def keep(peer: Peer, answer: Any) -> None:
        remember_producer(peer, world.named(name), answer)

    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return Case(ApiKey.INIT_PRODUCER_ID, 4, request, keep)


def add(world: World, name: str, *topics: str) -> Case:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=world.named(name),
        v3_and_below_producer_id=Given("producer_id", world.named(name)),  # type: ignore[arg-type]
        v3_and_below_producer_epoch=Given("producer_epoch", world.named(name)),  # type: ignore[arg-type]
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
    )
    return Case(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)


def end(world: World, name: str, *, commit: bool) -> Case:
    request = EndTxnRequest(
        transactional_id=world.named(name),
        producer_id=Given("producer_id", world.named(name)),  # type: ignore[arg-type]
        producer_epoch=Given("producer_epoch", world.named(name)),  # type: ignore[arg-type]
        committed=commit,
    )
    return Case(ApiKey.END_TXN, 4, request)


def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Case:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return Case(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


def described(*resources: tuple[int, str], keys: list[str] | None = None) -> Case:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    ]
    request = DescribeConfigsRequest(resources=asked, include_synonyms=True, include_documentation=keys is None)
    return Case(ApiKey.DESCRIBE_CONFIGS, 4, request)


# Scenarios.


def strays_of_transactions(world: World) -> Iterator[Case]:
    """Records of a transaction need its id in the request, or the last stable offset could stand still for ever."""
    topic = world.named("plain")
    for version in (3, 8, 9, 12):
        yield produce(topic, Batch(transactional=True), version=version)
        yield produce(topic, of(world, "idempotent", 0, transactional=True), version=version)
        yield produce(topic, of(world, "open", 1, transactional=True), version=version)
    yield produce(topic, Batch(), of(world, "idle", 0, transactional=True))
    yield from end_offsets(topic)
    # On the short way (`broker/fastpath/produce_lane`), which is open after two requests that are alike.
    for batch in (Batch(), Batch(), Batch(transactional=True), of(world, "open", 1, transactional=True), Batch()):
        yield produce(topic, batch)
    yield produce(topic, Batch(transactional=True), transactional_id=world.named("open"))
    yield produce(topic, of(world, "open", 1), transactional_id=world.named("open"))
    yield produce(topic, of(world, "open", 1, transactional=True), transactional_id=world.named("idle"))
    yield from end_offsets(topic)
    yield fetch(topic, isolation=1)
    yield producers_of(topic)


def transactions_in_internal_topics(world: World) -> Iterator[Case]:
    yield add(world, "idle", "__consumer_offsets")
    yield end(world, "idle", commit=True)
    yield add(world, "idle", world.named("plain"), "__transaction_state", "unknown")
    yield end(world, "idle", commit=False)
    yield add(world, "idle", world.named("plain"))
    yield end(world, "idle", commit=True)


def zstd(world: World) -> Iterator[Case]:
    """Versions before 7 of Produce do not know it."""
    topic = world.named("plain")
    for version in range(3, 14):
        if version < 13:
            yield produce(topic, Batch(codec=Codec.ZSTD), version=version)
    yield produce(topic, Batch(codec=Codec.ZSTD), Batch(codec=Codec.GZIP), version=6)
    for version in (4, 9, 10, 12):
        yield fetch(topic, offset=12, version=version)


def idempotent_producers(world: World) -> Iterator[Case]:
    topic = world.named("plain")
    for sequence in (0, 1, 2, 3, 4, 5, 6, 6, 2, 1, 0, 8, 7, INT_MAX):
        yield produce(topic, of(world, "idempotent", sequence))
    yield produce(topic, of(world, "idempotent", 8, values=(b"a", b"b")))
    yield produce(topic, of(world, "idempotent", 8))
    yield produce(topic, of(world, "idempotent", 9))
    for epoch, sequence in ((1, 5), (1, 0), (0, 10), (1, 1), (3, 0), (2, 0)):
        yield produce(topic, of(world, "idempotent", sequence, epoch=epoch))
    yield produce(topic, of(world, "idempotent", 0, epoch=-1))
    yield producers_of(topic, world.named("victim"), "a/b", "unknown", "__consumer_offsets")
    for producer_id in (-2, -5, 2**40):
        yield produce(topic, Batch(producer_id=producer_id, epoch=0, sequence=0))
        yield produce(topic, Batch(producer_id=producer_id, epoch=0, sequence=-1))
    # The sequence goes on at 0 after its end.
    for sequence in (INT_MAX - 1, INT_MAX, 0, 1):
        yield produce(topic, Batch(producer_id=2**41, epoch=0, sequence=sequence))
    yield fetch(topic, offset=12)


def fetches(world: World) -> Iterator[Case]:
    topic = world.named("plain")
    for version in (4, 9, 11, 12):
        for epoch in (-5, -1, 0, 1) if version >= 9 else ():
            yield fetch(topic, version=version, current_leader_epoch=epoch)
        for replica in (-3, -2, -1, 0, 1, 2):
            yield fetch(topic, version=version, replica_id=replica)
    for epoch in (-5, -1, 0, 1, 99):
        for offset in (0, 12, 13, 99, -1):
            yield fetch(topic, offset=offset, last_fetched_epoch=epoch)
    yield fetch(topic, current_leader_epoch=0, replica_id=2)
    yield fetch(topic, current_leader_epoch=7, last_fetched_epoch=0)
    by_id = fetch(topic, version=16, current_leader_epoch=-5, replica_state=ReplicaState(replica_id=2))
    for version in (13, 15, 16, 18):
        for epoch in (-1, 0):
            request = fetch(topic, current_leader_epoch=epoch).request
            request.topics[0].topic, request.topics[0].topic_id = "", Given("topic_id", topic)
            if version >= 15:
                request.replica_state = ReplicaState(replica_id=2, replica_epoch=0)
            yield by_id._replace(version=version, request=request)
    for limit in (-1, 0, 1, 200):
        yield fetch(topic, partition_max_bytes=limit)
        yield fetch(topic, max_bytes=limit)
        yield fetch(topic, offset=12, max_bytes=limit)
    yield fetch(topic, offset=6, min_bytes=100_000, max_bytes=100, max_wait_ms=600_000)
    for isolation in (2, -1):
        yield fetch(topic, isolation=isolation)
    yield fetch(world.named("txn"), isolation=1)
    yield fetch(world.named("txn"), isolation=1, replica_id=-3)


def sessions(world: World) -> Iterator[Case]:
    """Incremental sessions: what is told, what is not told again, and what is refused."""
    plain, victim = world.named("plain"), world.named("victim")
    here = world.named("of its own")

    def keep(peer: Peer, answer: Any) -> None:
        peer.given["session_id", here] = answer.session_id

    def ask(epoch: int, *topics: FetchTopic, forget: str = "", version: int = 12) -> Case:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=Given("session_id", here),  # type: ignore[arg-type]
            session_epoch=epoch,
            topics=list(topics),
            forgotten_topics_data=[ForgottenTopic(topic=forget, partitions=[0])] if forget else [],
        )
        return Case(ApiKey.FETCH, version, request)

    def wanted(topic: str, offset: int = 0) -> FetchTopic:
        return FetchTopic(
            topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)]
        )

    opening = fetch(plain, session_epoch=0)
    yield opening._replace(keep=keep)
    yield ask(1)
    yield ask(1)
    yield ask(2, wanted(plain, 12))
    yield ask(3, wanted(victim), wanted("unknown"))
    yield ask(4)
    yield ask(5, wanted(victim, 7))
    yield produce(plain, Batch())
    yield ask(6)
    yield ask(7, wanted(plain, 13), forget="unknown")
    yield ask(8)
    yield ask(9, version=13)
    yield ask(9, forget=plain)
    yield ask(10, forget=victim)
    yield ask(11)
    empty = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[])
    yield opening._replace(request=empty, keep=keep)
    yield ask(1, wanted(victim))
    yield ask(-1)
    yield ask(2)
    yield ask(5)
    yield ask(-2)


def internal_topics(_: World) -> Iterator[Case]:
    for topic in ("__consumer_offsets", "__transaction_state", "__cluster_metadata"):
        yield produce(topic, Batch(keys=(b"k",)))
        yield produce(topic, b"odd")
        yield producers_of(topic) if topic == "__cluster_metadata" else fetch(topic, offset=10**9)
        partitions = [DeleteRecordsPartition(partition_index=index, offset=1) for index in (0, 5)]
        yield Case(
            ApiKey.DELETE_RECORDS,
            2,
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=30_000),
        )


def coordinators(world: World) -> Iterator[Case]:
    keys = [world.named("simple"), "", "a:b:0", f"{world.named('g')}:AAAAAAAAAAAAAAAAAAAAAA:x", "::0", ":AAAA:0"]
    for kind in (-1, 0, 1, 2, 3, 127):
        for version in range(7):
            if version == 0 and kind != 0:
                continue
            if version < 4:
                yield from (
                    Case(ApiKey.FIND_COORDINATOR, version, FindCoordinatorRequest(key=key, key_type=kind))
                    for key in keys[:2]
                )
            else:
                request = FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
                yield Case(ApiKey.FIND_COORDINATOR, version, request)


def ids_and_cursors(world: World) -> Iterator[Case]:
    """What once made Ottla close the connection."""
    plain = world.named("plain")
    named, by_id = {"name": plain, "topic_id": NO_UUID}, {"name": None, "topic_id": Given("topic_id", plain)}
    both, neither = {"name": plain, "topic_id": Given("topic_id", plain)}, {"name": None, "topic_id": NO_UUID}
    for version in range(10, 14):
        for topics in ([by_id], [both], [neither], [named, by_id], [named, neither], [by_id, neither]):
            asked = [MetadataRequestTopic(**one) for one in topics]  # type: ignore[arg-type]
            yield Case(ApiKey.METADATA, version, MetadataRequest(topics=asked))
    for name, index in ((plain, -1), (plain, 0), (plain, 1), (plain, 5), ("a", 0), ("zzz", 0), (world.named("txn"), 0)):
        for topics in ([plain], [plain, world.named("victim")]):
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=topic) for topic in topics],
                cursor=Cursor(topic_name=name, partition_index=index),
            )
            yield Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)


def settings(world: World) -> Iterator[Case]:
    topic, metrics = world.named("plain"), world.named("metrics")
    for name in ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"):
        for value in ("true", "false", "x"):
            yield alter(TOPIC, topic, (name, 0, value))
    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        for value in ("*", "", "0:1", "0:1,1:1", "0:1,0:1", "0:1,,", "0", "a:b", "0:1:2", "-1:1", "*,0:1", "**", ","):
            yield alter(TOPIC, topic, (name, 0, value))
        yield alter(TOPIC, topic, (name, 0, "0:1"))
        yield alter(TOPIC, topic, (name, 2, "1:1,0:1"))
        yield alter(TOPIC, topic, (name, 3, "0:1"))
        yield alter(TOPIC, topic, (name, 2, "nonsense"))
    for value in ("99", "100", "3600000", "3600001", "-1", "x", ""):
        yield alter(CLIENT_METRICS, metrics, ("interval.ms", 0, value))
    for value in ("client_id=a.*", "client_id=", "client_id", "a=b", "client_id=a=b", "client_id=(", " client_id = a "):
        yield alter(CLIENT_METRICS, metrics, ("match", 0, value))
    for value in ("", "*", "a.b,c", "a,a", "a,,b"):
        yield alter(CLIENT_METRICS, metrics, ("metrics", 0, value))
    yield alter(CLIENT_METRICS, metrics, ("unknown", 0, "1"))
    yield alter(CLIENT_METRICS, "", ("metrics", 0, "a"))
    yield described((TOPIC, topic), (CLIENT_METRICS, metrics), keys=["metrics", "match", "interval.ms"])
    yield described((TOPIC, topic), (3, topic), keys=["retention.ms"])
    yield alter(TOPIC, "", ("retention.ms", 0, "x"))
    yield alter(TOPIC, "unknown", ("retention.ms", 0, "x"))
    yield alter(TOPIC, "unknown", ("retention.ms", 0, "1"))


def loggers(_: World) -> Iterator[Case]:
    """Both have one that is named root; the others are each server's own."""
    for name in ("1", "2", "", "x"):
        yield described((BROKER_LOGGER, name), keys=["root"])
        yield alter(BROKER_LOGGER, name, ("root", 0, "WARN"))
    yield described((BROKER_LOGGER, "1"), keys=["root"])
    for value in ("DEBUG", "TRACE", "FATAL", "ERROR", "INFO", "info", "OFF", "", "nonsense", None):
        yield alter(BROKER_LOGGER, "1", ("root", 0, value))
        yield described((BROKER_LOGGER, "1"), keys=["root"])
    for operation in (1, 2, 3):
        yield alter(BROKER_LOGGER, "1", ("root", operation, "INFO"))
    yield alter(BROKER_LOGGER, "1", ("no.such.logger", 0, "INFO"))
    yield alter(BROKER_LOGGER, "1", ("no.such.logger", 1, None))
    yield alter(BROKER_LOGGER, "1", ("root", 0, "INFO"), ("root", 0, "WARN"))
    yield alter(BROKER_LOGGER, "1")


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__.replace("_", " "): scenario
    for scenario in (
        strays_of_transactions,
        transactions_in_internal_topics,
        zstd,
        idempotent_producers,
        fetches,
        sessions,
        internal_topics,
        coordinators,
        ids_and_cursors,
        settings,
        loggers,
    )
}
