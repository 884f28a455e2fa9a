"""The simulated disk without power loss: faults, steps, locks, threads."""

import asyncio
import errno
from collections.abc import Sequence
from random import Random

import pytest

from ottla.io.ports import Disk, File
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, ENOSPC, Fault, PowerLoss
from ottla.sim.machine.loop import SimLoop, run


def make_disk(faults: Sequence[Fault] = (), seed: int = 0) -> SimDisk:
    disk = SimDisk(SimClock(), Random(seed), faults)
    disk.make_directory("/d")
    return disk


def test_it_is_the_port():
    disk: Disk = make_disk()
    file: File = disk.open("/d/f", create=True)
    assert file.write(2, [b"ab", memoryview(b"c"), bytearray(b"d")]) == 4
    assert file.read(0, 100) == b"\0\0abcd"


def test_an_open_file_follows_its_node_not_its_name():
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    disk.rename("/d/f", "/d/g")
    file.write(0, [b"x"])
    assert disk.size("/d/g") == 1
    disk.remove("/d/g")
    file.write(1, [b"y"])
    assert file.read(0, 2) == b"xy"
    assert not disk.exists("/d/g")


def test_a_fault_strikes_the_nth_matching_call_once():
    disk = make_disk([Fault(EIO, operations=("write",), suffix=".log", nth=2)])
    log, index = disk.open("/d/0.log", create=True), disk.open("/d/0.index", create=True)
    log.write(0, [b"a"])
    index.write(0, [b"a"])
    with pytest.raises(OSError) as caught:
        log.write(1, [b"b"])
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "/d/0.log")
    log.write(1, [b"b"])


def test_a_lasting_fault_strikes_for_ever():
    disk = make_disk([Fault(EIO, operations=("write",), nth=2, lasting=True)])
    file = disk.open("/d/f", create=True)
    file.write(0, [b"a"])
    for _ in range(3):
        with pytest.raises(OSError):
            file.write(1, [b"b"])


def test_a_full_disk_fails_what_grows_and_nothing_else():
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    disk.faults.append(Fault(ENOSPC, rate=1.0))
    with pytest.raises(OSError) as caught:
        file.write(0, [b"a" * 100])
    assert caught.value.errno == errno.ENOSPC
    file.sync()
    assert file.read(0, 1) in (b"", b"a")
    disk.remove("/d/f")


def test_a_write_that_fails_may_have_stored_a_part():
    sizes = set()
    for seed in range(20):
        disk = make_disk([Fault(ENOSPC, operations=("write",), nth=1)], seed)
        file = disk.open("/d/f", create=True)
        with pytest.raises(OSError):
            file.write(0, [b"a" * 3])
        sizes.add(file.size())
    assert sizes == {0, 1, 2, 3}


def test_a_slow_call_takes_virtual_time():
    disk = make_disk([Fault(operations=("sync",), rate=1.0, delay_ms=5_000)])
    file = disk.open("/d/f", create=True)
    before = disk.clock.monotonic_ms()
    file.sync()
    assert 0 < disk.clock.monotonic_ms() - before <= 5_000


def test_every_call_is_a_step_and_power_is_lost_before_the_named_one():
    disk = make_disk()
    disk.crash_at(disk.step + 3)
    disk.open("/d/f", create=True)
    disk.exists("/d/f")
    with pytest.raises(PowerLoss):
        disk.remove("/d/f")
    assert disk.contents() == {"/d": None, "/d/f": b""}
    with pytest.raises(PowerLoss):
        disk.exists("/d/f")


def test_no_handler_of_errors_survives_a_power_loss():
    assert not issubclass(PowerLoss, Exception)


def test_a_write_at_the_crash_has_begun():
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    disk.crash_at(disk.step + 1)
    with pytest.raises(PowerLoss):
        file.write(0, [b"abc"])
    assert disk.contents()["/d/f"] == b"abc"


def test_a_lock_is_held_until_released_or_the_process_dies():
    disk = make_disk()
    lock = disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    lock.release()
    disk.lock("/d/.lock")
    disk.after_kill().lock("/d/.lock")


def test_a_kill_loses_nothing_yet_makes_nothing_durable():
    disk = make_disk()
    disk.open("/d/f", create=True).write(0, [b"abc"])
    survivor = disk.after_kill()
    assert survivor.contents() == disk.contents()
    assert any(survivor.after_power_loss(Random(seed)).contents().get("/d/f") != b"abc" for seed in range(50)), (
        "what the killed process never synced is still not durable"
    )


def test_a_copy_lives_its_own_life():
    disk = make_disk()
    disk.open("/d/f", create=True).write(0, [b"abc"])
    twin = disk.copy()
    twin.open("/d/f").write(0, [b"xyz"])
    assert disk.contents()["/d/f"] == b"abc"
    assert twin.contents()["/d/f"] == b"xyz"


