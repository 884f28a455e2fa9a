"""Cleaning in a thread while the loop appends, truncates and deletes; and what makes a node do it."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW, QuickDisk, batch, config, records_in

from ottla.config import Config
from ottla.core.log import files
from ottla.core.log.cleaning import Cleanable, cleanable
from ottla.core.log.producers import Origin
from ottla.kernel import ControlType, CorruptBatch, Record, build_end_txn_marker
from ottla.observe.trace import names, recording
from ottla.sim import loop as sim_loop
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.faults import EIO, Fault
from ottla.storage.cleaner import Cleaned, CleaningVoid, clean
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Refused

T = TypeVar("T")
COMPACT = config(cleanup_policy="compact", segment_bytes=400, min_cleanable_dirty_ratio=0.01)


class Held:
    """A disk whose threads wait until they are let go."""

    def __init__(self, disk: SimDisk) -> None:
        self.between: list[Callable[[], object]] = []
        self._in_thread = disk.in_thread
        disk.in_thread = self.in_thread  # type: ignore[method-assign]

    async def in_thread(self, work: Callable[[], T]) -> T:
        result = await self._in_thread(work)
        if self.between:
            self.between.pop(0)()
        return result


def simulated(scenario: Callable[[LogStore, SimDisk], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: sim_loop.SimLoop) -> None:
        disk = SimDisk(loop.clock, Random(1))
        store = LogStore(disk, loop.clock, Random(1))
        await store.open(["/d"], "cluster", 1, lambda _: COMPACT)
        await scenario(store, disk)

    sim_loop.run(main, 1)


def make(store: LogStore, topic: str = "topic", settings: Config = COMPACT) -> PartitionLog:
    return store.create(topic, 0, bytes([1] * 16), settings)


def put(log: PartitionLog, key: str, value: str | None, *, timestamp: int = NOW, **producer: Any) -> int:
    encoded = None if value is None else value.encode()
    data = batch(key=key.encode(), value=encoded, timestamp=timestamp, **producer)
    return log.append(bytearray(data), 0).first_offset


def end_txn(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    marker = build_end_txn_marker(kind, 0, timestamp=NOW, producer_id=producer_id, producer_epoch=0)
    log.append(bytearray(marker), 0, origin=Origin.COORDINATOR)


def close_segment(log: PartitionLog) -> None:
    log.roll()
    log.log.advance_high_watermark(log.log.end_offset)


def fill(log: PartitionLog, count: int = 30, keys: int = 4) -> None:
    for number in range(count):
        put(log, f"k{number % keys}", f"v{number}")
    close_segment(log)


def records(log: PartitionLog) -> list[Record]:
    found, offset, end = list[Record](), log.log.log_start_offset, log.log.end_offset
    while offset < end:
        batches, following = records_in(log.read(offset, 10_000, end))
        if following is None:
            break
        found += batches
        offset = following
    return found


def folded(log: PartitionLog) -> dict[bytes | None, bytes]:
    """What a reader from the start ends up with."""
    state: dict[bytes | None, bytes] = {}
    for record in records(log):
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def what(log: PartitionLog, now_ms: int = NOW) -> Cleanable:
    checkpoint = log.directory.cleaner_offsets.get(log.key)
    found = cleanable(
        log.log, checkpoint, now_ms, first_timestamp=log.first_timestamp, largest_timestamp=log.largest_timestamp
    )
    assert found is not None
    return found


async def cleaned(log: PartitionLog, now_ms: int = NOW) -> Cleaned:
    return await clean(log, what(log, now_ms), now_ms)


# What stays.


def test_of_each_key_the_newest_record_stays_at_its_offset() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store)
        fill(log)
        before, segments = folded(log), len(log.log.segments)
        done = await cleaned(log)
        assert (done.end_offset, done.records_kept, done.records_dropped) == (30, 4, 26)
        assert [record.offset for record in records(log)] == [26, 27, 28, 29]
        assert folded(log) == before
        assert log.directory.cleaner_offsets[log.key] == 30
        put(log, "k0", "newest")
        close_segment(log)
        await cleaned(log)
        assert len(log.log.segments) < segments / 2  # What is small by now is cleaned into one.

    simulated(scenario)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40), st.integers(1, 39))
def test_folding_the_cleaned_log_is_folding_the_original(writes: list[tuple[int, bool]], middle: int) -> None:
    """I20, also when it is cleaned twice, appended to in between, and opened again."""

    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store)
        for part in (writes[:middle], writes[middle:]):
            for key, tombstone in part:
                put(log, f"k{key}", None if tombstone else f"v{log.log.end_offset}")
            close_segment(log)
            before = folded(log)
            if what(log).dirty_bytes:
                await cleaned(log)
            assert folded(log) == before
            offsets = [record.offset for record in records(log)]
            for offset in range(log.log.log_start_offset, log.log.end_offset):
                found = records_in(log.read(offset, 1, log.log.end_offset))[0]
                following = [known for known in offsets if known >= offset]
                assert not following or any(record.offset == following[0] for record in found) or not found
        await store.close()

    simulated(scenario)


def test_a_tombstone_stays_for_delete_retention_and_goes_then() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store, settings=config(cleanup_policy="compact", delete_retention_ms=1000))
        put(log, "k", "v")
        put(log, "k", None)
        put(log, "other", "v")
        close_segment(log)
        await cleaned(log, NOW)
        assert [record.offset for record in records(log)] == [1, 2]
        for later, left in ((NOW + 999, [1, 2, 3]), (NOW + 1000, [2, 4])):
            put(log, "third", "v")
            close_segment(log)
            await cleaned(log, later)
            assert [record.offset for record in records(log)] == left

    simulated(scenario)


def test_aborted_data_goes_and_its_marker_outlives_it() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store, settings=config(cleanup_policy="compact", delete_retention_ms=1000))
        put(log, "k", "kept")
        put(log, "k", "aborted", producer_id=7, sequence=0, transactional=True)
        put(log, "j", "aborted", producer_id=7, sequence=1, transactional=True)
        end_txn(log, 7, commit=False)
        put(log, "other", "v")
        close_segment(log)
        await cleaned(log, NOW)
        assert [record.offset for record in records(log)] == [0, 4]
        assert folded(log)[b"k"] == b"kept"
        assert [txn[:3] for txn in log.aborted_transactions(0, 5)] == [(7, 1, 3)]
        assert log.log.producers.by_id[7].last_sequence == 1

    simulated(scenario)


def test_producers_are_known_after_cleaning_and_a_restart() -> None:
    """The last batch of a producer stays, if need be without records: it carries the sequence."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        for sequence in range(10):
            put(log, "k", f"{sequence}", producer_id=7, sequence=sequence)
        put(log, "k", "newest")
        close_segment(log)
        await cleaned(log)
        assert [record.offset for record in records(log)] == [10]
        log.flush()
        store.checkpoint()
        store.directories[0].close(clean=False)
        again = LogStore(disk.after_kill(), disk.clock, Random(1))
        for name in again.disk.list("/d/topic-0"):
            if name.endswith(files.SNAPSHOT):
                again.disk.remove(f"/d/topic-0/{name}")
        await again.open(["/d"], "cluster", 1, lambda _: COMPACT)
        assert again.get("topic", 0).log.producers.by_id[7].last_sequence == 9

    simulated(scenario)


