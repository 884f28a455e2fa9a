"""Fetches that wait are woken once: by bytes, by time, or because something happened."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from ottla.broker.partitions.waiters import Waiter, WaitingRoom, Watcher
from ottla.sim.machine.loop import SimLoop, run


class Topic:
    def __init__(self) -> None:
        self.waiters: dict[Watcher, None] = {}

    def grow(self, size: int, stable_size: int | None = None) -> None:
        for waiter in list(self.waiters):
            waiter.grown(size, size if stable_size is None else stable_size)


class Scene:
    def __init__(self) -> None:
        self.room, self.topic = WaitingRoom(), Topic()
        self.told: list[tuple[str, int]] = []
        """Who was told, and at which millisecond."""

    def wait(self, name: str, missing_bytes: int = 1, wait_ms: int = 500, *, committed_only: bool = False) -> Waiter:
        waiter = Waiter(self.room, (self.topic,), missing_bytes, wait_ms, lambda: name, committed_only=committed_only)
        waiter.add_done_callback(self._note)
        return waiter

    def _note(self, waiter: Waiter) -> None:
        name = waiter.result()()
        self.told.append((name, round(asyncio.get_running_loop().time() * 1000)))
        if name == "broken":
            raise RuntimeError(name)


def simulated(scenario: Callable[[Scene], Awaitable[Any]]) -> Scene:
    scene = Scene()

    async def main(loop: SimLoop) -> None:
        loop.set_exception_handler(lambda *_: None)
        await scenario(scene)

    run(main, seed=1)
    return scene


def test_enough_bytes_wake_but_looking_is_left_to_the_end_of_the_round() -> None:
    async def scenario(scene: Scene) -> None:
        scene.wait("two", missing_bytes=2)
        scene.wait("one")
        scene.topic.grow(1)
        scene.topic.grow(1)
        assert scene.told == []
        assert not scene.topic.waiters
        await asyncio.sleep(0)
        assert [name for name, _ in scene.told] == ["one", "two"]
        await asyncio.sleep(2)

    assert len(simulated(scenario).told) == 2


def test_a_reader_of_what_is_committed_counts_stable_bytes() -> None:
    """The records of an open transaction are no news to it; the end of one brings all of them."""

    async def scenario(scene: Scene) -> None:
        scene.wait("committed", missing_bytes=100, committed_only=True)
        scene.wait("all", missing_bytes=100)
        scene.topic.grow(150, stable_size=0)
        await asyncio.sleep(0)
        assert [name for name, _ in scene.told] == ["all"]
        scene.topic.grow(10, stable_size=99)
        await asyncio.sleep(0)
        scene.topic.grow(1, stable_size=1)
        await asyncio.sleep(0)
        assert [name for name, _ in scene.told] == ["all", "committed"]

    simulated(scenario)


def test_each_waits_as_long_as_it_may_and_no_longer_than_a_millisecond_more() -> None:
    waits = {str(number): Random(number).randrange(1, 2000) for number in range(200)}

    async def scenario(scene: Scene) -> None:
        for name, wait_ms in waits.items():
            scene.wait(name, wait_ms=wait_ms)
        await asyncio.sleep(3)

    told = dict(simulated(scenario).told)
    assert set(told) == set(waits)
    assert all(waits[name] <= at <= waits[name] + 1 for name, at in told.items())


def test_one_who_comes_later_may_have_less_time() -> None:
    async def scenario(scene: Scene) -> None:
        scene.wait("patient", wait_ms=1000)
        await asyncio.sleep(0.1)
        scene.wait("hasty", wait_ms=50)
        await asyncio.sleep(2)

    assert [name for name, _ in simulated(scenario).told] == ["hasty", "patient"]


def test_time_goes_on_for_others_after_some_were_woken_before_it() -> None:
    async def scenario(scene: Scene) -> None:
        for round_ in range(50):
            scene.wait(f"woken {round_}", wait_ms=10)
            scene.topic.grow(1)
            await asyncio.sleep(0.007)
        scene.wait("last", wait_ms=10)
        await asyncio.sleep(1)

    scene = simulated(scenario)
    assert scene.told[-1][0] == "last"
    assert len(scene.told) == 51


def test_whoever_was_cancelled_is_not_told() -> None:
    async def scenario(scene: Scene) -> None:
        gone, woken = scene.wait("gone"), scene.wait("woken, then gone")
        gone.cancel()
        woken.wake()
        woken.cancel()
        assert gone.cancelled()
        assert not scene.topic.waiters
        await asyncio.sleep(2)

    assert simulated(scenario).told == []


def test_one_that_fails_does_not_keep_the_others_waiting() -> None:
    async def scenario(scene: Scene) -> None:
        for name in ("first", "broken", "last"):
            scene.wait(name)
        scene.topic.grow(1)
        await asyncio.sleep(1)

    assert [name for name, _ in simulated(scenario).told] == ["first", "broken", "last"]


def test_those_who_left_leave_nothing_behind() -> None:
    """A reader with a long patience that is woken over and over would fill the memory."""

    async def scenario(scene: Scene) -> None:
        for _ in range(5_000):
            scene.wait("woken", wait_ms=3_600_000)
            scene.topic.grow(1)
            await asyncio.sleep(0.002)
        assert len(scene.room) == 0
        assert len(scene.room._times) < 200

    simulated(scenario)


def test_thousands_that_wait_for_one_partition_are_told_some_at_a_time() -> None:
    """Each looks for itself what there is, and others have their turn in between."""

    async def scenario(scene: Scene) -> None:
        for number in range(1_000):
            scene.wait(f"reader {number}")
        scene.topic.grow(1)
        told = []
        while len(scene.told) < 1_000:
            before = len(scene.told)
            await asyncio.sleep(0)
            told.append(len(scene.told) - before)
        assert max(told) <= 100
        assert [name for name, _ in scene.told] == [f"reader {number}" for number in range(1_000)]

    simulated(scenario)


def test_coroutine_may_wait_and_give_up() -> None:
    async def scenario(scene: Scene) -> None:
        async def waits(name: str) -> str:
            waiter = Waiter(scene.room, (scene.topic,), 1, 500, lambda: name, committed_only=False)
            look = await waiter
            return look()  # type: ignore[no-any-return]

        one, other = asyncio.ensure_future(waits("one")), asyncio.ensure_future(waits("other"))
        await asyncio.sleep(0)
        other.cancel()
        await asyncio.sleep(0)
        assert len(scene.topic.waiters) == len(scene.room) == 1
        scene.topic.grow(1)
        assert await one == "one"
        assert other.cancelled()

    simulated(scenario)


def test_those_who_stay_are_woken_in_time_though_many_have_left() -> None:
    """What the others leave behind is thrown away now and then; the earliest is still the next afterwards."""
    waits = {f"stays {number}": Random(number).randrange(200, 2_000) for number in range(20)}

    async def scenario(scene: Scene) -> None:
        for name, wait_ms in waits.items():
            scene.wait(name, wait_ms=wait_ms)
        for number in range(400):
            scene.wait("leaves", wait_ms=5_000 + number).cancel()
        await asyncio.sleep(3)

    told = dict(simulated(scenario).told)
    assert all(waits[name] <= told[name] <= waits[name] + 1 for name in waits)


def test_the_heap_is_made_anew_when_most_of_it_has_left() -> None:
    async def scenario(scene: Scene) -> None:
        for wait_ms in (900, 700, 500, 300):
            scene.wait(str(wait_ms), wait_ms=wait_ms)
        for number in range(200):
            scene.wait("leaves", wait_ms=5_000 + number).cancel()
        assert len(scene.room._times) < 200, "it was made anew"
        await asyncio.sleep(0.2)
        scene.wait("450", wait_ms=250)
        await asyncio.sleep(3)

    assert [name for name, _ in simulated(scenario).told] == ["300", "450", "500", "700", "900"]
