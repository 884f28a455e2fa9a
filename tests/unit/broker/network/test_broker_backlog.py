"""Long work on the event loop: when it gives way, who has the next turn, and that nobody waits for all of it."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.network.backlog import ELEMENTS_PER_TURN, TURN_MS, Backlog, Budget, at_once
from ottla.broker.network.dispatch import begin


class Clock:
    """Stands still, unless somebody moves it on."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    wall_ms = monotonic_ms


class Home:
    def __init__(self) -> None:
        self.clock = Clock()
        self.backlog = Backlog(self.clock)
        self.rounds = 0

    async def run(self, *work: Awaitable[Any]) -> list[Any]:
        """The results; `rounds` counts how often somebody else had the loop meanwhile."""
        tasks = [asyncio.ensure_future(one) for one in work]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            self.rounds += 1
        return [task.result() for task in tasks]


def played(work: Callable[[Home], Coroutine[Any, Any, None]]) -> Home:
    home = Home()
    asyncio.run(work(home))
    return home


# When it gives way.


def test_request_gives_way_after_so_many_elements() -> None:
    """A simulated clock stands still while a node works."""

    async def work(home: Home) -> None:
        budget = Budget(home.backlog)
        [made] = await home.run(budget.each(range(10 * ELEMENTS_PER_TURN), lambda number: number + 1))
        assert made == list(range(1, 10 * ELEMENTS_PER_TURN + 1))

    assert played(work).rounds >= 10


def test_request_gives_way_after_so_long() -> None:
    async def work(home: Home) -> None:
        def slow(number: int) -> int:
            home.clock.now_ms += number % 64 == 0
            return number

        await home.run(Budget(home.backlog).each(range(20 * 64), slow))

    assert 20 // TURN_MS <= played(work).rounds <= 40


def test_small_request_never_gives_way() -> None:
    async def work(home: Home) -> None:
        budget = Budget(home.backlog)
        is_done, made = begin(budget.each(range(100), str), asyncio.get_running_loop())
        assert (is_done, len(made), budget.gave_way, len(home.backlog)) == (True, 100, False, 0)

    played(work)


def test_element_that_takes_long_counts_as_several() -> None:
    async def work(home: Home) -> None:
        await home.run(Budget(home.backlog).each(range(1_000), str, cost=100))
        assert home.rounds >= 1_000 * 100 // ELEMENTS_PER_TURN
        home.rounds = 0
        await home.run(Budget(home.backlog).each(["x" * 1_000] * 1_000, str, cost=len))
        assert home.rounds >= 1_000 * 1_000 // ELEMENTS_PER_TURN

    played(work)


def test_parts_steps_and_sorting_give_way_too() -> None:
    def steps() -> Generator[None, None, str]:
        for _ in range(200):
            yield
        return "done"

    async def work(home: Home) -> None:
        budget = Budget(home.backlog)

        async def parts() -> list[int]:
            return [number async for part in budget.parts(range(9_000)) for number in part]

        [found] = await home.run(parts())
        assert found == list(range(9_000))
        assert home.rounds >= 4
        home.rounds = 0
        assert await home.run(budget.run(steps(), 64)) == ["done"]
        assert home.rounds >= 200 * 64 // ELEMENTS_PER_TURN
        home.rounds = 0
        names = [f"t{number}" for number in range(9_999, 0, -1)]
        assert await home.run(budget.sorted(names)) == [sorted(names)]
        assert home.rounds >= 4
        assert await budget.sorted([]) == []

    played(work)
    assert at_once(steps()) == "done"


# Who has the next turn.


def test_requests_have_turns_and_few_are_in_progress() -> None:
    """One in progress may hold much memory."""

    async def work(home: Home) -> None:
        begun: dict[int, None] = {}
        done: list[int] = []
        most = 0

        async def one(number: int) -> None:
            nonlocal most
            budget = Budget(home.backlog)
            for turn in range(6):
                await budget.give_way()
                if turn == 0:
                    begun[number] = None
                most = max(most, len(begun))
            del begun[number]
            done.append(number)

        await home.run(*(one(number) for number in range(12)))
        assert most == 4
        assert sorted(done) == list(range(12))
        assert done[:4] == [0, 1, 2, 3]

    played(work)