def test_keys_beyond_the_memory_wait_for_the_next_round() -> None:
    tight = Config.of(
        {"cleanup.policy": "compact", "internal.segment.bytes": "400", "index.interval.bytes": "0"},
        broker={"log.cleaner.dedupe.buffer.size": str(24 * 10), "log.cleaner.io.buffer.load.factor": "0.9"},
    )

    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store, settings=tight)
        fill(log, 40, keys=20)
        before, rounds = folded(log), 0
        while what(log).first_dirty_offset < 40:
            assert (await cleaned(log)).end_offset > rounds
            assert folded(log) == before
            rounds += 1
        assert rounds > 2
        assert len(records(log)) == 20

    simulated(scenario)


def test_a_cleaned_segment_keeps_the_time_of_its_file() -> None:
    """Retention of what has no timestamps goes by it (`compact,delete`)."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        fill(log)
        await asyncio.sleep(1000)
        last = log.log.segments[-2]
        modified = log.here.of(last).modified_ms()
        await cleaned(log)
        assert log.here.of(log.log.segments[0]).modified_ms() == modified
        assert disk.clock.wall_ms() > modified

    simulated(scenario)


# Meanwhile.


def test_appends_and_reads_go_on_while_it_is_cleaned(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LogStore(QuickDisk(), SimClock(), Random(1))
        await store.open([str(tmp_path)], "cluster", 1, lambda _: COMPACT)
        log = make(store)
        fill(log, 300)
        held = log.read(0, 1000, 300)
        task, appended = asyncio.create_task(cleaned(log)), 0
        while not task.done():
            put(log, f"k{appended % 4}", f"new {appended}")
            appended += 1
            assert records_in(log.read(log.log.end_offset - 1, 1000, log.log.end_offset))[0]
            await asyncio.sleep(0)
        assert (await task).end_offset == 300
        assert appended > 0
        assert log.log.end_offset == 300 + appended
        assert len(records(log)) == 4 + appended
        assert records_in(held)[0][0].offset == 0  # The old bytes are there until file.delete.delay.ms has passed.
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("change", ["truncate", "restart", "retain", "delete"])
def test_work_on_a_log_that_was_changed_meanwhile_is_thrown_away(change: str, after: int) -> None:
    """Put in place, it would bring back what was truncated, or fail and take a healthy directory offline."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        fill(log)

        def retain() -> None:
            log.delete_records(log.log.segments[1].base_offset)
            log.retain(NOW)

        changes: dict[str, Callable[[], object]] = {
            "truncate": lambda: log.truncate(7),
            "restart": lambda: log.restart(100),
            "retain": retain,
            "delete": lambda: store.delete(("topic", 0)),
        }
        held, cleanable = Held(disk), what(log)
        held.between = [lambda: None] * after + [changes[change]]
        try:
            await clean(log, cleanable, NOW)
            assert change == "retain"
        except CleaningVoid:
            pass
        assert store.directories[0].failure is None
        assert not any(files.SWAP in path for path in disk.contents() if "-delete" not in path)
        if change == "truncate":
            assert log.log.end_offset == 7
            put(log, "new", "new")
            assert records(log)[-1].key == b"new"
        if change == "delete":
            left = store.directories[0].left(("topic", 0))
            assert (left.recovery_point, left.cleaned_up_to) == (0, 0)
            assert make(store).log.end_offset == 0

    simulated(scenario)


