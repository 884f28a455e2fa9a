"""Answers of many connections leave together, but no client waits for hundreds of others."""

import asyncio
from dataclasses import dataclass, field

from ottla.broker.network.send_round import SendRound


@dataclass(eq=False)
class Recording:
    """A connection that has an answer."""

    name: int
    sent: list[int] = field(repr=False)

    def send_ready(self) -> None:
        self.sent.append(self.name)


def added_in_one_round(count: int) -> tuple[list[int], list[int]]:
    """So many connections have answers: what has left within the round, and what when it was over."""

    async def main() -> tuple[list[int], list[int]]:
        send_round, sent = SendRound(), list[int]()
        for name in range(count):
            send_round.add(Recording(name, sent))
        within = list(sent)
        await asyncio.sleep(0)
        return within, sent

    return asyncio.run(main())


def test_a_few_answers_leave_at_the_end_of_the_round() -> None:
    within, sent = added_in_one_round(3)
    assert (within, sent) == ([], [0, 1, 2])


def test_of_many_answers_the_first_do_not_wait_for_the_last() -> None:
    """Three hundred members join at once: the first would idle until the last join is decided."""
    within, sent = added_in_one_round(100)
    assert within == list(range(len(within)))
    assert 0 < len(within) < 100
    assert sent == list(range(100)), "every answer leaves, once and in order"
