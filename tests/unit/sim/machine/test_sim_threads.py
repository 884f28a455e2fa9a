"""Work in threads under simulation: interleaved with the loop, in the order that the seed gives."""

import asyncio
import threading
from contextvars import ContextVar
from random import Random

import pytest

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, EMFILE, Fault, PowerLoss
from ottla.sim.machine.loop import SimLoop, run

STEPS = 20


def disk_for(loop: SimLoop, seed: int) -> SimDisk:
    disk = SimDisk(loop.clock, Random(seed))
    disk.interleaving = 1.0
    disk.make_directory("/d")
    return disk


def order_of(seed: int) -> str:
    """Which of a thread and the loop did something, one after the other."""
    done = list[str]()

    async def main(loop: SimLoop) -> None:
        disk = disk_for(loop, seed)

        def work() -> str:
            for number in range(STEPS):
                disk.exists(f"/d/{number}")
                done.append("t")
            return threading.current_thread().name

        task = asyncio.ensure_future(disk.in_thread(work))
        while not task.done():
            done.append("l")
            await asyncio.sleep(0.005)
        assert await task != threading.current_thread().name

    run(main, seed)
    return "".join(done)


def test_a_thread_and_the_loop_take_turns() -> None:
    """In one go it could never meet what the loop does in between."""
    order = order_of(1)
    assert order.count("t") == STEPS
    assert order.strip("l").count("tl") > 3


def test_a_seed_gives_one_order() -> None:
    orders = {seed: order_of(seed) for seed in range(5)}
    assert {seed: order_of(seed) for seed in range(5)} == orders
    assert len(set(orders.values())) > 1


def test_a_thread_hands_work_to_the_loop() -> None:
    """It belongs to the process whose thread it is: with that process it ends."""
    name: ContextVar[str] = ContextVar("name")

    async def main(loop: SimLoop) -> None:
        disk, done = disk_for(loop, 1), loop.create_future()
        name.set("node")
        await disk.in_thread(lambda: loop.call_soon_threadsafe(lambda: done.set_result(name.get())))
        assert await done == "node"

    run(main, 1)


def test_errors_come_back_and_a_power_loss_stops_a_thread() -> None:
    async def main(loop: SimLoop) -> None:
        disk = disk_for(loop, 1)
        disk.faults.append(Fault(EIO, operations=("exists",), nth=3))
        with pytest.raises(OSError, match="Input/output"):
            await disk.in_thread(lambda: [disk.exists("/d") for _ in range(9)])
        disk.crash_at(disk.step + 3)
        with pytest.raises(PowerLoss):
            await disk.in_thread(lambda: [disk.exists("/d") for _ in range(9)])

    run(main, 1)


def test_a_thread_goes_on_when_nobody_waits_for_it() -> None:
    """As after a task was cancelled: its thread is not."""

    async def main(loop: SimLoop) -> None:
        disk = disk_for(loop, 1)
        done = list[bool]()
        task = loop.create_task(disk.in_thread(lambda: done.extend(disk.exists("/d") for _ in range(9))))
        while not done and not loop.workers:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(10)
        assert len(done) == 9
        assert not loop.workers

    run(main, 1)


def test_the_loop_has_the_holder_of_a_mutex_go_on() -> None:
    """It would wait for ever, for a thread that runs only when the loop tells it to."""

    async def main(loop: SimLoop) -> None:
        disk = disk_for(loop, 1)
        mutex, seen = disk.mutex(), list[str]()

        def work(name: str) -> None:
            with mutex:
                seen.append(f"{name} in")
                for _ in range(9):
                    disk.exists("/d")
                seen.append(f"{name} out")

        tasks = [asyncio.ensure_future(disk.in_thread(lambda name=name: work(name))) for name in ("a", "b")]
        while not seen:
            await asyncio.sleep(0.001)
        with mutex:
            seen.append("loop in")
            seen.append("loop out")
        await asyncio.gather(*tasks)
        assert len(seen) == 6
        for entered, left in zip(seen[::2], seen[1::2], strict=True):
            assert entered.split()[0] == left.split()[0], seen

    run(main, 1)


def test_no_thread_outlives_its_run() -> None:
    before = threading.active_count()

    async def main(loop: SimLoop) -> None:
        disk = disk_for(loop, 1)
        _task = loop.create_task(disk.in_thread(lambda: [disk.exists("/d") for _ in range(10**6)]))
        while not loop.workers:
            await asyncio.sleep(0.01)

    run(main, 1)
    assert threading.active_count() == before


def test_too_few_descriptors_strike_what_needs_one() -> None:
    disk = SimDisk(SimClock(), Random(1))
    disk.make_directory("/d")
    file = disk.open("/d/file", create=True)
    disk.faults.append(Fault(EMFILE, rate=1.0))
    file.write(0, [b"x"])
    file.sync()
    disk.rename("/d/file", "/d/other")
    for operation in (lambda: disk.open("/d/other"), lambda: disk.sync_directory("/d"), lambda: disk.scan("/d")):
        with pytest.raises(OSError, match="open files"):
            operation()


def test_a_twin_that_lost_power_has_what_was_synced_and_the_disk_goes_on() -> None:
    disk = SimDisk(SimClock(), Random(1))
    disk.make_directory("/d")
    file = disk.open("/d/file", create=True)
    file.write(0, [b"synced"])
    file.sync()
    disk.sync_directory("/d")
    disk.sync_directory("/")
    file.write(6, [b" and not"])
    found = {bytes(disk.if_power_went(Random(seed)).contents()["/d/file"] or b"") for seed in range(30)}
    assert all(contents.startswith(b"synced") for contents in found)
    assert len(found) > 1
    assert disk.contents()["/d/file"] == b"synced and not"
    file.write(14, [b" yet"])