SLOW = Config.of(
    {
        "cleanup.policy": "compact,delete",
        "internal.segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
        "index.interval.bytes": "0",
        "retention.ms": str(10**12),
    },
    broker={"log.cleaner.dedupe.buffer.size": "100000", "log.cleaner.io.max.bytes.per.second": "1000"},
)


@pytest.mark.parametrize("taken", [1, 2, 6])
def test_retention_may_take_segments_while_the_cleaner_rests_or_works(taken: int) -> None:
    """A file that is gone was taken for a failure of the disk, and the node went offline for good. Seen with a topic
    that is both compacted and deleted, and a cleaner that keeps to `log.cleaner.io.max.bytes.per.second`."""

    async def scenario(wait_ms: int, store: LogStore, _: SimDisk) -> None:
        log = make(store, settings=SLOW)
        for number in range(30):
            put(log, f"k{number}", f"v{number}")  # All keys differ: no group becomes smaller, so there are many.
        close_segment(log)
        assert len(log.log.segments) == 7
        first_kept = log.log.segments[taken].base_offset
        cleaning = asyncio.create_task(cleaned(log))
        await asyncio.sleep(wait_ms / 1000)
        log.delete_records(first_kept)
        log.retain(NOW)
        with suppress(CleaningVoid):
            await cleaning
        assert store.directories[0].failure is None
        assert [record.offset for record in records(log)] == list(range(first_kept, 30))
        assert not any(name.endswith((files.CLEANED, files.SWAP)) for name in store.disk.list(log.here.path))

    for wait_ms in range(0, 4000, 130):
        simulated(partial(scenario, wait_ms))


