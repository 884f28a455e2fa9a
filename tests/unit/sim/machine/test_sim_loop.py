import asyncio

import pytest

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import Deadlock, SimLoop, run


def test_a_day_of_sleep_costs_nothing_and_passes_on_both_clocks():
    clock = SimClock()
    started_wall, started_monotonic = clock.wall_ms(), clock.monotonic_ms()

    async def main(_: SimLoop) -> None:
        await asyncio.sleep(86_400)

    run(main, seed=0, clock=clock)
    assert clock.wall_ms() - started_wall == 86_400_000
    assert clock.monotonic_ms() - started_monotonic == 86_400_000


def test_waiting_for_what_cannot_come_is_a_deadlock():
    async def main(_: SimLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="no timer is set"):
        run(main, seed=0)


def test_timers_fire_in_the_order_of_their_deadlines():
    order: list[int] = []

    async def sleeper(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main(_: SimLoop) -> None:
        await asyncio.gather(*(sleeper(seconds) for seconds in (5, 1, 3, 2, 4)))

    run(main, seed=0)
    assert order == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_order_of_events(seed: int):
    def play(seed: int) -> list[tuple[float, int]]:
        events: list[tuple[float, int]] = []

        async def main(loop: SimLoop) -> None:
            async def worker(number: int) -> None:
                for _ in range(20):
                    await asyncio.sleep(loop.random.random())
                    events.append((loop.time(), number))

            await asyncio.gather(*(worker(number) for number in range(10)))

        run(main, seed)
        return events

    assert play(seed) == play(seed)
    assert play(seed) != play(seed + 1)


def test_threads_are_refused():
    """A thread's moment is decided by the machine, not by the seed."""

    async def main(_: SimLoop) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match=r"Disk\.in_thread"):
        run(main, seed=0)


def test_what_still_runs_at_the_end_is_cancelled_oldest_first():
    order: list[int] = []

    async def sleeper(number: int) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            order.append(number)

    async def main(loop: SimLoop) -> list[asyncio.Task[None]]:
        tasks = [loop.create_task(sleeper(number)) for number in range(30)]
        await asyncio.sleep(0)
        return tasks

    tasks = run(main, seed=0)
    assert all(task.cancelled() for task in tasks)
    assert order == list(range(30))


def test_the_wall_clock_jumps_both_ways_and_the_monotonic_one_does_not_notice():
    clock = SimClock(start_ms=1_000_000)
    clock.advance(250)
    clock.jump(-600_000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (400_250, 250)
    clock.jump(700_000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_100_250, 250)
    with pytest.raises(ValueError, match="jump"):
        clock.advance(-1)


def test_timers_of_one_moment_run_in_the_order_in_which_they_were_set():
    order: list[int] = []

    async def main(loop: SimLoop) -> None:
        for number in range(20):
            loop.call_at(1.0, order.append, number)
        loop.call_at(1.0, order.append, -1).cancel()
        await asyncio.sleep(2)

    run(main, seed=0)
    assert order == list(range(20))


def test_a_clock_that_drifts_gains_and_loses_without_a_jump():
    clock = SimClock(start_ms=1_000_000)
    clock.advance(10_000)
    clock.drift(0.1)
    assert clock.wall_ms() == 1_010_000
    clock.advance(10_000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_021_000, 20_000)
    clock.drift(-0.5)
    clock.jump(1_000)
    clock.advance(10_000)
    assert clock.wall_ms() == 1_027_000
    clock.drift(0)
    clock.advance(10_000)
    assert clock.wall_ms() == 1_037_000
    with pytest.raises(ValueError, match="jump"):
        clock.drift(-1)
