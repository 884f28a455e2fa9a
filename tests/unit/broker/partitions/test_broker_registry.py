"""A node on a disk in memory: what it makes readable and when, and what it does with directories that fail."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.broker.partitions import registry as partitions
from ottla.broker.partitions.commits import Commit
from ottla.broker.partitions.partition import Partition
from ottla.config import RETENTION_MS, Config
from ottla.core.metadata.views import topic_seen
from ottla.kernel import Record, build_batch
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, EMFILE, Fault
from ottla.sim.machine.loop import run
from ottla.sim.machine.network import SimNetwork, Weather
from ottla.storage.atomic import write_unsynced
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

SYNCED = {"flush.messages": "1"}


class Place:
    """A disk, and nodes that come and go on it."""

    def __init__(self, clock: SimClock) -> None:
        self.random = Random(0)
        self.disk = SimDisk(clock, self.random)
        self.clock = clock
        self.node: Node

    async def start(self) -> Node:
        host = SimNetwork(self.random, Weather()).host("node")
        config = Config.of(
            broker={
                "node.id": "1",
                "listeners": "PLAINTEXT://node:9092",
                "log.dirs": "/data/a,/data/b",
                "metadata.log.dir": "/data/b",
            }
        )
        new_id = lambda: self.random.randbytes(16)  # noqa: E731
        self.node = Node(config, disk=self.disk, clock=self.clock, random=self.random, network=host, new_id=new_id)
        await self.node.start()
        return self.node

    async def create(self, name: str, settings: dict[str, str], partitions: int = 1) -> Partition:
        node = self.node
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        request = CreateTopicsRequest(topics=[topic])
        await node.controller.send(request)
        return node.partition(name, 0)

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=NO_UUID)], timeout_ms=1)
        await self.node.controller.send(request)

    async def restart(self) -> Node:
        await self.node.stop()
        self.disk = self.disk.after_kill()
        return await self.start()


def simulated(scenario: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        place = Place(clock)
        await place.start()
        await scenario(place)

    run(main, 0, clock)


def batch() -> memoryview:
    return memoryview(bytearray(build_batch([Record(0, 2_000_000_000_000, None, b"value")])))


def commit(partition: Partition, offset: int) -> Commit:
    """Of what is not committed yet."""
    waiting = partition.committed(partition.leader_epoch, offset)
    assert waiting is not None
    return waiting


def test_what_a_client_sent_becomes_readable_although_it_is_gone() -> None:
    """The sync was part of its request once, and ended with its connection."""

    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        partition.append(batch(), acks=-1)
        waiting = commit(partition, 1)
        waiting.cancel()
        await asyncio.sleep(1)
        assert partition.high_watermark == 1

    simulated(scenario)


def test_what_somebody_else_synced_becomes_readable() -> None:
    """The flush of `flush.ms` leaves nothing for the partition's own, which has to move the watermark all the same."""

    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        partition.append(batch(), acks=0)
        await partition.log.flush_in_thread()
        await asyncio.sleep(1)
        assert partition.high_watermark == 1

    simulated(scenario)


def test_nothing_is_readable_before_it_is_synced() -> None:
    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        partition.append(batch(), acks=0)
        assert partition.high_watermark == 0
        assert await commit(partition, 1) is None
        assert partition.high_watermark == partition.log.state.recovery_point == 1

    simulated(scenario)


def test_disk_that_cannot_sync_is_told_to_who_waits() -> None:
    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        partition.append(batch(), acks=-1)
        place.disk.faults.append(Fault(EIO, operations=("sync",), rate=1.0))
        refusal = await commit(partition, 1)
        assert refusal is not None
        assert refusal.error is Error.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 0

    simulated(scenario)


def records_after_a_power_loss(place: Place, seed: int) -> int:
    """How many of partition t-0 a machine finds that loses power now."""
    found = place.disk.if_power_went(Random(seed))
    directory = LogDirectory(found, "/data/a")
    return PartitionLog(directory, "t", 0, Config.of(SYNCED), place.clock, Random(0)).state.end_offset


