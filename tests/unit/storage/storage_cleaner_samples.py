"""A compacted log on a simulated disk, for tests of the cleaner and of upkeep."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from storage_samples import NOW, batch, config, records_in

from ottla.config import Config
from ottla.core.log.cleaning import Cleanable, cleanable
from ottla.core.log.producers import AppendOrigin
from ottla.kernel import ControlType, Record, build_end_txn_marker
from ottla.sim.machine import loop as sim_loop
from ottla.sim.machine.disk import SimDisk
from ottla.storage.cleaner import Cleaned, clean
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore

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
    log.append(bytearray(marker), 0, origin=AppendOrigin.COORDINATOR)


def close_segment(log: PartitionLog) -> None:
    log.roll()
    log.state.advance_high_watermark(log.state.end_offset)


def fill(log: PartitionLog, count: int = 30, keys: int = 4) -> None:
    for number in range(count):
        put(log, f"k{number % keys}", f"v{number}")
    close_segment(log)


def records(log: PartitionLog) -> list[Record]:
    found, offset, end = list[Record](), log.state.log_start_offset, log.state.end_offset
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
        log.state, checkpoint, now_ms, first_timestamp=log.first_timestamp, largest_timestamp=log.largest_timestamp
    )
    assert found is not None
    return found


async def cleaned(log: PartitionLog, now_ms: int = NOW) -> Cleaned:
    return await clean(log, what(log, now_ms), now_ms)
