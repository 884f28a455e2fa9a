"""Staying awake: only for a client that asks again and again at once, and not longer than a moment."""

import asyncio
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from broker_connection_samples import arrive, new_connection

from ottla.broker.network.connection import Connection
from ottla.broker.network.tuning.busy_poll import ROUNDS_MAX, SEEN, SEEN_WITHIN_MS, BusyPoll

UNKNOWN_VERSION = pack(">ihhih", 10, 18, 99, 1, -1)
"""ApiVersions in a version that nobody knows is answered at once."""


def answer(busy_poll: BusyPoll, times: int, *, within_ms: int = 0, reads: int = 1) -> None:
    for number in range(times):
        busy_poll.reads += reads
        busy_poll.answered(1000 + (within_ms if number == times - 1 else 0))


async def rounds_awake(busy_poll: BusyPoll) -> int:
    rounds = 0
    while busy_poll.is_awake:
        rounds += 1
        await asyncio.sleep(0)
    return rounds


def test_a_client_that_asks_again_at_once_is_stayed_awake_for_a_moment_and_has_to_be_seen_again() -> None:
    async def scenario() -> None:
        busy_poll = BusyPoll(processors=2)
        for _ in range(2):
            answer(busy_poll, SEEN - 1)
            assert not busy_poll.is_awake
            answer(busy_poll, 1)
            assert await rounds_awake(busy_poll) in (ROUNDS_MAX, ROUNDS_MAX + 1)

    asyncio.run(scenario())


def test_every_answer_begins_the_moment_anew() -> None:
    async def scenario() -> None:
        busy_poll = BusyPoll(processors=2)
        answer(busy_poll, SEEN)
        for _ in range(3):
            for _ in range(ROUNDS_MAX - 1):
                await asyncio.sleep(0)
            assert busy_poll.is_awake
            answer(busy_poll, 1)
        assert await rounds_awake(busy_poll) in (ROUNDS_MAX, ROUNDS_MAX + 1)

    asyncio.run(scenario())


@pytest.mark.parametrize(("processors", "within_ms"), [(1, 0), (2, SEEN_WITHIN_MS + 1)])
def test_nobody_stays_awake_for_a_slow_client_or_on_its_processor(processors: int, within_ms: int) -> None:
    async def scenario() -> None:
        busy_poll = BusyPoll(processors=processors)
        answer(busy_poll, SEEN, within_ms=within_ms)
        assert not busy_poll.is_awake

    asyncio.run(scenario())


def test_who_is_not_alone_is_not_stayed_awake_for_and_ends_it() -> None:
    """Of many connections some come twice in a row; awake, the loop would read each of them by itself."""

    async def scenario() -> None:
        busy_poll = BusyPoll(processors=2)
        answer(busy_poll, 3 * SEEN, reads=2)
        assert not busy_poll.is_awake
        answer(busy_poll, SEEN)
        assert busy_poll.is_awake
        answer(busy_poll, 1, reads=2)
        assert await rounds_awake(busy_poll) <= 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("pieces", "is_alone", "counted"),
    [
        ([UNKNOWN_VERSION], True, 1),
        ([UNKNOWN_VERSION, UNKNOWN_VERSION], True, 2),
        ([UNKNOWN_VERSION], False, 0),
        ([UNKNOWN_VERSION * 2], True, 0),
        ([UNKNOWN_VERSION[:6], UNKNOWN_VERSION[6:]], True, 0),
        ([UNKNOWN_VERSION + UNKNOWN_VERSION[:6], UNKNOWN_VERSION[6:]], True, 0),
    ],
)
def test_requests_count_that_come_one_by_one_from_a_client_alone(
    pieces: list[bytes], is_alone: bool, counted: int
) -> None:
    """Who sends on without waiting streams, and is better read some requests at a time."""
    connection, transport = new_connection()
    told: list[int] = []
    node: Any = connection.node

    def add(sender: Connection) -> bool:
        sender.send_ready()
        return is_alone

    node.send_round = SimpleNamespace(add=add)
    tuning: Any = SimpleNamespace(read=lambda: None, answered=told.append, pace=lambda *_: None)
    connection._tuning = tuning
    for piece in pieces:
        arrive(connection, piece)
    assert len(told) == counted
    assert transport.sent