@pytest.mark.parametrize("after", range(12))
def test_a_topic_that_is_made_again_gets_nothing_from_the_cleaner_of_the_old_one(after: int) -> None:
    """Its thread writes where the old topic was. A crash right then must not swap old records into the new topic."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        fill(log)
        found = list[SimDisk]()

        def make_again() -> None:
            store.delete(("topic", 0))
            again = make(store)
            put(again, "new", "new")

        held, candidate = Held(disk), what(log)
        held.between = [lambda: None] * after + [make_again, *[lambda: found.append(disk.copy().after_kill())] * 9]
        with suppress(CleaningVoid):
            await clean(log, candidate, NOW)
        if held.between and len(held.between) > 9:
            return  # It was done before.
        found.append(disk.copy().after_kill())
        for crashed in found:
            other = LogStore(crashed, disk.clock, Random(1))
            await other.open(["/d"], "cluster", 1, lambda _: COMPACT)
            assert [record.key for record in records(other.get("topic", 0))] == [b"new"]

    simulated(scenario)


def test_a_swap_without_descriptors_leaves_the_log_as_it_was() -> None:
    """The originals are out of use, and the directory has to be synced before the new one takes their place."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        for nth in range(1, 60):
            log = make(store, f"topic-{nth}")
            fill(log, 12)
            before = folded(log)
            disk.faults = [Fault(errno.EMFILE, ("open", "sync_directory", "list", "scan"), nth=nth)]
            with suppress(Refused):
                await cleaned(log)
            disk.faults = []
            assert store.directories[0].failure is None
            assert folded(log) == before
            put(log, "k0", "newest")
            close_segment(log)
            await cleaned(log)
            assert folded(log) == before | {b"k0": b"newest"}
            assert not any(files.SWAP in path or files.CLEANED in path for path in disk.contents())

    simulated(scenario)


def test_a_log_is_closed_without_what_a_cleaner_was_about_to_swap_in() -> None:
    """The next open swapped it in, found other segments than the close had summarized, and refused the log."""

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        fill(log)
        before = folded(log)
        cleaning = asyncio.ensure_future(cleaned(log))
        while not any(path.endswith(files.SWAP) for path in disk.contents()):
            await asyncio.sleep(0.001)
        cleaning.cancel()
        await store.close()
        again = LogStore(disk.after_kill().after_power_loss(Random(1)), disk.clock, Random(1))
        await again.open(["/d"], "cluster", 1, lambda _: COMPACT)
        assert again.offline == {}
        assert folded(again.get("topic", 0)) == before

    simulated(scenario)


def test_a_summary_does_not_bound_the_times_of_what_grew_and_was_cleaned_since() -> None:
    """The cleaner put the segment that was active at the clean close, and had grown, into one with an older one. After
    a crash the next close took the older one's largest time for that of both."""

    async def opened(disk: SimDisk) -> tuple[LogStore, PartitionLog]:
        store = LogStore(disk, disk.clock, Random(1))
        await store.open(["/d"], "cluster", 1, lambda _: COMPACT)
        return store, store.get("topic", 0)

    async def scenario(store: LogStore, disk: SimDisk) -> None:
        log = make(store)
        put(log, "a", "1")
        log.roll()
        put(log, "b", "2")
        await store.close()
        store, log = await opened(disk.after_kill())
        newest = put(log, "c", "3", timestamp=NOW + 5_000)
        log.roll()
        put(log, "d", "4")
        log.log.advance_high_watermark(log.log.end_offset)
        await cleaned(log)
        assert [segment.base_offset for segment in log.log.segments] == [0, newest + 1]
        store, log = await opened(store.disk.after_kill())  # type: ignore[attr-defined]
        await store.close()
        _, log = await opened(store.disk.after_kill())  # type: ignore[attr-defined]
        found = log.find_time(NOW + 5_000)
        assert found is not None
        assert found.offset == newest

    simulated(scenario)


# A node's upkeep.


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
        while logs["one"].log.log_start_offset == 0:
            await asyncio.sleep(0)
        assert logs["two"].log.log_start_offset == 0
        store.delete(("two", 0))
        assert await retaining > 0
        assert logs["two"].log.log_start_offset == 0
        assert logs["three"].log.log_start_offset > 0

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
            log.log.advance_high_watermark(log.log.end_offset)
        total = sum(log.log.size for log in logs)
        upkeep = Upkeep(store)
        assert await upkeep.retain() > 0
        kept = sum(log.log.size for log in logs)
        assert kept <= 2000 < total
        assert kept > 2000 - 400
        starts = [log.log.log_start_offset for log in logs]
        assert max(starts) - min(starts) <= 5
        for number in range(60, 90):
            put(logs[number % 3], "k", "v", timestamp=NOW + number)
        for log in logs:
            log.log.advance_high_watermark(log.log.end_offset)
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
        assert log.log.recovery_point == 0
        await asyncio.sleep(0.9)
        await upkeep.flush()
        assert log.log.recovery_point == 0
        await asyncio.sleep(0.2)
        await upkeep.flush()
        assert log.log.recovery_point == 1

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
        assert sorted(log.log.recovery_point for log in logs) == [0, 1]
        assert list(store.offline) == [("one", 0)]
        with pytest.raises(Refused):
            store.get("one", 0)

    simulated(scenario)