def test_work_in_a_thread_happens_later_and_its_errors_arrive():
    disk = make_disk()
    order: list[str] = []

    async def main(loop: SimLoop) -> float:
        loop.call_soon(order.append, "loop")
        assert await disk.in_thread(lambda: order.append("thread") or 7) == 7
        with pytest.raises(ZeroDivisionError):
            await disk.in_thread(lambda: 1 // 0)
        return loop.time()

    assert run(main, seed=0) > 0
    assert order == ["loop", "thread"]


def test_rot_at_rest_is_seen_by_readers_and_survives_power_loss():
    disk = make_disk()
    disk.sync_directory("/")
    file = disk.open("/d/f", create=True)
    file.write(0, [b"\0\0\0"])
    file.sync()
    disk.sync_directory("/d")
    disk.flip_bit("/d/f", 9)
    assert file.read(0, 3) == b"\0\2\0"
    assert disk.after_power_loss(Random(0)).contents()["/d/f"] == b"\0\2\0"


def test_the_same_calls_give_the_same_digest_and_other_calls_another():
    def play(data: bytes) -> str:
        disk = make_disk()
        disk.open("/d/f", create=True).write(0, [data])
        return disk.digest()

    assert play(b"a") == play(b"a")
    assert play(b"a") != play(b"b")


def test_durable_is_what_the_worst_power_loss_leaves():
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    file.write(0, [b"abc"])
    file.sync()
    assert disk.durable("/d/f") is None, "its name is not durable"
    disk.sync_directory("/d")
    disk.sync_directory("/")
    assert (disk.durable("/d/f"), disk.durable_names("/d")) == (b"abc", ["f"])
    file.write(3, [b"def"])
    disk.open("/d/g", create=True)
    assert (disk.durable("/d/f"), disk.durable_names("/d")) == (b"abc", ["f"])
    assert (disk.durable("/d/x"), disk.durable_names("/x")) == (None, [])
    for seed in range(20):
        left = disk.if_power_went(Random(seed)).contents()["/d/f"]
        assert left is not None
        assert left.startswith(b"abc")
    assert disk.peek("/d/f") == b"abcdef", "this disk goes on"


def test_another_disk_is_empty():
    disk = make_disk()
    disk.open("/d/f", create=True).write(0, [b"abc"])
    disk.sync_directory("/d")
    disk.open("/d/g", create=True)
    assert disk.wiped("/d") == ["f", "g"]
    assert disk.list("/d") == []
    disk.open("/d/f", create=True)
    disk.sync_directory("/d")
    disk.sync_directory("/")
    assert disk.after_power_loss(Random(0)).list("/d") == ["f"]


def test_interleaved_work_in_a_thread_lets_the_loop_go_on_between_its_steps():
    disk, order = make_disk(), list[str]()
    disk.interleaving = 1.0

    def work() -> int:
        for number in range(30):
            disk.open(f"/d/{number}", create=True)
            order.append("thread")
        return 7

    async def main(_: SimLoop) -> None:
        async def others() -> None:
            while True:
                await asyncio.sleep(0.001)
                order.append("loop")

        going_on = asyncio.ensure_future(others())
        assert await disk.in_thread(work) == 7
        going_on.cancel()

    run(main, seed=0)
    first, last = order.index("thread"), len(order) - 1 - order[::-1].index("thread")
    assert "loop" in order[first:last]
    assert order.count("thread") == 30


def test_what_is_guarded_by_a_mutex_is_never_seen_half_done():
    disk = make_disk()
    disk.interleaving = 1.0
    mutex, state = disk.mutex(), {"a": 0, "b": 0}

    def work() -> None:
        for _ in range(20):
            with mutex:
                state["a"] += 1
                disk.exists("/d")
                state["b"] += 1

    async def main(_: SimLoop) -> None:
        working = [asyncio.ensure_future(disk.in_thread(work)) for _ in range(2)]
        for _ in range(300):
            with mutex:
                assert state["a"] == state["b"]
            await asyncio.sleep(0.003)
        await asyncio.gather(*working)

    run(main, seed=0)
    assert state == {"a": 40, "b": 40}


def test_work_in_a_thread_ends_with_its_machine():
    disk, done = make_disk(), list[int]()
    disk.interleaving = 1.0

    def work() -> None:
        for number in range(100):
            disk.open(f"/d/{number}", create=True)
            done.append(number)

    async def main(_: SimLoop) -> None:
        working = asyncio.ensure_future(disk.in_thread(work))
        while not done:
            await asyncio.sleep(0.001)
        disk.power_off()
        with pytest.raises(PowerLoss):
            await working

    run(main, seed=0)
    assert len(done) < 100
