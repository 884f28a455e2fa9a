"""The role of a partition: it is checked at every append and read, and every wait ends with its leader epoch."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from broker_connection_samples import Transport, new_connection

from ottla.broker.network.connection import Connection
from ottla.broker.node import Node
from ottla.broker.partitions.commits import Commits
from ottla.broker.partitions.partition import Partition, Role
from ottla.config import Config
from ottla.kernel import Record, build_batch
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.loop import run
from ottla.sim.machine.network import SimNetwork, Weather
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.errors import Error, Refused

SYNCED = {"flush.messages": "1"}


def new_partition(clock: SimClock, settings: dict[str, str]) -> Partition:
    disk = SimDisk(clock, Random(1))
    disk.make_directory("/data")
    log = PartitionLog(LogDirectory(disk, "/data"), "t", 0, Config.of(settings), clock, Random(1))
    return Partition(log, bytes(16), isr=(1,), replicas=(1, 2, 3))


def batch() -> memoryview:
    return memoryview(bytearray(build_batch([Record(0, 1, None, b"v")])))


def played(settings: dict[str, str], scenario: Callable[[Partition], Coroutine[Any, Any, None]]) -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        await scenario(new_partition(clock, settings))

    run(main, 0, clock)


def lost_directory(partition: Partition) -> None:
    """As when the disk fails, and the controller then names no leader."""
    partition.log.directory.fail(OSError("gone"), "write")
    partition.follow()


USES: list[Callable[[Partition], object]] = [
    lambda partition: partition.append(batch(), acks=1),
    lambda partition: partition.append_own(bytes(batch()), 1),
    lambda partition: partition.begin_run(),
    lambda partition: partition.read(0, 100, 0, whole_batch=True),
    lambda partition: partition.committed(1, 0),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("end", "role", "error"),
    [
        (Partition.follow, Role.FOLLOWER, Error.NOT_LEADER_OR_FOLLOWER),
        (Partition.remove, Role.OFFLINE, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda partition: partition.log.directory.fail(OSError("gone"), "write"),
            Role.OFFLINE,
            Error.KAFKA_STORAGE_ERROR,
        ),
    ],
)
def test_a_partition_is_used_by_its_leader_only(
    use: Callable[[Partition], object], end: Callable[[Partition], object], role: Role, error: Error
) -> None:
    async def scenario(partition: Partition) -> None:
        with pytest.raises(Refused) as before:
            use(partition)
        assert (partition.role, before.value.error) == (Role.FOLLOWER, Error.NOT_LEADER_OR_FOLLOWER)
        partition.lead(1)
        use(partition)
        end(partition)
        with pytest.raises(Refused) as after:
            use(partition)
        assert (partition.role, after.value.error) == (role, error)

    played({}, scenario)


def test_a_coordinator_of_an_earlier_epoch_writes_nothing() -> None:
    async def scenario(partition: Partition) -> None:
        partition.lead(1)
        partition.lead(2)
        with pytest.raises(Refused, match="leader epoch 1 is over"):
            partition.append_own(bytes(batch()), 1)
        assert partition.log.state.end_offset == 0

    played({}, scenario)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (Partition.follow, Error.NOT_LEADER_OR_FOLLOWER),
        (Partition.remove, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda partition: partition.lead(2), Error.NOT_LEADER_OR_FOLLOWER),
        (lost_directory, Error.KAFKA_STORAGE_ERROR),
    ],
)
def test_every_wait_ends_with_the_epoch_in_which_its_records_were_appended(
    end: Callable[[Partition], object], error: Error
) -> None:
    """The next leader may give the same offset to other records (KAFKA-20634)."""

    async def scenario(partition: Partition) -> None:
        partition.lead(1)
        partition.append(batch(), acks=-1)
        waiting = partition.committed(1, 1)
        assert waiting is not None
        end(partition)
        refusal = await waiting
        assert refusal is not None
        assert refusal.error is error

    played(SYNCED, scenario)


def test_what_is_committed_is_not_waited_for() -> None:
    async def scenario(partition: Partition) -> None:
        partition.lead(1)
        partition.append(batch(), acks=-1)
        assert partition.committed(1, 1) is None

    played({}, scenario)


@pytest.mark.parametrize(("wanted", "in_sync", "is_enough"), [(1, 1, True), (2, 1, False), (3, 3, True), (9, 3, True)])
def test_no_more_replicas_are_asked_for_than_there_are(wanted: int, in_sync: int, is_enough: bool) -> None:
    async def scenario(partition: Partition) -> None:
        partition.lead(1)
        partition.set_replicas(partition.replicas, (1, 2, 3)[:in_sync])
        if is_enough:
            partition.append(batch(), acks=-1)
        else:
            with pytest.raises(Refused, match=f"{in_sync} replicas are in sync, min.insync.replicas asks for {wanted}"):
                partition.append(batch(), acks=-1)

    played({"min.insync.replicas": str(wanted)}, scenario)


def test_nothing_is_written_once_the_logs_of_a_stopping_node_are_closed() -> None:
    """A log that grows after its summary was written is refused at the next start."""
    clock, random = SimClock(), Random(1)
    refused: list[Error] = []

    async def main(_: object) -> None:
        disk = SimDisk(clock, random)
        settings = {"node.id": "1", "listeners": "PLAINTEXT://node:9092", "log.dirs": "/data"}
        network = SimNetwork(random, Weather()).host("node")
        node = Node(Config.of(broker=settings), disk=disk, clock=clock, random=random, network=network)
        await node.start()
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
        )
        await node.controller.send(request)
        partition = node.partition("t", 0)
        stopping = asyncio.create_task(node.stop())
        while not stopping.done():
            try:
                partition.append(batch(), acks=1)
            except Refused as refusal:
                refused.append(refusal.error)
            await asyncio.sleep(0.001)
        written = partition.log.state.end_offset
        again = Node(Config.of(broker=settings), disk=disk, clock=clock, random=random, network=network)
        await again.start()
        assert again.partition("t", 0).log.state.end_offset == written
        await again.stop()

    run(main, 0, clock)
    assert set(refused) == {Error.NOT_LEADER_OR_FOLLOWER}


def test_a_connection_that_was_accepted_just_before_the_node_stops_is_not_served() -> None:
    connection, _ = new_connection()
    connections = connection.node.connections
    connections.close_all()
    late, transport = Connection(connection.node, "PLAINTEXT"), Transport()
    late.connection_made(transport)
    assert transport.aborted


def test_waits_end_in_the_order_of_their_offsets_and_each_in_its_time() -> None:
    clock = SimClock()
    ended: list[tuple[int, Error | None, int]] = []

    async def main(_: object) -> None:
        commits, began_ms = Commits("t-0"), clock.monotonic_ms()

        def note(offset: int, refusal: Refused | None) -> None:
            ended.append((offset, refusal and refusal.error, clock.monotonic_ms() - began_ms))

        for offset, timeout_ms in ((1, 50), (2, None), (3, 20), (4, 80)):
            done = commits.wait(offset, timeout_ms)
            done.add_done_callback(lambda done, offset=offset: note(offset, done.result()))
        await asyncio.sleep(0.060)
        commits.reached(3)
        await asyncio.sleep(1)
        assert len(commits) == 0

    run(main, 0, clock)
    late = Error.REQUEST_TIMED_OUT
    assert ended == [(3, late, 20), (1, late, 50), (2, None, 60), (4, late, 80)]
