"""`ottla dlq redrive`: plans which dead letters to send back, and sends them.

Rule 1: nothing is sent without --execute. The dry run shows what would be sent.
Rule 2: letters and the position past them are committed in one transaction. So a redrive that was interrupted continues
        without a gap and sends nothing twice. One redrive of a topic runs at a time: a second one fences the first.
Rule 3: a letter that was already sent back `--max-redrives` times is left, since it would only fail again.
"""

import argparse
import asyncio
import sys
from collections import Counter
from typing import Any, Final, NamedTuple

from rich.text import Text

from ottla.cli.dlq.history import PREFIX, RedriveHistory, RedriveOrder, history_of
from ottla.cli.dlq.letters import DeadLetter, choice_from, letters, partitions_of
from ottla.cli.errors import FAILED, ClusterError, UserError
from ottla.cli.plain import json_line
from ottla.cli.progress import ProgressLine
from ottla.cli.tables import TableColumn, counted, number, print_table, stdout
from ottla.client import Admin, Client, Delivery, GroupMetadata, Producer, ProducerFenced, TopicPartition
from ottla.client.group_offsets import Committed
from ottla.pipelines.sink.dead_letters import headers_sent_back

METADATA_MAX: Final = 4_000
"""By default brokers accept at most 4,096 bytes of metadata with a committed offset."""
SENT: Final = ""
BEFORE: Final = "were sent back before"
NO_SOURCE: Final = "do not name their source topic; --to TOPIC sends them to a topic"


class RedriveDecision(NamedTuple):
    """The topic that letters are sent to, and the reason why they are not sent, or SENT."""

    topic: str | None
    reason: str


class Redrive:
    """One redrive order, planned or executed."""

    def __init__(self, client: Client, dead_topic: str, order: RedriveOrder, history: RedriveHistory) -> None:
        self.decisions: Counter[RedriveDecision] = Counter()
        self._client = client
        self._dead_topic = dead_topic
        self._order = order
        self._history = history
        self._partitions: dict[str, int] = {}

    def decision(self, letter: DeadLetter) -> RedriveDecision | None:
        """The decision for a letter; None if the filter does not select it."""
        if not self._order.choice.takes(letter):
            return None
        topic = self._order.to or letter.origin.topic
        if topic is None:
            return RedriveDecision(None, NO_SOURCE)
        if letter.origin.redrives >= self._order.redrives_max:
            return RedriveDecision(topic, f"were sent back {self._order.redrives_max} times already and failed again")
        if self._history.has_sent(letter):
            return RedriveDecision(topic, BEFORE)
        return RedriveDecision(topic, SENT)

    async def plan(self, some: list[DeadLetter]) -> list[DeadLetter]:
        """Count the decisions, and return the letters to send. Raises ClusterError for a topic that does not exist."""
        chosen = []
        for letter in some:
            decision = self.decision(letter)
            if decision is None:
                continue
            self.decisions[decision] += 1
            if decision.topic is not None and decision.reason == SENT:
                await self._check(decision.topic)
                chosen.append(letter)
        return chosen

    async def send(self, producer: Producer, some: list[DeadLetter]) -> None:
        """Send those letters that are to be sent, and commit the position past all of them, in one transaction."""
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

    def _partition(self, letter: DeadLetter, topic: str) -> int | None:
        """The record's original partition if it goes back to its source topic; None: chosen by its key."""
        partition = letter.origin.partition
        known = topic == letter.origin.topic and partition is not None and partition < self._partitions[topic]
        return partition if known else None

    async def _check(self, topic: str) -> None:
        if topic in self._partitions:
            return
        if topic == self._dead_topic:
            raise UserError(
                f"{topic} is the dead-letter topic itself: letters sent there would be read again without end"
            )
        found = (await Admin(self._client).list_topics()).get(topic)
        if found is None:
            raise ClusterError(
                f"dead letters come from topic {topic}, which does not exist\n"
                f"       Create it, send them elsewhere with --to TOPIC, or leave them out with --source."
            )
        self._partitions[topic] = len(found.partitions)


def _seen(sent: "asyncio.Future[Delivery]") -> None:
    """Mark the future's exception as seen: the transaction raises it."""
    if not sent.cancelled():
        sent.exception()


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be found without asking the cluster."""
    if parsed.to is not None and parsed.to == parsed.topic.partition(":")[0]:
        raise UserError(f"--to {parsed.to} is the dead-letter topic itself: letters sent there would be read again")


async def redrive(client: Client, parsed: argparse.Namespace) -> int:
    topic = parsed.topic.partition(":")[0]
    order = RedriveOrder(choice_from(parsed, client.ports.clock.wall_ms()), parsed.to, parsed.max_redrives)
    if len(order.metadata) > METADATA_MAX:
        raise UserError(f"the conditions take more than {METADATA_MAX:,} characters, the limit of a redrive: use fewer")
    partitions = await partitions_of(client, parsed)
    if not parsed.execute:
        redriving = Redrive(client, topic, order, await history_of(client, topic, partitions))
        async for some in letters(client, partitions, order.choice):
            await redriving.plan(some)
        _print(parsed, redriving.decisions, done=False)
        print("dry run: nothing was sent; --execute does it", file=sys.stderr)
        return 0
    try:
        redriving = await _execute(client, topic, partitions, order)
    except ProducerFenced:
        print(f"ottla: another redrive of {topic} has started and goes on; this one has ended", file=sys.stderr)
        return FAILED
    _print(parsed, redriving.decisions, done=True)
    return 0


async def _execute(client: Client, topic: str, partitions: list[TopicPartition], order: RedriveOrder) -> Redrive:
    # Only the holder of the transactional id sends, so the history is read after the id is taken.
    async with Producer(client, transactional_id=f"{PREFIX}.{topic}") as producer:
        history = await history_of(client, topic, partitions)
        redriving = Redrive(client, topic, order, history)
        sent = 0
        with ProgressLine() as progress:
            async for some in letters(client, partitions, order.choice, history.positions(order)):
                await redriving.send(producer, some)
                sent += len(some)
                if progress.due:
                    progress.say(f"{sent:,} letters done")
        return redriving


def _print(parsed: argparse.Namespace, decisions: Counter[RedriveDecision], *, done: bool) -> None:
    if parsed.json:
        for (topic, reason), count in sorted(decisions.items(), key=str):
            sys.stdout.write(json_line(fields(topic, reason, count, done=done)))
        return
    if not decisions:
        print(f"{parsed.topic} holds no dead letter that meets the conditions", file=sys.stderr)
        return
    rows: list[list[str | Text]] = [
        [f"{count:,}", topic or "", reason or ("sent back" if done else "to be sent back")]
        for (topic, reason), count in sorted(decisions.items(), key=lambda one: (one[0].reason != SENT, str(one)))
    ]
    print_table(stdout(), [number("Count"), TableColumn("Topic", wraps=True), TableColumn("What", wraps=True)], rows)
    if done:
        total = sum(count for decision, count in decisions.items() if decision.reason == SENT)
        print(f"{counted(total, 'dead letter')} of {parsed.topic} sent back", file=sys.stderr)


def fields(topic: str | None, reason: str, count: int, *, done: bool) -> dict[str, Any]:
    return {"topic": topic, "count": count, "redriven": reason == SENT, "reason": reason or None, "applied": done}
