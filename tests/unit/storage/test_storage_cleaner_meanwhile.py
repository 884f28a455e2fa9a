"""Cleaning in a thread while the loop appends, truncates and deletes."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from storage_cleaner_samples import (
    COMPACT,
    Held,
    cleaned,
    close_segment,
    fill,
    folded,
    make,
    put,
    records,
    simulated,
    what,
)
from storage_samples import NOW, QuickDisk, records_in

from ottla.config import Config
from ottla.core.log import files
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import Fault
from ottla.storage.cleaner import CleaningVoid, clean
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore
from ottla.wire.errors import Refused


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
            assert records_in(log.read(log.state.end_offset - 1, 1000, log.state.end_offset))[0]
            await asyncio.sleep(0)
        assert (await task).end_offset == 300
        assert appended > 0
        assert log.state.end_offset == 300 + appended
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
            log.delete_records(log.state.segments[1].base_offset)
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
            assert log.state.end_offset == 7
            put(log, "new", "new")
            assert records(log)[-1].key == b"new"
        if change == "delete":
            left = store.directories[0].left(("topic", 0))
            assert (left.recovery_point, left.cleaned_up_to) == (0, 0)
            assert make(store).state.end_offset == 0

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
        assert len(log.state.segments) == 7
        first_kept = log.state.segments[taken].base_offset
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
        log.state.advance_high_watermark(log.state.end_offset)
        await cleaned(log)
        assert [segment.base_offset for segment in log.state.segments] == [0, newest + 1]
        store, log = await opened(store.disk.after_kill())  # type: ignore[attr-defined]
        await store.close()
        _, log = await opened(store.disk.after_kill())  # type: ignore[attr-defined]
        found = log.find_time(NOW + 5_000)
        assert found is not None
        assert found.offset == newest

    simulated(scenario)
