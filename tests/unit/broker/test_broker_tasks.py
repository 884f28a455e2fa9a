"""Work beside the requests: an error ends neither it nor passes in silence."""

import asyncio
import logging

import pytest

from ottla.broker.tasks import Tasks, every
from ottla.observe.trace import recording, trace
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import run
from ottla.wire.errors import Error, Refused

REFUSAL = Refused(Error.KAFKA_STORAGE_ERROR, "no disk")
DEFECT = ZeroDivisionError("a defect")


@pytest.mark.parametrize(
    ("error", "event", "level"),
    [(REFUSAL, "upkeep.failed", logging.WARNING), (DEFECT, "upkeep.broken", logging.ERROR)],
)
def test_what_is_done_again_and_again_goes_on_after_any_error(error: Exception, event: str, level: int) -> None:
    """Retention, cleaning or checkpoints that ended for ever would be noticed when the disk is full."""
    done: list[int] = []

    async def work() -> None:
        done.append(len(done))
        if len(done) == 2:
            raise error

    async def main(_: object) -> None:
        task = asyncio.ensure_future(every(1_000, "retention", work))
        await asyncio.sleep(4.5)
        task.cancel()

    with recording() as events:
        run(main, 0, SimClock())
    assert done == [0, 1, 2, 3]
    assert [(one.name, one.level, one.fields["doing"]) for one in events] == [(event, level, "retention")]


@pytest.mark.parametrize(
    ("error", "event", "level"),
    [(REFUSAL, "task.failed", logging.WARNING), (DEFECT, "task.broken", logging.ERROR)],
)
def test_a_task_that_ends_with_an_error_is_told_with_its_name(error: Exception, event: str, level: int) -> None:
    async def load_the_shard() -> None:
        raise error

    async def main(_: object) -> None:
        tasks = Tasks()
        tasks.spawn(load_the_shard())
        await asyncio.sleep(1)
        await tasks.cancel()

    with recording() as events:
        run(main, 0, SimClock())
    assert [(one.name, one.level) for one in events] == [(event, level)]
    assert events[0].fields["doing"].endswith("load_the_shard")


def test_tasks_end_with_the_node_without_a_word() -> None:
    async def rest() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            trace("ended")

    async def main(_: object) -> None:
        tasks = Tasks()
        tasks.spawn(rest())
        await asyncio.sleep(1)
        await tasks.cancel()

    with recording() as events:
        run(main, 0, SimClock())
    assert [one.name for one in events] == ["ended"]
