"""All the logs of a node over several directories: placement, failure, deletion, restart."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from storage_samples import QuickDisk, batch, config

from ottla.config import Config
from ottla.core.log import files
from ottla.core.log.files import parse_directory
from ottla.io.ports import Disk
from ottla.observe.trace import Event, names, recording
from ottla.sim.machine import loop as sim_loop
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, Fault
from ottla.storage.log_directory import DirectoryInUse, WrongDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore, NewLog
from ottla.wire.errors import Error, Refused

SETTINGS = config(segment_bytes=300)
Script = Callable[[], Coroutine[Any, Any, None]]


async def opened(paths: list[str], disk: Disk | None = None, clock: SimClock | None = None) -> LogStore:
    store = LogStore(disk or QuickDisk(), clock or SimClock(), Random(1))
    await store.open(paths, "cluster", 1, lambda _: SETTINGS)
    return store


def make(
    store: LogStore, topic: str, partition: int = 0, *, records: int = 0, settings: Config = SETTINGS
) -> PartitionLog:
    log = store.create(topic, partition, bytes([1] * 16), settings)
    for _ in range(records):
        log.append(bytearray(batch()), 0)
    return log


def formatted(path: Path) -> None:
    (path / files.META_PROPERTIES).write_bytes(b"version=1\nnode.id=1\ncluster.id=cluster\n")


def where(store: LogStore) -> dict[str, str]:
    return {log.name: log.directory.path.rpartition("/")[2] for log in store.logs.values()}


def refusal(call: Callable[..., object], *arguments: object) -> Error:
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return refused.value.error


def simulated(scenario: Callable[[SimDisk], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: sim_loop.SimLoop) -> None:
        await scenario(SimDisk(loop.clock, Random(1)))

    sim_loop.run(main, 1)


def test_logs_are_found_again_after_a_clean_close(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]

    async def scenario() -> None:
        store = await opened(paths)
        for partition in range(4):
            make(store, "topic", partition, records=partition)
        placed = where(store)
        await store.close()
        with recording() as events:
            store = await opened(paths)
        assert where(store) == placed
        assert [store.get("topic", partition).state.end_offset for partition in range(4)] == [0, 1, 2, 3]
        left = [event.fields["left"] for event in events if event.name == "directory.opened"]
        assert left == ["cleanly", "cleanly"]
        assert not any(event.warning for event in events)
        assert store.get("topic", 1).topic_id == bytes([1] * 16)
        await store.close()

    asyncio.run(scenario())


def test_a_new_log_goes_where_the_fewest_bytes_are(tmp_path: Path) -> None:
    """X9: counted by logs, a new disk would get its share only after years."""

    async def scenario() -> None:
        store = await opened([str(tmp_path / name) for name in "abc"])
        make(store, "large", records=20)
        make(store, "small", records=1)
        make(store, "none")
        assert where(store) == {"large-0": "a", "small-0": "b", "none-0": "c"}
        make(store, "next")
        make(store, "more", records=5)
        make(store, "last")
        assert [where(store)[name] for name in ("next-0", "more-0", "last-0")] == ["c", "c", "b"]
        await store.close()

    asyncio.run(scenario())


def test_names_that_are_taken_or_unknown_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        make(store, "topic")
        assert refusal(make, store, "topic") is Error.TOPIC_ALREADY_EXISTS
        assert refusal(store.get, "topic", 1) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert refusal(store.delete, ("topic", 1)) is Error.UNKNOWN_TOPIC_OR_PARTITION
        await store.close()

    asyncio.run(scenario())


def test_a_deleted_topic_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    """So it can be made again at once, and readers that are still at it can end."""

    async def scenario() -> None:
        clock = SimClock()
        store = await opened([str(tmp_path)], clock=clock)
        old = make(store, "topic", records=5)
        old.state.advance_high_watermark(5)
        store.checkpoint()
        held = old.read(0, 1000, 5)
        expected = held.read()
        store.delete(("topic", 0))
        (doomed,) = [path.name for path in tmp_path.iterdir() if (p := parse_directory(path.name)) and p.fate]
        assert refusal(store.get, "topic", 0) is Error.UNKNOWN_TOPIC_OR_PARTITION
        new = make(store, "topic", records=1)
        assert (new.state.end_offset, new.state.log_start_offset, new.state.high_watermark) == (1, 0, 0)
        assert len(expected) > 0
        await store.purge(clock.wall_ms() + 59_999)
        assert (tmp_path / doomed).exists()
        await store.purge(clock.wall_ms() + 60_000)
        assert not (tmp_path / doomed).exists()
        assert new.state.end_offset == 1
        await store.close()

    asyncio.run(scenario())


def held_open(directory: Path) -> list[str]:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sorted(Path(one).name for one in targets if one.startswith(f"{directory}/topic-"))


def test_logs_that_nobody_uses_hold_no_files_open(tmp_path: Path) -> None:
    """Ten thousand partitions would otherwise need more files than a process may have open."""
    log, index = "00000000000000000000.log", "00000000000000000000.index"

    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        new = make(store, "topic")
        assert held_open(tmp_path) == []
        new.append(bytearray(batch()), 0)
        assert held_open(tmp_path) == [log]
        await store.close()
        store = await opened([str(tmp_path)])
        assert held_open(tmp_path) == []
        store.get("topic", 0).append(bytearray(batch()), 0)
        for directory in store.directories:
            directory.close(clean=False)
        store.get("topic", 0).here.close()
        store = await opened([str(tmp_path)])
        assert log in held_open(tmp_path), "what may not be synced stays open, or a failed write would go unnoticed"
        assert index not in held_open(tmp_path)
        await store.close()

    asyncio.run(scenario())


class SyncCounting(QuickDisk):
    syncs = 0

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        super().sync_directory(path)


def test_deleting_many_costs_as_many_syncs_as_deleting_one(tmp_path: Path) -> None:
    """Otherwise a topic with a thousand partitions holds everybody up for seconds."""

    async def syncs(partitions: int) -> int:
        disk = SyncCounting()
        store = await opened([str(tmp_path / str(partitions))], disk)
        for partition in range(partitions):
            make(store, "topic", partition, records=1).state.advance_high_watermark(1)
        make(store, "other", records=1).state.advance_high_watermark(1)
        store.checkpoint()
        disk.syncs = 0
        store.delete(*(("topic", partition) for partition in range(partitions)))
        spent = disk.syncs
        assert list(store.logs) == list(store.directories[0].high_watermarks) == [("other", 0)]
        await store.close()
        return spent

    assert asyncio.run(syncs(20)) == asyncio.run(syncs(1)) > 0


def test_deleting_in_parts_costs_the_syncs_of_one(tmp_path: Path) -> None:
    """Four thousand topics took a minute: the checkpoints of all partitions were written again for each."""

    async def syncs(partitions: int) -> int:
        disk = SyncCounting()
        store = await opened([str(tmp_path / str(partitions))], disk)
        for partition in range(partitions):
            make(store, f"topic{partition}", records=1).state.advance_high_watermark(1)
        make(store, "other", records=1).state.advance_high_watermark(1)
        store.checkpoint()
        disk.syncs = 0
        for partition in range(partitions):
            await store.delete_some([(f"topic{partition}", 0)])
            assert (f"topic{partition}", 0) not in store.logs
        assert disk.syncs == 0
        await store.end_delete()
        spent = disk.syncs
        assert list(store.logs) == list(store.directories[0].high_watermarks) == [("other", 0)]
        await store.end_delete()
        assert disk.syncs == spent, "there is nothing left to do"
        for directory in store.directories:
            directory.close(clean=False)
        store = await opened([str(tmp_path / str(partitions))], disk)
        assert list(store.directories[0].high_watermarks) == [("other", 0)], "it is written down"
        assert list(store.logs) == [("other", 0)]
        await store.close()
        return spent

    assert asyncio.run(syncs(20)) == asyncio.run(syncs(1)) > 0


def test_logs_that_are_made_together_are_spread_as_if_one_by_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        paths = [str(tmp_path / name) for name in "abc"]
        store = await opened(paths)
        make(store, "there")
        wanted = [NewLog("topic", partition, bytes(16), Config.of()) for partition in range(8)]
        made = await store.create_some([*wanted, NewLog("there", 0, bytes(16), Config.of())])
        assert isinstance(made[-1], Refused)
        assert made[-1].error is Error.TOPIC_ALREADY_EXISTS
        assert [log.key for log in made[:-1] if isinstance(log, PartitionLog)] == [("topic", n) for n in range(8)]
        assert all(store.logs[log.key] is log for log in made if isinstance(log, PartitionLog))
        assert sorted(where(store).values()) == [*"aaa", *"bbb", *"ccc"]
        await store.close()
        store = await opened(paths)
        assert len(store.logs) == 9
        await store.close()

    asyncio.run(scenario())


def test_what_was_deleted_before_a_crash_is_removed_at_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        make(store, "topic", records=5)
        store.delete(("topic", 0))
        for directory in store.directories:
            directory.close(clean=False)
        store = await opened([str(tmp_path)])
        assert store.logs == {}
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]
        await store.close()

    asyncio.run(scenario())


def test_a_new_log_inherits_nothing_from_one_whose_removal_a_crash_cut_short(tmp_path: Path) -> None:
    """It would begin at the log start of the earlier topic, or count as synced up to its end (KAFKA-12257)."""

    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        old = make(store, "topic", records=9)
        old.state.advance_high_watermark(old.state.end_offset)
        old.delete_records(5)
        store.checkpoint()
        for directory in store.directories:
            directory.close(clean=False)
        os.rename(tmp_path / "topic-0", tmp_path / f"topic-0.{'0' * 32}-delete")
        store = await opened([str(tmp_path)])
        log = make(store, "topic").state
        assert (log.log_start_offset, log.recovery_point, log.end_offset) == (0, 0, 0)
        assert ("topic", 0) not in store.directories[0].log_starts
        await store.close()

    asyncio.run(scenario())


def test_the_same_partition_twice_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        paths = [str(tmp_path / name) for name in "ab"]
        for path in paths:
            (Path(path) / "topic-0").mkdir(parents=True)
            formatted(Path(path))
        with pytest.raises(WrongDirectory, match="move one of them away"):
            await opened(paths)

    asyncio.run(scenario())


def test_a_directory_in_use_or_of_another_node_stops_the_start(tmp_path: Path) -> None:
    """These are mistakes of configuration, not faults of a disk: going on without would hide replicas."""

    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        with pytest.raises(DirectoryInUse):
            await opened([str(tmp_path)])
        await store.close()
        other = LogStore(QuickDisk(), SimClock(), Random(1))
        with pytest.raises(WrongDirectory):
            await other.open([str(tmp_path)], "cluster", 2, lambda _: SETTINGS)

    asyncio.run(scenario())


# Failing directories.


def test_a_directory_that_fails_takes_its_logs_offline_and_nothing_else() -> None:
    async def scenario(disk: SimDisk) -> None:
        store = await opened(["/a", "/b"], disk)
        for partition in range(4):
            make(store, "topic", partition, records=1)
        on_a = [log for log in store.logs.values() if log.directory.path == "/a"]
        on_b = [log for log in store.logs.values() if log.directory.path == "/b"]
        assert on_a
        assert on_b
        disk.faults = [Fault(EIO, ("write",), suffix=f"/a/{on_a[0].name}/{files.file_name(0, files.LOG)}", rate=1.0)]
        assert refusal(on_a[0].append, bytearray(batch()), 0) is Error.KAFKA_STORAGE_ERROR
        for log in on_a:
            assert refusal(store.get, *log.key) is Error.KAFKA_STORAGE_ERROR
            assert "/a" in store.offline[log.key]
            assert refusal(make, store, *log.key) is Error.KAFKA_STORAGE_ERROR
        for log in on_b:
            assert store.get(*log.key).append(bytearray(batch()), 0).first_offset == 1
        assert make(store, "new").directory.path == "/b"
        await store.close()
        assert not disk.exists(f"/a/{files.CLEAN_SHUTDOWN}")
        assert disk.exists(f"/b/{files.CLEAN_SHUTDOWN}")

    simulated(scenario)


def test_a_directory_that_is_gone_is_not_made_again_for_a_new_log(tmp_path: Path) -> None:
    """It may be a disk that is not mounted any more: what goes to its place is lost when it is back."""

    async def scenario() -> None:
        path = tmp_path / "data"
        store = await opened([str(path)])
        shutil.rmtree(path)
        assert refusal(make, store, "new") is Error.KAFKA_STORAGE_ERROR
        assert not path.exists()
        assert store.directories[0].failure is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["lock", "list", "scan", "read", "make_directory"])
def test_a_directory_that_cannot_be_opened_is_left_out(operation: str) -> None:
    async def scenario(disk: SimDisk) -> None:
        store = await opened(["/a", "/b"], disk)
        make(store, "one", records=3)
        make(store, "two", records=3)
        await store.close()
        disk.faults = [FaultBelow(EIO, (operation,), suffix="/a", rate=1.0)]
        with recording() as events:
            store = await opened(["/a", "/b"], disk)
        assert [log.directory.path for log in store.logs.values()] == ["/b"]
        assert {"directory.offline", "log.offline"} & set(names(events))
        await store.close()

    simulated(scenario)


class FaultBelow(Fault):
    """Strikes everything in a directory."""

    __slots__ = ()

    def strikes(self, operation: str, path: str, random: Random) -> bool:
        below = path == self.suffix or path.startswith(self.suffix + "/")
        return below and Fault(self.error, self.operations, rate=self.rate).strikes(operation, path, random)


def test_without_any_directory_there_is_no_node() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.faults = [Fault(EIO, ("lock",), rate=1.0)]
        with pytest.raises(Refused, match=r"log\.dirs"):
            await opened(["/a", "/b"], disk)

    simulated(scenario)


def test_when_every_directory_is_offline_nothing_can_be_made() -> None:
    async def scenario(disk: SimDisk) -> None:
        store = await opened(["/a"], disk)
        store.directories[0].fail(OSError("broken"), "test")
        assert refusal(make, store, "topic") is Error.KAFKA_STORAGE_ERROR

    simulated(scenario)


def test_a_damaged_log_is_offline_by_itself_and_its_directory_never_counts_as_clean(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        make(store, "bad", records=2)
        make(store, "good", records=2)
        await store.close()
        (tmp_path / "bad-0" / files.PARTITION_METADATA).write_bytes(b"junk")
        for _ in range(2):
            store = await opened([str(tmp_path)])
            assert refusal(store.get, "bad", 0) is Error.KAFKA_STORAGE_ERROR
            assert store.get("good", 0).state.end_offset == 2
            await store.close()
            assert not (tmp_path / files.CLEAN_SHUTDOWN).exists()

    asyncio.run(scenario())


def test_strangers_in_a_directory_are_left_alone(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "lost+found", "topic-0.0123456789abcdef0123456789abcdef-future"):
        (tmp_path / name).mkdir()
    formatted(tmp_path)

    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        assert store.logs == {}
        await store.close()

    asyncio.run(scenario())
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3


class UnremovableDirectories(QuickDisk):
    def remove_directory(self, path: str) -> None:
        raise OSError(errno.EBUSY, "busy", path)


def test_a_directory_that_cannot_be_purged_is_said_and_kept(tmp_path: Path) -> None:
    async def scenario() -> list[Event]:
        store = await opened([str(tmp_path)], UnremovableDirectories())
        make(store, "topic")
        store.delete(("topic", 0))
        with recording() as events:
            await store.purge(10**15)
        return events

    assert "directory.not_removed" in names(asyncio.run(scenario()))


def test_what_recovery_has_set_aside_goes_with_its_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened([str(tmp_path)])
        make(store, "topic")
        aside = tmp_path / "topic-0" / f"{files.SET_ASIDE}-20330518T033320Z-1"
        aside.mkdir()
        (aside / files.file_name(7, files.LOG)).write_bytes(b"kept")
        store.delete(("topic", 0))
        await store.purge(10**15)

    asyncio.run(scenario())
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
