"""Batches under way: which refusals mean that one came too early, and which that something is missing."""

import asyncio
from collections import deque

import pytest

from ottla.client import Client
from ottla.client.core.errors import DeliveryFailed
from ottla.kernel import BuiltBatch
from ottla.pipelines.sink.batch_sender import UNDER_WAY_MAX, BatchSender, QueuedBatch
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error
from simulated_node import simulated

TOO_EARLY = Error.OUT_OF_ORDER_SEQUENCE_NUMBER


class Scripted(BatchSender):
    """Requests are answered by a script, in their order, when `answer` says so."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.sent: list[bytes] = []
        self._asked: deque[tuple[list[QueuedBatch], asyncio.Event]] = deque()
        self._errors: dict[int, ClientError | None] = {}

    async def _deliver(self, _: int, batches: list[QueuedBatch]) -> None:
        answered = asyncio.Event()
        self.sent += [batch.data for batch in batches]
        self._asked.append((batches, answered))
        await answered.wait()
        for batch in batches:
            self._answered(batch, self._errors.pop(id(batch)))
        self._send()

    async def answer(self, *errors: Error) -> None:
        """The oldest requests get these answers."""
        for error in errors:
            while not self._asked:
                await asyncio.sleep(0.01)
            batches, answered = self._asked.popleft()
            for batch in batches:
                self._errors[id(batch)] = None if error is Error.NONE else Declined(error, subject=str(batch.partition))
            answered.set()
            await asyncio.sleep(0)


async def sending(client: Client, count: int) -> Scripted:
    await client.metadata.topic("t", timeout_ms=1_000)
    sender = Scripted(client)
    sender.add("t", [BuiltBatch(0, 1, b"%d" % n) for n in range(count)])
    await asyncio.sleep(0.01)
    return sender


def test_only_as_many_are_under_way_as_a_broker_remembers() -> None:
    async def work(client: Client) -> None:
        sender = await sending(client, 8)
        assert len(sender.sent) == UNDER_WAY_MAX
        await sender.answer(*[Error.NONE] * 8)
        await sender.flush()
        assert sender.sent == [b"%d" % n for n in range(8)]

    simulated(work, {"t": 1})


def test_one_that_was_refused_is_sent_again_with_those_behind_it() -> None:
    async def work(client: Client) -> None:
        sender = await sending(client, 6)
        await sender.answer(Error.NONE, Error.NOT_LEADER_OR_FOLLOWER, *[TOO_EARLY] * 4)
        await sender.answer(*[Error.NONE] * 5)
        await sender.flush()
        assert sender.sent[6:] == [b"1", b"2", b"3", b"4", b"5"]

    simulated(work, {"t": 1})


def test_one_that_came_too_early_is_sent_again_though_all_before_it_are_stored() -> None:
    """A broker that asks a coordinator before it appends may take requests up in another order than it answers them."""

    async def work(client: Client) -> None:
        sender = await sending(client, 3)
        await sender.answer(Error.NONE, Error.NONE, TOO_EARLY, Error.NONE)
        await sender.flush()
        assert sender.sent == [b"0", b"1", b"2", b"2"]

    simulated(work, {"t": 1})


@pytest.mark.parametrize("answers", [[TOO_EARLY], [Error.NONE, TOO_EARLY, TOO_EARLY]])
def test_one_that_is_too_early_with_nothing_before_it_fails_the_epoch(answers: list[Error]) -> None:
    """Something is missing in the log that was acknowledged: nothing that is sent again can mend that."""

    async def work(client: Client) -> None:
        sender = await sending(client, 2)
        await sender.answer(*answers)
        with pytest.raises(DeliveryFailed, match="leaves a gap"):
            await sender.flush()
        await sender.answer(*[TOO_EARLY] * (2 - min(len(answers), 2)))

    simulated(work, {"t": 1})


def test_a_refusal_that_time_does_not_mend_fails_at_once() -> None:
    async def work(client: Client) -> None:
        sender = await sending(client, 1)
        await sender.answer(Error.MESSAGE_TOO_LARGE)
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
            await sender.flush()
        assert sender.sent == [b"0"]

    simulated(work, {"t": 1})


def test_a_topic_without_a_leader_is_given_up_in_time() -> None:
    async def work(client: Client) -> None:
        sender = BatchSender(client, delivery_timeout_ms=5_000)
        sender.add("absent", [BuiltBatch(0, 1, b"x")])
        with pytest.raises(DeliveryFailed, match="topic absent: no leader was found"):
            await sender.flush()

    simulated(work, {"t": 1})
