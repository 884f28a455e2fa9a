"""Questions that only the leader of a partition answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from ottla.client.client import Client
from ottla.client.core.errors import ClientError
from ottla.client.core.names import TopicPartition

Q = TypeVar("Q")
A = TypeVar("A")
Ask = Callable[[int, dict[TopicPartition, Q]], Awaitable[dict[TopicPartition, A | ClientError]]]


async def ask_leaders(client: Client, questions: Mapping[TopicPartition, Q], ask: Ask[Q, A]) -> dict[TopicPartition, A]:
    """Ask each leader once for all of its partitions, and again what it could not answer yet.

    `ask` gets a node and the questions for it, and returns an answer or an error for each. Raises the first error that
    asking again cannot mend, or that lasts longer than the client's `api_timeout_ms`.
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