def test_request_that_waits_for_something_else_makes_room() -> None:
    """Otherwise those that wait for each other would wait for ever."""

    async def work(home: Home) -> None:
        opened = asyncio.Event()

        async def waits() -> None:
            budget = Budget(home.backlog)
            await budget.give_way()
            await opened.wait()
            await budget.give_way()

        async def opens() -> None:
            await Budget(home.backlog).give_way()
            opened.set()

        await home.run(*(waits() for _ in range(10)), opens())

    played(work)


def test_round_gives_one_turn_to_a_request_and_one_to_a_connection() -> None:
    async def work(home: Home) -> None:
        order: list[str] = []

        async def request(name: str) -> None:
            budget = Budget(home.backlog)
            for _ in range(3):
                await budget.give_way()
                order.append(name)

        def connection() -> None:
            order.append("connection")
            if order.count("connection") < 3:
                home.backlog.add(connection)

        home.backlog.add(connection)
        await home.run(request("a"), request("b"))
        assert order.count("connection") == 3
        assert order.index("connection") < 2, "it does not wait for the requests"
        assert [name for name in order if name != "connection"] == ["a", "b", "a", "b", "a", "b"]

    played(work)


def test_those_with_little_to_be_taken_come_before_those_with_much() -> None:
    async def work(home: Home) -> None:
        order: list[int] = []
        for number in range(50):
            home.backlog.add(lambda number=number: order.append(number))  # type: ignore[misc]
        for number in range(100, 120):
            home.backlog.add(lambda number=number: order.append(number), is_short=True)  # type: ignore[misc]
        await asyncio.sleep(0)
        assert order == [*range(100, 120), 0]
        while home.backlog:
            await asyncio.sleep(0)
        assert order == [*range(100, 120), *range(50)]

    played(work)


def test_round_is_crowded_when_those_cut_off_in_it_took_long() -> None:
    async def work(home: Home) -> None:
        for _ in range(2):
            home.backlog.first_turn_took(TURN_MS)
        assert not home.backlog.is_crowded
        home.backlog.first_turn_took(TURN_MS)
        assert home.backlog.is_crowded
        await asyncio.sleep(0)
        assert not home.backlog.is_crowded, "the next round begins anew"

    played(work)


def test_request_of_a_client_that_is_gone_is_passed_over() -> None:
    async def work(home: Home) -> None:
        async def one() -> str:
            await Budget(home.backlog).give_way()
            return "done"

        tasks = [asyncio.ensure_future(one()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert await asyncio.gather(*tasks[1:]) == ["done"] * 2
        assert not home.backlog

    played(work)


# A coroutine that is begun at once.


def test_coroutine_runs_until_it_waits() -> None:
    async def main() -> None:
        seen: list[str] = []
        waits: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            seen.append("begun")
            seen.append(await waits)
            with pytest.raises(ZeroDivisionError):
                await fails
            await asyncio.sleep(0)
            return "result"

        fails: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fails.set_exception(ZeroDivisionError())
        is_done, task = begin(work(), asyncio.get_running_loop())
        assert (is_done, seen) == (False, ["begun"])
        waits.set_result("waited")
        assert await task == "result"
        assert seen == ["begun", "waited"]

    asyncio.run(main())


def test_coroutine_that_is_cancelled_hears_of_it() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                seen.append("ended")

        _, task = begin(work(), asyncio.get_running_loop())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["ended"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["done", "cancelled"])
def test_nothing_is_left_for_the_garbage_collector(how: str) -> None:
    """A node freezes what it has (`cli/serve/garbage`): cycles would stay."""

    async def main() -> None:
        async def work(waits: "asyncio.Future[None]", held: object) -> None:
            await waits
            assert held

        async def once() -> None:
            waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            _, task = begin(work(waits, SimpleNamespace()), asyncio.get_running_loop())
            await asyncio.sleep(0)
            if how == "done":
                waits.set_result(None)
            else:
                task.cancel()
            await asyncio.wait([task])

        await once()
        gc.collect()
        gc.disable()
        try:
            before = sum(type(one) is SimpleNamespace for one in gc.get_objects())
            for _ in range(10):
                await once()
            assert sum(type(one) is SimpleNamespace for one in gc.get_objects()) == before
        finally:
            gc.enable()

    asyncio.run(main())
