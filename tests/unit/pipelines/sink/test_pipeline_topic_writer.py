"""The writer of epochs against a real node in virtual time: resets, zombies, both versions of transactions."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import simulated_node
from ottla.client import Client, ProducerFenced, TopicPartition
from ottla.client.consumer import BEGINNING, Consumer
from ottla.client.group_offsets import committed_offsets
from ottla.client.offsets import LATEST, list_offsets
from ottla.pipelines.sink.epochs import EpochRefused, WriterFenced
from ottla.pipelines.sink.outgoing import BadRows, rows_by_topic
from ottla.pipelines.sink.topic_writer import RowsByTopic, TopicTarget, WrittenEpoch, take_over_task, write_rows
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import Compression, DeliveryGuarantee
from ottla.rpc.errors import ClientError
from ottla.sim.machine.network import Weather
from simulated_node import BOOTSTRAP

PARTITIONS = 3
STORMY = Weather(reset=0.02, split=0.1)
TARGET = TopicTarget(BOOTSTRAP, PipelineIdentity("shop"), "out", "t", batch_bytes=300, linger_ms=0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
both_versions = pytest.mark.parametrize("version", [1, 2], ids=["version 1", "version 2"])


def batch_of(values: list[bytes], topic: str = "t", key: bytes | None = None) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        [
            pa.array([topic] * count),
            pa.nulls(count, pa.int32()),
            pa.array([key or value for value in values], pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(count, HEADERS),
            pa.nulls(count, pa.timestamp("us", "UTC")),
        ],
        names=["topic", "partition", "key", "value", "headers", "timestamp"],
    )


def epoch_values(epoch: int, count: int = 40) -> list[bytes]:
    return [b"%d/%d" % (epoch, n) for n in range(count)]


class Given:
    """Rows, in some batches; `between` runs before each but the first."""

    def __init__(self, batches: list[pa.RecordBatch], between: Callable[[], Coroutine[Any, Any, object]] | None = None):
        self._batches = batches
        self._between = between
        self._taken = 0

    async def next_rows(self) -> RowsByTopic | None:
        if self._taken and self._between is not None:
            await self._between()
        if self._taken == len(self._batches):
            return None
        self._taken += 1
        return list(rows_by_topic(self._batches[self._taken - 1]))


class World:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def write(
        self, epoch: int, rows: Given | None = None, target: TopicTarget = TARGET, task: int = 0
    ) -> WrittenEpoch:
        given = rows or Given([batch_of(epoch_values(epoch)[:25]), batch_of(epoch_values(epoch)[25:])])
        return await write_rows(target, target.writer(task), epoch, given, self.client.ports)

    async def write_until_done(self, epoch: int) -> WrittenEpoch:
        """As an engine does: the same task again and again."""
        while True:
            try:
                return await self.write(epoch)
            except ClientError:
                await asyncio.sleep(0.1)

    async def seen(self, topic: str = "t") -> Counter[bytes]:
        """What readers see when every transaction is decided."""
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        while True:
            ends = await list_offsets(self.client, dict.fromkeys(places, LATEST))
            if await list_offsets(self.client, dict.fromkeys(places, LATEST), committed=True) == ends:
                break
            await asyncio.sleep(0.05)
        found: Counter[bytes] = Counter()
        async with Consumer(self.client, committed=True) as consumer:
            await consumer.assign(dict.fromkeys(places, BEGINNING))
            while any(consumer.position(place) < ends[place].offset for place in places):
                found.update(record.value for record in await consumer.poll(timeout_ms=100))
        return found

    async def marker(self, task: int = 0) -> int | None:
        group = TARGET.identity.marker_group_id(TARGET.sink, task)
        offsets = (await committed_offsets(self.client, [group]))[group]
        assert isinstance(offsets, dict), offsets
        found = offsets.get(TopicPartition("t", 0))
        return None if found is None else found.offset


def simulated(work: Callable[[World], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run `work` beside a node."""
    simulated_node.simulated(lambda client: work(World(client)), {"t": PARTITIONS, "dead": PARTITIONS}, **options)


@both_versions
def test_epochs_are_written_once_and_repeated_ones_skipped(version: int) -> None:
    async def work(world: World) -> None:
        for epoch in range(3):
            written = await world.write(epoch)
            assert (written.skipped, written.records, written.by_topic) == (False, 40, (("t", 40),))
            again = await world.write(epoch)
            assert (again.skipped, again.records, again.bytes_sent) == (True, 40, 0)
            assert await world.marker() == epoch + 1
        assert await world.seen() == Counter(value for epoch in range(3) for value in epoch_values(epoch))

    simulated(work, version=version)


@both_versions
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_through_resets(version: int, seed: int) -> None:
    async def work(world: World) -> None:
        for epoch in range(6):
            await world.write_until_done(epoch)
        assert await world.seen() == Counter(value for epoch in range(6) for value in epoch_values(epoch))

    simulated(work, version=version, weather=STORMY, seed=seed)


@both_versions
def test_a_zombie_is_fenced_and_its_rows_never_count(version: int) -> None:
    """An attempt that stood still wakes up when another has done its work."""

    async def work(world: World) -> None:
        zombie = Given([batch_of([b"zombie"] * 20), batch_of([b"zombie"] * 20)], lambda: world.write(0))
        with pytest.raises(ProducerFenced):
            await world.write(0, zombie)
        assert await world.seen() == Counter(epoch_values(0))
        assert await world.marker() == 1

    simulated(work, version=version)


