"""Implements `ottla consume`."""

import argparse
import asyncio
import sys
import time
from typing import BinaryIO

from ottla.cli.consume.lines import LineForm, line_of
from ottla.cli.consume.where import start_of
from ottla.cli.errors import UserError
from ottla.cli.progress import ProgressLine, rate
from ottla.cli.tables import counted, shown_size
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, OnFailure, Received, Start
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import LATEST, list_offsets

POLL_MS = 200
RECORDS_AT_ONCE = 500


class ConsumeCounts:
    """Records and bytes printed, for the summary."""

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
    """The offset to stop at in each partition; with --follow there is none."""

    def __init__(self, consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
        self._consumer = consumer
        self._ends = ends

    def reached(self) -> bool:
        """Whether everything is read; finished partitions are not fetched any more."""
        for partition in list(self._ends):
            if self._consumer.position(partition) >= self._ends[partition]:
                self._consumer.pause(partition)
                del self._ends[partition]
        return not self._ends

    def includes(self, record: Received) -> bool:
        """Whether the record existed when the command started."""
        end = self._ends.get(TopicPartition(record.topic, record.partition))
        return end is not None and record.offset < end


async def consume(client: Client, parsed: argparse.Namespace) -> int:
    start = start_of(parsed.start, client.ports.clock.wall_ms())
    follow = parsed.follow or start == END
    partitions = await _partitions(client, parsed)
    out, form = sys.stdout.buffer, form_of(parsed)
    terminal = sys.stdout.isatty()
    tally = ConsumeCounts()
    async with Consumer(client, committed=parsed.committed, on_failure=on_failure_of(parsed)) as consumer:
        ends = None
        if not follow:
            at = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=parsed.committed)
            ends = Ends(consumer, {partition: found.offset for partition, found in at.items()})
        await consumer.assign(await _starts(client, partitions, start))
        try:
            with ProgressLine(shown=not terminal and not parsed.quiet) as progress:
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
    tally: ConsumeCounts,
    progress: ProgressLine,
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
            out.flush()  # With --follow each record is shown at once.
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
    """Where to begin in each partition. If there are several, an offset before or after a partition's log is replaced
    by the beginning or the end of that log."""
    if start.offset is None or len(partitions) == 1:
        return dict.fromkeys(partitions, start)
    first = await list_offsets(client, dict.fromkeys(partitions, BEGINNING.moment or 0))
    last = await list_offsets(client, dict.fromkeys(partitions, LATEST))
    return {
        partition: Start(offset=min(max(start.offset, first[partition].offset), last[partition].offset))
        for partition in partitions
    }
