"""The upkeep of a node: which log is cleaned, retention, flushes."""

import asyncio
from random import Random

import pytest
from storage_cleaner_samples import (
    COMPACT,
    cleaned,
    fill,
    make,
    put,
    records,
    simulated,
)
from storage_samples import NOW, config

from ottla.config import Config
from ottla.core.log import files
from ottla.kernel import CorruptBatch
from ottla.observe.trace import names, recording
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, Fault
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Refused


def damage(store: LogStore, log: PartitionLog) -> None:
    file = store.disk.open(f"{log.here.path}/{files.file_name(0, files.LOG)}")
    byte = file.read(90, 1)[0]
    file.write(90, [bytes([byte ^ 1])])


def test_upkeep_cleans_the_dirtiest_and_says_when_there_is_nothing() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        upkeep = Upkeep(store)
        assert await upkeep.clean() is None
        little, much = make(store, "little"), make(store, "much")
        fill(little, 10)
        fill(much, 30)
        assert (await upkeep.clean()) is not None
        assert (await upkeep.clean()) is not None
        assert await upkeep.clean() is None
        assert [len(records(log)) for log in (little, much)] == [4, 4]

    simulated(scenario)


def test_a_batch_with_a_wrong_crc_stops_the_cleaning_of_its_log_alone() -> None:
    """A copy with a new CRC would make damage look whole."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        bad, good = make(store, "bad"), make(store, "good")
        fill(bad)
        fill(good)
        damage(store, bad)
        before = {path: data for path, data in disk.contents().items() if "/bad-0/" in path and path.endswith(".log")}
        upkeep = Upkeep(store)
        with recording() as events:
            for _ in range(4):
                await upkeep.clean()
        assert names(events).count("log.uncleanable") == 1
        assert names(events).count("log.cleaned") == 1
        assert {path: disk.contents()[path] for path in before} == before
        assert len(records(good)) == 4
        with pytest.raises(CorruptBatch):
            await cleaned(bad)
        store.delete(("bad", 0))
        fill(make(store, "bad"))
        assert await upkeep.clean() is not None

    simulated(scenario)


def test_retention_of_one_log_does_not_wait_for_another_that_fails() -> None:
    async def scenario(_: LogStore, disk: SimDisk) -> None:
        other = LogStore(disk, disk.clock, Random(1))
        await other.open(["/e", "/f"], "cluster", 1, lambda _: COMPACT)
        plain = config(segment_bytes=400, retention_ms=1000)
        logs = [make(other, topic, plain) for topic in ("one", "two")]
        for log in logs:
            fill(log)
        disk.faults = [Fault(EIO, ("rename",), suffix=".log", nth=1)]
        await asyncio.sleep(10)
        with recording() as events:
            assert await Upkeep(other).retain() > 0
        assert names(events).count("retention.failed") == 1
        assert names(events).count("log.segments_expired") == 1

    simulated(scenario)


def test_retention_lets_others_have_their_turn_and_minds_what_they_do() -> None:
    """Every removal waits for the disk: those of hundreds of logs in one go would stop the node for seconds."""

    async def scenario(store: LogStore, _: SimDisk) -> None:
        expiring = config(segment_bytes=400, retention_ms=1000)
        logs = {topic: make(store, topic, expiring) for topic in ("one", "two", "three")}
        for log in logs.values():
            fill(log)
        await asyncio.sleep(10)
        retaining = asyncio.create_task(Upkeep(store).retain())
        while logs["one"].state.log_start_offset == 0:
            await asyncio.sleep(0)
        assert logs["two"].state.log_start_offset == 0
        store.delete(("two", 0))
        assert await retaining > 0
        assert logs["two"].state.log_start_offset == 0
        assert logs["three"].state.log_start_offset > 0

    simulated(scenario)


def test_a_topic_keeps_to_its_limit_over_all_partitions() -> None:
    """X8, and an I/O error on the way takes the directory offline as everywhere."""
    limited = Config.of(
        {"internal.segment.bytes": "400", "ottla.topic.retention.bytes": "2000", "index.interval.bytes": "0"}
    )

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        logs = [store.create("topic", partition, bytes([1] * 16), limited) for partition in range(3)]
        for number in range(60):
            put(logs[number % 3], "k", "v", timestamp=NOW + number)
        for log in logs:
            log.state.advance_high_watermark(log.state.end_offset)
        total = sum(log.state.size for log in logs)
        upkeep = Upkeep(store)
        assert await upkeep.retain() > 0
        kept = sum(log.state.size for log in logs)
        assert kept <= 2000 < total
        assert kept > 2000 - 400
        starts = [log.state.log_start_offset for log in logs]
        assert max(starts) - min(starts) <= 5
        for number in range(60, 90):
            put(logs[number % 3], "k", "v", timestamp=NOW + number)
        for log in logs:
            log.state.advance_high_watermark(log.state.end_offset)
        disk.faults = [Fault(EIO, ("rename",), suffix=".log", nth=1)]
        await upkeep.retain()
        assert store.directories[0].failure is not None

    simulated(scenario)


def test_flush_ms_syncs_what_has_waited() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store, settings=config(flush_ms=1000))
        put(log, "k", "v")
        upkeep = Upkeep(store)
        await upkeep.flush()
        assert log.state.recovery_point == 0
        await asyncio.sleep(0.9)
        await upkeep.flush()
        assert log.state.recovery_point == 0
        await asyncio.sleep(0.2)
        await upkeep.flush()
        assert log.state.recovery_point == 1

    simulated(scenario)


def test_a_flush_that_fails_does_not_stop_the_others() -> None:
    async def scenario(_: LogStore, disk: SimDisk) -> None:
        store = LogStore(disk, disk.clock, Random(1))
        await store.open(["/e", "/f"], "cluster", 1, lambda _: COMPACT)
        logs = [make(store, topic, config(flush_ms=0)) for topic in ("one", "two")]
        for log in logs:
            put(log, "k", "v")
        disk.faults = [Fault(EIO, ("sync",), nth=1)]
        await Upkeep(store).flush()
        assert sorted(log.state.recovery_point for log in logs) == [0, 1]
        assert list(store.offline) == [("one", 0)]
        with pytest.raises(Refused):
            store.get("one", 0)

    simulated(scenario)