@both_versions
@pytest.mark.parametrize("parts", [[20], [0, 20]], ids=["sent all", "sent nothing"])
def test_a_zombie_is_fenced_whatever_it_has_sent(version: int, parts: list[int]) -> None:
    async def work(world: World) -> None:
        zombie = Given([batch_of([b"zombie"] * count) for count in parts], lambda: world.write(0))
        with pytest.raises(ProducerFenced):
            await world.write(0, zombie)
        assert await world.seen() == Counter(epoch_values(0))

    simulated(work, version=version)


def test_an_older_run_stops_before_it_disturbs_the_one_that_took_over() -> None:
    """Engines try a task that failed again: each attempt would fence the run that is meant to go on."""

    async def work(world: World) -> None:
        older, newer = replace(TARGET, run="0001"), replace(TARGET, run="0002")
        await world.write(0, target=older)
        await take_over_task(newer, newer.writer(0), world.client.ports)
        assert await world.marker() == 1

        async def attempt() -> None:
            with pytest.raises(WriterFenced, match="run 0002 began later than this one, 0001"):
                await world.write(1, target=older)
            with pytest.raises(WriterFenced):
                await take_over_task(older, older.writer(0), world.client.ports)

        await world.write(1, Given([batch_of([b"a"]), batch_of([b"b"])], attempt), newer)
        assert await world.seen() == Counter([*epoch_values(0), b"a", b"b"])

    simulated(work)


def test_a_task_that_has_written_nothing_is_taken_over_without_a_marker() -> None:
    async def work(world: World) -> None:
        newer = replace(TARGET, run="0002")
        await take_over_task(newer, newer.writer(0), world.client.ports)
        assert await world.marker() is None
        await world.write(0, target=newer)

    simulated(work)


def test_a_task_without_rows_writes_its_marker() -> None:
    """Without it the next epoch would find none, and stop."""

    async def work(world: World) -> None:
        assert (await world.write(0, Given([]))).records == 0
        assert await world.marker() == 1
        await world.write(1, Given([batch_of([])]))
        assert await world.marker() == 2

    simulated(work)


def test_rows_that_fail_leave_nothing_behind() -> None:
    async def work(world: World) -> None:
        bad = batch_of([b"bad"]).set_column(1, "partition", pa.array([PARTITIONS], pa.int32()))
        with pytest.raises(BadRows, match=f"task 0: topic t: a row names partition {PARTITIONS}"):
            await world.write(0, Given([batch_of([b"x"] * 30), bad]))
        assert await world.marker() is None
        assert not await world.seen()
        await world.write(0)
        assert await world.seen() == Counter(epoch_values(0))

    simulated(work)


def test_an_epoch_that_does_not_follow_is_refused_before_anything_is_written() -> None:
    async def work(world: World) -> None:
        with pytest.raises(EpochRefused, match="no committed offset"):
            await world.write(5)
        await world.write(0)
        with pytest.raises(EpochRefused, match="ahead of the topic"):
            await world.write(5)
        assert await world.seen() == Counter(epoch_values(0))

    simulated(work)


def test_dead_letters_are_in_the_same_transaction() -> None:
    async def work(world: World) -> None:
        fails = batch_of([b"bad"]).set_column(1, "partition", pa.array([PARTITIONS], pa.int32()))
        with pytest.raises(BadRows):
            await world.write(0, Given([batch_of([b"d"] * 30, "dead"), batch_of([b"x"] * 30), fails]))
        assert not await world.seen("dead")
        written = await world.write(0, Given([batch_of([b"d"], "dead"), batch_of([b"x"])]))
        assert written.by_topic == (("dead", 1), ("t", 1))
        assert (await world.seen("dead"), await world.seen()) == (Counter([b"d"]), Counter([b"x"]))

    simulated(work)


def test_tasks_have_markers_of_their_own() -> None:
    async def work(world: World) -> None:
        await world.write(0, task=0)
        assert (await world.marker(0), await world.marker(1)) == (1, None)
        await world.write(0, Given([batch_of([b"other"])]), task=1)
        assert await world.seen() == Counter([*epoch_values(0), b"other"])

    simulated(work)


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_read_back(codec: Compression) -> None:
    async def work(world: World) -> None:
        await world.write(0, target=TopicTarget(BOOTSTRAP, PipelineIdentity("shop"), "out", "t", codec=codec))
        assert await world.seen() == Counter(epoch_values(0))

    simulated(work)


def test_at_least_once_by_choice_has_no_marker() -> None:
    async def work(world: World) -> None:
        target = TopicTarget(
            BOOTSTRAP, PipelineIdentity("shop"), "out", "t", DeliveryGuarantee.AT_LEAST_ONCE, batch_bytes=300
        )
        for _ in range(2):
            assert not (await world.write(7, target=target)).skipped
        assert await world.marker() is None
        assert await world.seen() == Counter(epoch_values(7) * 2)

    simulated(work, weather=STORMY)


def test_rows_of_a_key_keep_their_order_through_resets() -> None:
    """Several batches of a partition are under way at a time; one that is sent again must not be overtaken."""

    async def work(world: World) -> None:
        values = [b"%d" % n for n in range(300)]
        rows = [batch_of(values[n : n + 50], key=b"same") for n in range(0, 300, 50)]
        target = TopicTarget(
            BOOTSTRAP,
            PipelineIdentity("shop"),
            "out",
            "t",
            DeliveryGuarantee.AT_LEAST_ONCE,
            batch_bytes=200,
            linger_ms=0,
        )
        await world.write(0, Given(rows), target)
        found: list[bytes | None] = []
        async with Consumer(world.client) as consumer:
            await consumer.assign({TopicPartition("t", n): BEGINNING for n in range(PARTITIONS)})
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(timeout_ms=100)]
        assert found == values

    simulated(work, weather=Weather(reset=0.05, split=0.1), seed=3)
