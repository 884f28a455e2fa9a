"""Which records the cleaner keeps."""

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from storage_cleaner_samples import (
    COMPACT,
    cleaned,
    close_segment,
    end_txn,
    fill,
    folded,
    make,
    put,
    records,
    simulated,
    what,
)
from storage_samples import NOW, config, records_in

from ottla.config import Config
from ottla.core.log import files
from ottla.sim.machine.disk import SimDisk
from ottla.storage.store import LogStore


def test_of_each_key_the_newest_record_stays_at_its_offset() -> None:
    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store)
        fill(log)
        before, segments = folded(log), len(log.state.segments)
        done = await cleaned(log)
        assert (done.end_offset, done.records_kept, done.records_dropped) == (30, 4, 26)
        assert [record.offset for record in records(log)] == [26, 27, 28, 29]
        assert folded(log) == before
        assert log.directory.cleaner_offsets[log.key] == 30
        put(log, "k0", "newest")
        close_segment(log)
        await cleaned(log)
        assert len(log.state.segments) < segments / 2  # What is small by now is cleaned into one.

    simulated(scenario)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40), st.integers(1, 39))
def test_folding_the_cleaned_log_is_folding_the_original(writes: list[tuple[int, bool]], middle: int) -> None:
    """I20, also when it is cleaned twice, appended to in between, and opened again."""

    async def scenario(store: LogStore, _: SimDisk) -> None:
        log = make(store)
        for part in (writes[:middle], writes[middle:]):
            for key, tombstone in part:
                put(log, f"k{key}", None if tombstone else f"v{log.state.end_offset}")
            close_segment(log)
            before = folded(log)
            if what(log).dirty_bytes:
                await cleaned(log)
            assert folded(log) == before
            offsets = [record.offset for record in records(log)]
            for offset in range(log.state.log_start_offset, log.state.end_offset):
                found = records_in(log.read(offset, 1, log.state.end_offset))[0]
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
        assert log.state.producers.by_id[7].last_sequence == 1

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
        assert again.get("topic", 0).state.producers.by_id[7].last_sequence == 9

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
        last = log.state.segments[-2]
        modified = log.here.of(last).modified_ms()
        await cleaned(log)
        assert log.here.of(log.state.segments[0]).modified_ms() == modified
        assert disk.clock.wall_ms() > modified

    simulated(scenario)
