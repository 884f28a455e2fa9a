"""Implements `ottla consume --group`: read as a member of a group, and commit what was printed."""

import argparse
import asyncio
import sys
import time
from typing import BinaryIO

from ottla.cli.consume.command import POLL_MS, RECORDS_AT_ONCE, ConsumeCounts, form_of, on_failure_of
from ottla.cli.consume.lines import LineForm, line_of
from ottla.cli.consume.where import start_of
from ottla.cli.progress import ProgressLine
from ottla.client.client import Client
from ottla.client.consumer import END
from ottla.client.core.names import TopicPartition
from ottla.client.group_consumer import GroupConsumer
from ottla.client.offsets import LATEST, list_offsets

COMMIT_S = 1.0


class MemberEnds:
    """The end of the topic when the command started; with --follow it is never reached.

    A new member may have no partitions yet. So an empty assignment is accepted only after a while.
    """

    def __init__(self, consumer: GroupConsumer, ends: dict[TopicPartition, int] | None, patience_s: float) -> None:
        self._consumer = consumer
        self._ends = ends
        self._patient_until_s = time.monotonic() + patience_s

    def reached(self) -> bool:
        """Whether all assigned partitions are read up to the end."""
        if self._ends is None or not self._consumer.is_settled:
            return False
        mine = self._consumer.assignment
        if not mine:
            return time.monotonic() >= self._patient_until_s
        return all(self._consumer.position(one) >= self._ends.get(one, 0) for one in mine)


async def consume_as_member(client: Client, parsed: argparse.Namespace) -> int:
    start = start_of(parsed.start, client.ports.clock.wall_ms())
    topic = await client.metadata.topic(parsed.topic, timeout_ms=0)
    ends = None
    if not (parsed.follow or start == END):
        partitions = [TopicPartition(topic.name, one.index) for one in topic.partitions]
        at = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=parsed.committed)
        ends = {partition: found.offset for partition, found in at.items()}
    tally, terminal = ConsumeCounts(), sys.stdout.isatty()
    async with GroupConsumer(
        client,
        parsed.group,
        [topic.name],
        start=start,
        committed=parsed.committed,
        on_failure=on_failure_of(parsed),
    ) as consumer:
        try:
            with ProgressLine(shown=not terminal and not parsed.quiet) as progress:
                until = MemberEnds(consumer, ends, parsed.timeout)
                await _print(consumer, until, parsed, form_of(parsed), sys.stdout.buffer, tally, progress)
            if not consumer.assignment and not parsed.quiet:
                print(f"{parsed.group} has given this member no partition of {parsed.topic}", file=sys.stderr)
        finally:
            await consumer.commit()  # Everything that was printed, also after Ctrl-C.
            if not parsed.quiet and (terminal or parsed.limit is None):
                print(f"{tally.text(parsed.topic)}, as a member of {parsed.group}", file=sys.stderr)
    return 0


async def _print(
    consumer: GroupConsumer,
    ends: MemberEnds,
    parsed: argparse.Namespace,
    form: LineForm,
    out: BinaryIO,
    tally: ConsumeCounts,
    progress: ProgressLine,
) -> None:
    committed_s = time.monotonic()
    while not ends.reached():
        left = RECORDS_AT_ONCE if parsed.limit is None else min(RECORDS_AT_ONCE, parsed.limit - tally.records)
        if left == 0:
            return
        for record in await consumer.poll(timeout_ms=POLL_MS, records_max=left):
            out.write(line_of(record, form))
            tally.add(record)
        out.flush()
        if time.monotonic() - committed_s >= COMMIT_S:
            await consumer.commit()
            committed_s = time.monotonic()
        if progress.due:
            progress.say(tally.text(parsed.topic))
        await asyncio.sleep(0)