def test_an_acknowledgement_waits_for_a_sync_that_began_after_its_append() -> None:
    """One that was on its way already does not cover it. The disk tells, not the log (I18)."""

    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        assert partition.log.directory.path == "/data/a"
        told = list[int]()

        def acknowledged(offset: int) -> None:
            assert partition.log.state.recovery_point >= offset
            assert all(records_after_a_power_loss(place, seed) >= offset for seed in range(8))
            told.append(offset)

        for offset in range(1, 20):
            partition.append(batch(), acks=-1)
            commit(partition, offset).add_done_callback(lambda _, offset=offset: acknowledged(offset))
            await asyncio.sleep(0.01)  # A sync takes up to 50 ms here.
        await asyncio.sleep(1)
        assert told == list(range(1, 20))

    simulated(scenario)


def test_a_sync_without_descriptors_is_told_and_done_when_there_are_some() -> None:
    """What was appended is not lost, and readers must not wait until somebody appends again."""

    async def scenario(place: Place) -> None:
        partition = await place.create("t", SYNCED)
        partition.append(batch(), acks=-1)
        place.disk.faults.append(Fault(EMFILE, rate=1.0))
        refusal = await commit(partition, 1)
        assert refusal is not None
        assert refusal.error is Error.KAFKA_STORAGE_ERROR
        assert "too many open files" in refusal.text
        await asyncio.sleep(5)
        assert partition.high_watermark == 0
        place.disk.faults.clear()
        await asyncio.sleep(5)
        assert partition.high_watermark == 1
        assert all(records_after_a_power_loss(place, seed) == 1 for seed in range(8))

    simulated(scenario)


def test_metadata_that_cannot_be_synced_for_want_of_descriptors_waits_for_some() -> None:
    """Nothing was lost; yet the quorum was over for good."""

    async def scenario(place: Place) -> None:
        place.disk.faults.append(Fault(EMFILE, operations=("sync_directory",), suffix="__cluster_metadata-0", rate=1.0))
        place.node.raft_log._log.roll()
        creating = asyncio.ensure_future(place.create("t", {}))
        await asyncio.sleep(5)
        assert not creating.done()
        place.disk.faults.clear()
        assert (await creating).name == "t-0"

    simulated(scenario)


def test_a_topic_whose_log_lacks_descriptors_is_made_when_there_are_some() -> None:
    """CreateTopics was answered, and the partition stayed offline for good. The log is made where it was begun: in
    two directories, it would keep the next node from starting."""

    async def scenario(place: Place) -> None:
        in_a, in_b = await place.create("in-a", {}), await place.create("in-b", {})
        assert [one.log.directory.path for one in (in_a, in_b)] == ["/data/a", "/data/b"]
        place.disk.faults.append(Fault(EMFILE, operations=("open",), suffix="/t-0/partition.metadata", rate=1.0))
        creating = asyncio.ensure_future(place.create("t", {}))
        await asyncio.sleep(5)
        assert not creating.done()
        in_a.append(batch(), acks=-1)  # A new log would go to the other directory now.
        place.disk.faults.clear()
        assert (await creating).log.directory.path == "/data/a"
        (await creating).append(batch(), acks=-1)
        node = await place.restart()
        assert node.partition("t", 0).high_watermark == 1

    simulated(scenario)


def test_a_node_that_lacks_descriptors_for_its_logs_does_not_start() -> None:
    """They are whole: a node that left them out would answer for them with errors until its next start."""

    async def scenario(place: Place) -> None:
        (await place.create("t", {})).append(batch(), acks=-1)
        place.disk.faults.append(Fault(EMFILE, operations=("open",), suffix="/t-0/partition.metadata", rate=1.0))
        with pytest.raises(Refused, match="too many open files"):
            await place.restart()
        place.disk = place.disk.after_kill()
        place.disk.faults.clear()
        assert (await place.start()).partition("t", 0).high_watermark == 1

    simulated(scenario)


def test_segments_of_a_new_log_are_synced_when_they_are_closed() -> None:
    async def scenario(place: Place) -> None:
        partition = await place.create("t", {})
        partition.append(batch(), acks=-1)
        partition.log.roll()
        await asyncio.sleep(1)
        assert partition.log.state.recovery_point == 1
        assert records_after_a_power_loss(place, 1) == 1

    simulated(scenario)


