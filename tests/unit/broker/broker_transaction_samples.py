"""A node in virtual time, and clients that speak to its handlers in a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_shard import HostedShard
from ottla.broker.network.dispatch import Call, handler_of
from ottla.broker.network.fifo import Fifo
from ottla.broker.node import Node
from ottla.config import Config
from ottla.core.transactions.transaction import ProducerIdentity
from ottla.kernel import Record, build_batch, read_records, scan
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.loop import run
from ottla.sim.machine.network import SimNetwork, Weather
from ottla.storage.slices import Slice
from ottla.wire.api import ApiKey
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.codec import decode, encode
from ottla.wire.errors import Error
from ottla.wire.schema import message_of
from ottla.wire.types import NO_UUID

ID, TOPIC, GROUP = "id", "t", "g"
TIMEOUT_MS = 60_000
VERSION_1 = {"produce": 11, "end": 4, "offsets": 4}
VERSION_2 = {"produce": 12, "end": 5, "offsets": 5}
both_versions = pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://node:9092",
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class Broker:
    """A node on a disk in memory."""

    def __init__(self, clock: SimClock, disk: SimDisk | None = None, **settings: str) -> None:
        self.random = Random(0)
        self.clock = clock
        self.disk = disk or SimDisk(clock, self.random)
        self.settings = settings
        self.node: Node

    async def start(self) -> "Broker":
        config = Config.of(broker=SETTINGS | {name.replace("_", "."): value for name, value in self.settings.items()})
        self.node = Node(
            config,
            disk=self.disk,
            clock=self.clock,
            random=self.random,
            network=SimNetwork(self.random, Weather()).host("node"),
            new_id=lambda: self.random.randbytes(16),
        )
        await self.node.start()
        return self

    async def restarted(self) -> "Broker":
        """After kill -9."""
        return await Broker(self.clock, self.disk.after_kill(), **self.settings).start()

    async def send(self, request: Any, version: int | None = None, fifo: Fifo | None = None) -> Any:
        """Through the codec, but for what is a slice of a file; `fifo` is that of one connection."""
        facts = message_of(type(request))
        assert facts.api_key is not None
        version = facts.versions[-1] if version is None else version
        connection: Any = SimpleNamespace(
            listener="PLAINTEXT",
            role="broker",
            peer="test",
            close=lambda: None,
            hold=_write_at_once,
            produce_fifo=fifo or Fifo(),
        )
        call = Call(self.node, connection, facts.api_key, version, 1, "client")
        response = handler_of(ApiKey(facts.api_key))(
            decode(type(request), version, bytearray(encode(request, version))), call
        )
        if isinstance(response, Awaitable):
            response = await response
        if isinstance(request, FetchRequest):
            return response
        return decode(type(response), version, encode(response, version))

    # What there is to be seen.

    async def prepare(self, partitions: int = 2) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        await self.send(CreateTopicsRequest(topics=[topic]))
        for key_type, key in ((0, GROUP), (1, ID)):
            found = await self.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
            assert found.coordinators[0].error_code == Error.NONE

    async def delete_topic(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=NO_UUID)], timeout_ms=1)
        await self.send(request)

    async def read(self, index: int = 0, *, committed: bool = True) -> list[str]:
        """What a consumer gets: at read_committed, without what was aborted."""
        partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        told = (await self.send(request, 12)).responses[0].partitions[0]
        assert told.error_code == Error.NONE
        data = told.records.read() if isinstance(told.records, Slice) else bytes(told.records or b"")
        aborted = {(one.producer_id, one.first_offset) for one in told.aborted_transactions or ()}
        values, position, open_aborted = [], 0, set[int]()
        for header in scan(data).headers:
            batch = memoryview(data)[position : position + header.size]
            position += header.size
            open_aborted |= {
                producer for producer, first in aborted if first <= header.base_offset and not header.is_control
            }
            if header.is_control:
                aborted = {one for one in aborted if one[0] != header.producer_id or one[1] > header.base_offset}
                open_aborted.discard(header.producer_id)
            elif not (committed and header.is_transactional and header.producer_id in open_aborted):
                values += [(record.value or b"").decode() for record in read_records(batch, header)]
        return values

    async def offset(self) -> int:
        """What the group has committed for the first partition; -1: nothing."""
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        told = await self.send(OffsetFetchRequest(group_id=GROUP, topics=topics), 6)
        committed: int = told.topics[0].partitions[0].committed_offset
        return committed

    def is_stable(self, index: int = 0) -> bool:
        """Whether every transaction that wrote to the partition is decided."""
        partition = self.node.partition(TOPIC, index)
        return partition.last_stable_offset == partition.high_watermark


def plain(value: str, **fields: Any) -> bytes:
    """A batch of one record."""
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"k", value.encode())], **fields))


async def produced(broker: Broker, batches: Sequence[bytes | None], *, version: int = 9, **fields: Any) -> list[Error]:
    """Send them in one request, each to a partition of its own."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    told = await broker.send(produce_request(data, **fields), version)
    return [Error(one.error_code) for one in told.responses[0].partition_responses]


