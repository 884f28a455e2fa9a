"""Processes of a simulated machine: killed, they do nothing any more; frozen, everything later."""

import asyncio

import pytest

from ottla.sim.machine.loop import SimLoop, run
from ottla.sim.machine.process import Process, make_task


async def ticking(told: list[float], loop: SimLoop) -> None:
    while True:
        await asyncio.sleep(1)
        told.append(loop.time())


def test_a_killed_process_sets_nothing_in_motion_any_more() -> None:
    told: list[float] = []

    async def main(loop: SimLoop) -> None:
        loop.set_task_factory(make_task)
        process = Process()

        async def life() -> None:
            # A timer that makes a task: of the process, too.
            loop.call_later(3, lambda: loop.create_task(ticking(told, loop)))
            loop.call_soon(loop.create_task, ticking(told, loop))
            await asyncio.sleep(100)

        task = process.spawn(life())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)
        assert task.cancelled()
        late = process.spawn(ticking(told, loop))
        await asyncio.sleep(2)
        assert late.cancelled()

    run(main, 0)
    assert told == [1.0, 2.0]


def test_others_go_on_when_a_process_is_killed() -> None:
    told: list[float] = []

    async def main(loop: SimLoop) -> None:
        loop.set_task_factory(make_task)
        process, other = Process(), Process()
        other.spawn(ticking(told, loop))
        await asyncio.sleep(1.5)
        process.kill()
        await asyncio.sleep(2)

    run(main, 0)
    assert told == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("killed", [False, True])
def test_a_frozen_process_does_what_was_due_when_it_goes_on(killed: bool) -> None:
    told: list[str] = []

    async def main(loop: SimLoop) -> None:
        loop.set_task_factory(make_task)
        process = Process()

        async def life() -> None:
            for number in range(3):
                loop.call_later(number + 1, told.append, f"{number}")
            await asyncio.sleep(100)

        process.spawn(life())
        await asyncio.sleep(1.5)
        process.freeze()
        await asyncio.sleep(5)
        assert told == ["0"]
        if killed:
            process.kill()
        else:
            process.thaw()
        told.append("goes on")
        await asyncio.sleep(1)

    run(main, 0)
    # What was due when it was killed may still be on its way to it.
    assert told[:2] == ["0", "goes on"]
    if not killed:
        assert told[2:] == ["1", "2"]


def test_a_killed_process_is_not_frozen() -> None:
    """Nobody would have it go on: its tasks, cancelled and not told yet, would never end."""

    async def main(loop: SimLoop) -> None:
        loop.set_task_factory(make_task)
        process = Process()
        task = process.spawn(ticking([], loop))
        await asyncio.sleep(1.5)
        process.kill()
        process.freeze()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled()
        process.thaw()

    run(main, 0)
