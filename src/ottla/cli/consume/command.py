"""What `ottla consume` does."""

import argparse
import asyncio
import sys
import time
from typing import BinaryIO

from ottla.cli.consume.lines import LineForm, line_of
from ottla.cli.consume.where import start_of
from ottla.cli.errors import UserError
from ottla.cli.progress import Progress, rate
from ottla.cli.tables import counted, shown_size
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, OnFailure, Received, Start
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import LATEST, list_offsets

POLL_MS = 200
RECORDS_AT_ONCE = 500


class Tally:
    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.started_s = time.monotonic()

    def add(self, record: Received) -> None:
        self.records += 1
        self.bytes += len(record.key or b"") + len(record.value or b"")

    def text(self, topic: str) -> str:
        speed = rate(self.records, time.monotonic() - self.started_s)
        return f"{counted(self.records, 'record')} of {topic}, {shown_size(self.bytes)}{speed}"


class Ends:
    """Where to stop in each partition; with --follow nowhere."""

    def __init__(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
        self._consumer = consumer
        self._ends = ends

    def reached(self) -> bool:
        """Whether there is nothing more to read; partitions that are done are not fetched any more."""
        for partition in list(self._ends):
            if self._consumer.position(partition) >= self._ends[partition]:
                self._consumer.pause(partition)
                del self._ends[partition]
        return not self._ends

    def includes(self, record: Received) -> bool:
        """A record that was written after the command began is not part of what was there."""
        end = self._ends.get(TopicPartition(record.topic, record.partition))
        return end is not None and record.offset < end


async def consume(client: Client, parsed: argparse.Namespace) -> int:
    start = start_of(parsed.start, client.ports.clock.wall_ms())
    follow = parsed.follow or start == END
    partitions = await _partitions(client, parsed)
    out, form = sys.stdout.buffer, form_of(parsed)
    terminal = sys.stdout.isatty()
    tally = Tally()
    async with Consumer(client, committed=parsed.committed, on_failure=on_failure_of(parsed)) as consumer:
        ends = None
        if not follow:
            at = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=parsed.committed)
            ends = Ends(consumer, {partition: found.offset for partition, found in at.items()})
        await consumer.assign(await _starts(client, partitions, start))
        try:
            with Progress(shown=not terminal and not parsed.quiet) as progress:
                await _print(consumer, ends, parsed, form, out, tally, progress)
        finally:
            out.flush()
            if not parsed.quiet and (terminal or parsed.limit is None):
                print(tally.text(parsed.topic), file=sys.stderr)
    return 0


def form_of(parsed: argparse.Namespace) -> LineForm:
    terminal = sys.stdout.isatty()
    return LineForm(parsed.json, parsed.offsets, parsed.timestamps, parsed.keys, parsed.headers, terminal)


def on_failure_of(parsed: argparse.Namespace) -> OnFailure:
    return OnFailure.SKIP if parsed.skip_damaged else OnFailure.STOP


async def _print(
    consumer: Consumer,
    ends: Ends | None,
    parsed: argparse.Namespace,
    form: LineForm,
    out: BinaryIO,
    tally: Tally,
    progress: Progress,
) -> None:
    while ends is None or not ends.reached():
        left = RECORDS_AT_ONCE if parsed.limit is None else min(RECORDS_AT_ONCE, parsed.limit - tally.records)
        if left == 0:
            return
        records = await consumer.poll(timeout_ms=POLL_MS, records_max=left)
        for record in records:
            if ends is None or ends.includes(record):
                out.write(line_of(record, form))
                tally.add(record)
        if ends is None:
            out.flush()  # Whoever follows wants to see it now.
        if progress.due:
            progress.say(tally.text(parsed.topic))
        await asyncio.sleep(0)


async def _partitions(client: Client, parsed: argparse.Namespace) -> list[TopicPartition]:
    topic = await client.metadata.topic(parsed.topic, timeout_ms=0)
    count = len(topic.partitions)
    wanted = range(count) if parsed.partitions is None else dict.fromkeys(parsed.partitions)
    for partition in wanted:
        if not 0 <= partition < count:
            raise UserError(f"topic {topic.name} has no partition {partition}: it has 0 to {count - 1}")
    return [TopicPartition(topic.name, partition) for partition in wanted]


async def _starts(client: Client, partitions: list[TopicPartition], start: Start) -> dict[TopicPartition, Start]:
    """An offset that one of several partitions does not have (yet) means its nearest one: its beginning or its end."""
    if start.offset is None or len(partitions) == 1:
        return dict.fromkeys(partitions, start)
    first = await list_offsets(client, dict.fromkeys(partitions, BEGINNING.moment or 0))
    last = await list_offsets(client, dict.fromkeys(partitions, LATEST))
    return {
        partition: Start(offset=min(max(start.offset, first[partition].offset), last[partition].offset))
        for partition in partitions
    }