def produce_request(data: list[PartitionProduceData], **fields: Any) -> ProduceRequest:
    given: dict[str, Any] = {"acks": -1, "topic_data": [TopicProduceData(name=TOPIC, partition_data=data)]} | fields
    return ProduceRequest(timeout_ms=1000, **given)


class Client:
    """A transactional producer, of version 1 (adds partitions itself) or 2."""

    def __init__(self, broker: Broker, versions: dict[str, int]) -> None:
        self.fifo = Fifo()
        self.broker = broker
        self.versions = versions
        self.me = ProducerIdentity(-1, -1)
        self.sequences: dict[int, int] = {}

    @property
    def is_version_2(self) -> bool:
        return self.versions is VERSION_2

    async def init(self, *, timeout_ms: int = TIMEOUT_MS) -> Error:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms)
        told = await self.broker.send(request, 5)
        if not told.error_code:
            self.me, self.sequences = ProducerIdentity(told.producer_id, told.producer_epoch), {}
        return Error(told.error_code)

    async def take_over(self) -> None:
        """As clients do: ask until what was left open is aborted."""
        for _ in range(100):
            error = await self.init()
            if error is Error.NONE:
                return
            assert error in (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS), error
            await passed(20)
        raise AssertionError("what was left open is never aborted")

    async def add(self, *indexes: int) -> Error:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.me.producer_id,
            v3_and_below_producer_epoch=self.me.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(indexes))],
        )
        told = await self.broker.send(request, 3)
        return Error(told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def send(self, value: str, index: int = 0, *, version: int | None = None) -> Error:
        sequence = self.sequences.get(index, 0)
        error = await self.send_batch(self.batch(value, sequence), index, version=version)
        if error is Error.NONE:
            self.sequences[index] = sequence + 1
        return error

    def batch(self, value: str, sequence: int) -> bytes:
        record = Record(0, self.broker.clock.wall_ms(), None, value.encode())
        return build_batch(
            [record],
            transactional=True,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            base_sequence=sequence,
        )

    async def send_batch(
        self, batch: bytes, index: int, *, version: int | None = None, transactional_id: str | None = ID
    ) -> Error:
        data = [PartitionProduceData(index=index, records=bytearray(batch))]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )
        told = await self.broker.send(request, self.versions["produce"] if version is None else version, self.fifo)
        return Error(told.responses[0].partition_responses[0].error_code)

    async def write(self, *values: str) -> None:
        """One value to each partition, the first to the first."""
        if not self.is_version_2:
            assert await self.add(*range(len(values))) is Error.NONE
        for index, value in enumerate(values):
            assert await self.send(value, index) is Error.NONE

    async def send_offset(self, offset: int) -> Error:
        if not self.is_version_2:
            request = AddOffsetsToTxnRequest(
                transactional_id=ID, producer_id=self.me.producer_id, producer_epoch=self.me.epoch, group_id=GROUP
            )
            assert (await self.broker.send(request)).error_code == Error.NONE
        return await self.commit_offset(offset, self.versions["offsets"])

    async def commit_offset(self, offset: int, version: int, *, transactional_id: str = ID) -> Error:
        """TxnOffsetCommit alone."""
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        commit = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=GROUP,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        told = await self.broker.send(commit, version)
        return Error(told.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool) -> Error:
        told = await self.broker.send(self.end_request(commit=commit), self.versions["end"])
        if not told.error_code and self.is_version_2:
            self.me, self.sequences = ProducerIdentity(told.producer_id, told.producer_epoch), {}
        return Error(told.error_code)

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=ID, producer_id=self.me.producer_id, producer_epoch=self.me.epoch, committed=commit
        )


async def passed(ms: int) -> None:
    """Virtual time."""
    await asyncio.sleep(ms / 1000)


def _write_at_once(hosted: HostedShard[Any]) -> None:
    """As a connection that sends every answer by itself, and ends where it must not."""
    if not hosted.write_held():
        raise ConnectionAbortedError("what the answer tells of could not be written")


async def eventually(holds: Callable[[], bool], within_ms: int = 60_000) -> None:
    for _ in range(within_ms // 10):
        if holds():
            return
        await passed(10)
    raise AssertionError(f"still not so after {within_ms} ms")


def simulated(scenario: Callable[[Broker], Coroutine[Any, Any, None]], **settings: str) -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        broker = await Broker(clock, None, **settings).start()
        await broker.prepare()
        await scenario(broker)

    run(main, 0, clock)


def all_or_nothing(found: Sequence[object], all_of: Sequence[object], none_of: Sequence[object]) -> bool:
    assert list(found) in (list(all_of), list(none_of)), f"{found} is neither all nor nothing"
    return list(found) == list(all_of)
