"""Sending dead letters back: what is planned, and doing it.

Rule 1: nothing is sent without --execute. What is shown is what would be sent.
Rule 2: letters and the progress past them are one transaction: what was interrupted goes on without a gap and without
        sending anything twice. One redrive of a topic runs at a time: a second one fences the first.
Rule 3: a letter that was sent back `--max-redrives` times already stays where it is: it would only come again.
"""

import argparse
import asyncio
import sys
from collections import Counter
from typing import Any, Final, NamedTuple

from rich.text import Text

from ottla.cli.dlq.history import PREFIX, History, Order, history_of
from ottla.cli.dlq.letters import Letter, choice_from, letters, partitions_of
from ottla.cli.errors import FAILED, ClusterError, UserError
from ottla.cli.plain import json_line
from ottla.cli.progress import Progress
from ottla.cli.tables import Column, counted, number, print_table, stdout
from ottla.client import Admin, Client, Delivery, GroupMetadata, Producer, ProducerFenced, TopicPartition
from ottla.client.group_offsets import Committed
from ottla.pipelines.dead_letters import headers_sent_back

METADATA_MAX: Final = 4_000
"""Of what a group commits brokers keep 4,096 bytes, by default."""
SENT: Final = ""
BEFORE: Final = "were sent back before"
NO_SOURCE: Final = "do not say whence they come; --to TOPIC sends them anywhere"


class Fate(NamedTuple):
    """Where letters go, or why they stay."""

    topic: str | None
    stays: str


class Redriving:
    """One order, carried out or only planned."""

    def __init__(self, client: Client, dead_topic: str, order: Order, history: History) -> None:
        self.fates: Counter[Fate] = Counter()
        self._client = client
        self._dead_topic = dead_topic
        self._order = order
        self._history = history
        self._partitions: dict[str, int] = {}

    def fate(self, letter: Letter) -> Fate | None:
        """None of a letter that is not meant."""
        if not self._order.choice.takes(letter):
            return None
        topic = self._order.to or letter.origin.topic
        if topic is None:
            return Fate(None, NO_SOURCE)
        if letter.origin.redrives >= self._order.redrives_max:
            return Fate(topic, f"were sent back {self._order.redrives_max} times already and died again")
        if self._history.has_sent(letter):
            return Fate(topic, BEFORE)
        return Fate(topic, SENT)

    async def plan(self, some: list[Letter]) -> list[Letter]:
        """Count the letters' fates; those that are to be sent. Raises ClusterError for a topic that is not there."""
        chosen = []
        for letter in some:
            fate = self.fate(letter)
            if fate is None:
                continue
            self.fates[fate] += 1
            if fate.topic is not None and fate.stays == SENT:
                await self._check(fate.topic)
                chosen.append(letter)
        return chosen

    async def send(self, producer: Producer, some: list[Letter]) -> None:
        """Send what is to be sent of some letters, and move past all of them."""
        chosen = await self.plan(some)
        past = {letter.place: letter.record.offset + 1 for letter in some}
        offsets = {place: Committed(offset, -1, self._order.metadata) for place, offset in past.items()}
        async with producer.transaction() as transaction:
            for letter in chosen:
                await producer.room()
                record, topic = letter.record, self._order.to or letter.origin.topic
                assert topic is not None
                sent = producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=headers_sent_back(record.headers),
                    partition=self._partition(letter, topic),
                )
                sent.add_done_callback(_seen)
            await transaction.send_offsets(offsets, GroupMetadata(self._order.group_id(self._dead_topic)))

    def _partition(self, letter: Letter, topic: str) -> int | None:
        """The one it comes from, if it goes back there: whoever chose it may have had reasons. Else by its key."""
        partition = letter.origin.partition
        known = topic == letter.origin.topic and partition is not None and partition < self._partitions[topic]
        return partition if known else None

    async def _check(self, topic: str) -> None:
        if topic in self._partitions:
            return
        if topic == self._dead_topic:
            raise UserError(f"{topic} is the dead-letter topic itself: letters sent there would be read again for ever")
        found = (await Admin(self._client).list_topics()).get(topic)
        if found is None:
            raise ClusterError(
                f"dead letters come from topic {topic}, which does not exist\n"
                f"       Create it, send them elsewhere with --to TOPIC, or leave them out with --source."
            )
        self._partitions[topic] = len(found.partitions)


def _seen(sent: "asyncio.Future[Delivery]") -> None:
    """The transaction tells what went wrong, once for all of them."""
    if not sent.cancelled():
        sent.exception()


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for what no cluster need be asked about."""
    if parsed.to is not None and parsed.to == parsed.topic.partition(":")[0]:
        raise UserError(f"--to {parsed.to} is the dead-letter topic itself: letters sent there would be read again")


async def redrive(client: Client, parsed: argparse.Namespace) -> int:
    topic = parsed.topic.partition(":")[0]
    order = Order(choice_from(parsed, client.ports.clock.wall_ms()), parsed.to, parsed.max_redrives)
    if len(order.metadata) > METADATA_MAX:
        raise UserError(f"so many conditions do not fit beside the progress ({METADATA_MAX:,} characters): use fewer")
    partitions = await partitions_of(client, parsed)
    if not parsed.execute:
        redriving = Redriving(client, topic, order, await history_of(client, topic, partitions))
        async for some in letters(client, partitions, order.choice):
            await redriving.plan(some)
        _print(parsed, redriving.fates, done=False)
        print("dry run: nothing was sent; --execute does it", file=sys.stderr)
        return 0
    try:
        redriving = await _execute(client, topic, partitions, order)
    except ProducerFenced:
        print(f"ottla: another redrive of {topic} began, and this one has ended; that one goes on", file=sys.stderr)
        return FAILED
    _print(parsed, redriving.fates, done=True)
    return 0


async def _execute(client: Client, topic: str, partitions: list[TopicPartition], order: Order) -> Redriving:
    # Whoever has the id runs alone, so what was done before is read when it is taken.
    async with Producer(client, transactional_id=f"{PREFIX}.{topic}") as producer:
        history = await history_of(client, topic, partitions)
        redriving = Redriving(client, topic, order, history)
        sent = 0
        with Progress() as progress:
            async for some in letters(client, partitions, order.choice, history.positions(order)):
                await redriving.send(producer, some)
                sent += len(some)
                if progress.due:
                    progress.say(f"{sent:,} letters done")
        return redriving


def _print(parsed: argparse.Namespace, fates: Counter[Fate], *, done: bool) -> None:
    if parsed.json:
        for (topic, stays), count in sorted(fates.items(), key=str):
            sys.stdout.write(json_line(fields(topic, stays, count, done=done)))
        return
    if not fates:
        print(f"{parsed.topic} holds no dead letter that is meant", file=sys.stderr)
        return
    rows: list[list[str | Text]] = [
        [f"{count:,}", topic or "", stays or ("sent back" if done else "to be sent back")]
        for (topic, stays), count in sorted(fates.items(), key=lambda one: (one[0].stays != SENT, str(one)))
    ]
    print_table(stdout(), [number("Count"), Column("Topic", wraps=True), Column("What", wraps=True)], rows)
    if done:
        total = sum(count for fate, count in fates.items() if fate.stays == SENT)
        print(f"{counted(total, 'dead letter')} of {parsed.topic} sent back", file=sys.stderr)


def fields(topic: str | None, stays: str, count: int, *, done: bool) -> dict[str, Any]:
    return {"topic": topic, "count": count, "redriven": stays == SENT, "reason": stays or None, "applied": done}