def test_log_in_a_directory_that_is_offline_is_not_made_anew_elsewhere() -> None:
    """Otherwise the topic came back empty, and its records were hidden for ever (KAFKA-3410)."""

    async def scenario(place: Place) -> None:
        partition = await place.create("t", {})
        partition.append(batch(), acks=-1)
        assert partition.log.directory.path == "/data/a"
        place.disk.faults.append(Fault(EIO, operations=("lock",), suffix="/data/a/.lock", nth=1))
        node = await place.restart()
        with pytest.raises(Refused) as refused:
            node.partition("t", 0)
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
        node = await place.restart()
        assert node.partition("t", 0).high_watermark == 1

    simulated(scenario)


def leader_told(node: Node, topic: str) -> tuple[Error, int, list[int]]:
    """What a client hears of partition 0."""
    image = node.metadata.image
    (seen,) = topic_seen(image, image.topics[topic], "PLAINTEXT", 12).partitions
    return Error(seen.error_code), seen.leader_id, seen.offline_replicas


def test_a_partition_whose_directory_fails_has_no_leader_until_it_can_be_used_again() -> None:
    """Clients would ask this broker again and again, and get an error every time."""

    async def scenario(place: Place) -> None:
        here, there = await place.create("here", {}), await place.create("there", {})
        here.append(batch(), acks=-1)
        assert (here.log.directory.path, there.log.directory.path) == ("/data/a", "/data/b")
        await asyncio.sleep(1)
        epoch = here.leader_epoch
        place.disk.faults.append(Fault(EIO, operations=("write",), suffix=".log", nth=1))
        with pytest.raises(Refused):
            here.append(batch(), acks=-1)
        await asyncio.sleep(1)
        assert not place.node.failure
        assert leader_told(place.node, "here") == (Error.LEADER_NOT_AVAILABLE, -1, [1])
        assert leader_told(place.node, "there") == (Error.NONE, 1, [])
        place.disk.faults.append(Fault(EIO, operations=("lock",), suffix="/data/a/.lock", nth=1))
        node = await place.restart()
        assert leader_told(node, "here") == (Error.LEADER_NOT_AVAILABLE, -1, [1])
        node = await place.restart()
        assert leader_told(node, "here") == (Error.NONE, 1, [])
        assert node.partition("here", 0).high_watermark == 1
        assert node.partition("here", 0).leader_epoch > epoch

    simulated(scenario)


def test_a_log_that_cannot_be_opened_has_no_leader_until_it_can() -> None:
    async def scenario(place: Place) -> None:
        partition = await place.create("t", {})
        partition.append(batch(), acks=-1)
        await place.node.stop()
        path = f"{partition.log.here.path}/partition.metadata"
        good = place.disk.contents()[path] or b""
        write_unsynced(place.disk, path, b"version: 0\ntopic_id: nonsense\n", then_sync=True)
        node = await place.start()
        assert leader_told(node, "t") == (Error.LEADER_NOT_AVAILABLE, -1, [1])
        await node.stop()
        write_unsynced(place.disk, path, good, then_sync=True)
        node = await place.start()
        assert leader_told(node, "t") == (Error.NONE, 1, [])
        assert node.partition("t", 0).high_watermark == 1

    simulated(scenario)


@pytest.mark.parametrize(
    ("directories", "reason"),
    [
        (["/data/b"], r"/data/b, which holds the metadata, cannot be used any more"),
        (["/data/a", "/data/b"], r"/data/b, which holds the metadata|no log directory is left"),
    ],
)
def test_a_node_that_lost_its_metadata_or_its_last_directory_cannot_go_on(directories: list[str], reason: str) -> None:
    """It used to stay up and answer errors for ever: nobody started it again."""

    async def scenario(place: Place) -> None:
        for path in directories:
            assert not place.node.failed.is_set()
            (directory,) = [one for one in place.node.store.directories if one.path == path]
            directory.fail(OSError(EIO, "I/O error"), "test")
            await asyncio.sleep(1)
        assert place.node.failed.is_set()
        assert re.match(reason, place.node.failure)
        await place.node.stop()

    simulated(scenario)


