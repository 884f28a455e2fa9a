"""Finds the leaders of partitions, and sends them requests that only a leader can answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ottla.client.client import RETRY, Client
from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import ClientError

Q = TypeVar("Q")
A = TypeVar("A")
Ask = Callable[[int, dict[TopicPartition, Q]], Awaitable[dict[TopicPartition, A | ClientError]]]


def known_leader(client: Client, partition: TopicPartition) -> int | None:
    """The leader according to fresh metadata; None if it is unknown or the metadata is outdated."""
    leader = client.cluster.leader(partition)
    return leader if leader >= 0 and client.metadata.is_fresh(partition.topic) else None


async def find_leaders(client: Client, topics: Sequence[str]) -> ClientError | None:
    """Request the metadata of the topics once. Returns the error if no broker answered.

    If a partition has no leader, it waits before it returns, so that a caller may call it in a loop.
    """
    try:
        for topic in topics:
            client.metadata.stale(topic)
        await client.metadata.refresh(topics)
        if not all(_is_led(client, topic) for topic in topics):
            await asyncio.sleep(RETRY.wait_ms(1, client.ports.random) / 1000)  # Elections take a moment.
    except ClientError as error:
        await asyncio.sleep(RETRY.wait_ms(2, client.ports.random) / 1000)
        return error
    return None


def _is_led(client: Client, topic: str) -> bool:
    known = client.cluster.topics.get(topic)
    return known is not None and len(known.led) == len(known.partitions)


async def ask_leaders(client: Client, questions: Mapping[TopicPartition, Q], ask: Ask[Q, A]) -> dict[TopicPartition, A]:
    """Ask each leader once for all of its partitions, and retry those it could not answer yet.

    `ask` gets a node and the questions for it, and returns an answer or an error for each. Raises the first error that
    a retry cannot resolve, or that lasts longer than the client's `api_timeout_ms`.
    """
    answers: dict[TopicPartition, A] = {}

    async def attempt() -> None:
        left = {partition: question for partition, question in questions.items() if partition not in answers}
        by_leader = await _by_leader(client, left)
        rounds = [_asked(ask, node, asked) for node, asked in by_leader.items()]
        failure: ClientError | None = None
        for outcomes in await asyncio.gather(*rounds):
            for partition, outcome in outcomes.items():
                if not isinstance(outcome, ClientError):
                    answers[partition] = outcome
                    continue
                client.metadata.stale(partition.topic)
                if failure is None or (failure.retriable and not outcome.retriable):
                    failure = outcome
        if failure is not None:
            raise failure

    await client.persist(attempt)
    return {partition: answers[partition] for partition in questions}


async def _by_leader(client: Client, questions: Mapping[TopicPartition, Q]) -> dict[int, dict[TopicPartition, Q]]:
    await client.metadata.refresh(dict.fromkeys(partition.topic for partition in questions))
    by_leader: dict[int, dict[TopicPartition, Q]] = {}
    for partition, question in questions.items():
        led = await client.metadata.leader(partition, timeout_ms=0)
        by_leader.setdefault(led.leader, {})[partition] = question
    return by_leader


async def _asked(
    ask: Ask[Q, A], node: int, questions: dict[TopicPartition, Q]
) -> dict[TopicPartition, A | ClientError]:
    try:
        return await ask(node, questions)
    except ClientError as error:
        return dict.fromkeys(questions, error)