def test_node_does_not_start_without_its_metadata() -> None:
    """An empty metadata log in another directory would make every topic unknown."""

    async def scenario(place: Place) -> None:
        place.disk.faults.append(Fault(EIO, operations=("lock",), suffix="/data/b/.lock", nth=1))
        with pytest.raises(Refused, match=r"the metadata is in /data/b"):
            await place.restart()

    simulated(scenario)


class _Watched:
    """What a node does about changed metadata, watched by somebody who has a turn whenever it lets go."""

    def __init__(self, node: Node) -> None:
        self._partitions = node.partitions
        (self._listener,) = node.metadata.listeners
        node.metadata.listeners = [self._changed]
        self.largest_step = 0

    async def _changed(self, *changed: Any) -> None:
        work: Coroutine[Any, Any, None] = self._listener(*changed)  # type: ignore[assignment]
        task, before, idle = asyncio.ensure_future(work), len(self._partitions), 0
        while not task.done():
            # Virtual time goes on only when nobody is runnable, and the disk takes some.
            await asyncio.sleep(0 if idle < 10 else 0.001)
            now = len(self._partitions)
            idle = idle + 1 if now == before else 0
            self.largest_step, before = max(self.largest_step, abs(now - before)), now
        await task


def test_many_partitions_come_and_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a topic with thousands of them holds up everybody else's requests."""
    monkeypatch.setattr(partitions, "_KEPT_AT_ONCE", 4)
    monkeypatch.setattr(partitions, "_REMOVED_AT_ONCE", 6)

    async def work(place: Place) -> None:
        watched = _Watched(place.node)
        await place.create("t", {}, partitions=20)
        assert len(place.node.partitions) == 20
        assert 0 < watched.largest_step <= 4
        watched.largest_step = 0
        await place.delete("t")
        assert len(place.node.partitions) == len(place.node.store.logs) == 0
        assert 0 < watched.largest_step <= 6

    simulated(work)


def test_checkpoints_are_written_once_for_all_topics_that_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of 4,000 they took a minute in which nobody else was heard, not even who wanted to stop the node."""
    written: list[str] = []
    write_as = LogDirectory._write_as

    def noted(directory: LogDirectory, number: int, name: str, offsets: Any) -> None:
        written.append(name)
        write_as(directory, number, name, offsets)

    async def work(place: Place) -> None:
        for number in range(30):
            await place.create(f"t{number}", {}, partitions=2)
        await place.create("stays", {})
        place.node.store.checkpoint()
        monkeypatch.setattr(LogDirectory, "_write_as", noted)
        named = [DeleteTopicState(name=f"t{number}", topic_id=NO_UUID) for number in range(30)]
        request = DeleteTopicsRequest(topics=named, timeout_ms=1)
        await place.node.controller.send(request)
        assert len(place.node.partitions) == len(place.node.store.logs) == 1
        assert len(written) <= 2 * 4, "of two directories"
        await place.create("t0", {})
        assert place.node.partition("t0", 0).high_watermark == 0

    simulated(work)


def test_settings_of_a_topic_concern_its_own_partitions() -> None:
    """Looking at all partitions of a broker for each of ten thousand settings took an hour."""

    async def work(place: Place) -> None:
        for number in range(3):
            await place.create(f"t{number}", {}, partitions=2)
        looked_at: list[str] = []
        for (name, _), log in place.node.store.logs.items():

            def noted(config: Config, name: str = name, then: Any = log.reconfigure) -> None:
                looked_at.append(name)
                then(config)

            log.reconfigure = noted  # type: ignore[method-assign]
        config = AlterableConfig(name="retention.ms", config_operation=0, value="77")
        resource = AlterConfigsResource(resource_type=2, resource_name="t1", configs=[config])
        await place.node.controller.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert looked_at == ["t1", "t1"]
        assert place.node.partition("t1", 1).log.state.config[RETENTION_MS] == 77

    simulated(work)
