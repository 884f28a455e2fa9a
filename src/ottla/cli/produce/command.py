"""Implements `ottla produce`."""

import argparse
import asyncio
import sys
import time

from ottla.cli.arguments import pairs
from ottla.cli.errors import ClusterError, UserError
from ottla.cli.produce.arguments import ACKS
from ottla.cli.produce.lines import InputRecord, LineRules, LineSplitter, draft_of
from ottla.cli.produce.source import pieces
from ottla.cli.progress import ProgressLine, rate
from ottla.cli.remote import error_text
from ottla.cli.tables import counted, shown_size
from ottla.client.client import Client
from ottla.client.producer import Delivery, Producer
from ottla.kernel import Codec
from ottla.rpc.errors import ClientError

TOPIC_WAIT_MS = 3_000
BREATH = 200  # Lines.


class ProduceCounts:
    """The lines delivered and failed."""

    def __init__(self) -> None:
        self.delivered = self.bytes = 0
        self.failure: tuple[int, ClientError] | None = None  # The first line that failed, and why.
        self.started_s = time.monotonic()

    def follow(self, delivered: "asyncio.Future[Delivery]", line: int, size: int) -> None:
        delivered.add_done_callback(lambda done: self._settled(done, line, size))

    def _settled(self, done: "asyncio.Future[Delivery]", line: int, size: int) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.delivered += 1
            self.bytes += size
        elif isinstance(error, ClientError) and (self.failure is None or line < self.failure[0]):
            self.failure = line, error

    def text(self, topic: str) -> str:
        speed = rate(self.delivered, time.monotonic() - self.started_s)
        return f"{counted(self.delivered, 'record')} to {topic}, {shown_size(self.bytes)}{speed}"


async def produce(client: Client, parsed: argparse.Namespace) -> int:
    rules = rules_of(parsed)
    # Before anything is read: a wrong topic must not consume the piped input.
    await client.metadata.topic(parsed.topic, timeout_ms=TOPIC_WAIT_MS, create=True)
    typing = parsed.file is None and sys.stdin.isatty()
    if typing and not parsed.quiet:
        print("A line is a record; Ctrl-D ends.", file=sys.stderr)
    tally = ProduceCounts()
    producer = Producer(
        client,
        acks=ACKS[parsed.acks],
        codec=Codec[parsed.codec.upper()],
        batch_bytes=parsed.batch_bytes,
        linger_ms=max(0, parsed.linger_ms),
        delivery_timeout_ms=int(parsed.timeout * 1000),
        record_bytes_max=parsed.record_bytes,
    )
    try:
        with ProgressLine(shown=not typing and not parsed.quiet) as progress:
            await _send_all(producer, parsed, rules, tally, progress)
            await producer.flush()
    except asyncio.CancelledError:
        await producer.close(flush=False)
        _say(parsed, f"interrupted: {tally.text(parsed.topic)}")
        raise
    except UserError:
        # A line is not a valid record: the ones before it are still sent.
        await producer.flush()
        _say(parsed, tally.text(parsed.topic))
        raise
    finally:
        await producer.close(flush=False)
    if tally.failure is not None:
        line, error = tally.failure
        kept = f"\n       Delivered: {tally.text(parsed.topic)}" if tally.delivered else ""
        raise ClusterError(f"line {line}: {error_text(error)}{kept}")
    _say(parsed, tally.text(parsed.topic))
    return 0


async def _send_all(
    producer: Producer, parsed: argparse.Namespace, rules: LineRules, tally: ProduceCounts, progress: ProgressLine
) -> None:
    splitter = LineSplitter()
    number = 0
    async for piece in pieces(parsed.file):
        for line in splitter.feed(piece):
            number += 1
            await _send(producer, parsed.topic, draft_of(line, number, rules), tally, number)
            if tally.failure is not None:
                return
            if number % BREATH == 0:
                await asyncio.sleep(0)  # Lets the producer's task run.
            if progress.due:
                progress.say(tally.text(parsed.topic))
    for line in splitter.feed(b""):
        number += 1
        await _send(producer, parsed.topic, draft_of(line, number, rules), tally, number)


async def _send(producer: Producer, topic: str, draft: InputRecord, tally: ProduceCounts, number: int) -> None:
    if not producer.has_room:
        await producer.room()
    try:
        delivered = producer.send(
            topic,
            draft.value,
            key=draft.key,
            headers=draft.headers,
            timestamp=draft.timestamp,
            partition=draft.partition,
        )
    except ClientError as error:
        await producer.flush()
        tally.failure = number, error
        return
    tally.follow(delivered, number, len(draft.key or b"") + len(draft.value or b""))


def rules_of(parsed: argparse.Namespace) -> LineRules:
    """The rules for parsing lines, from the options. Raises UserError if options contradict each other."""
    if parsed.json and (parsed.key_separator is not None or parsed.null is not None):
        raise UserError("--json lines contain key and value: leave out --key-separator and --null")
    if parsed.key is not None and parsed.key_separator is not None:
        raise UserError("--key and --key-separator both give the key of a record: use one of them")
    if parsed.key_separator == "":
        raise UserError("--key-separator is empty: give the text that ends the key, as in --key-separator :")
    return LineRules(
        parsed.json,
        None if parsed.key_separator is None else parsed.key_separator.encode(),
        None if parsed.key is None else parsed.key.encode(),
        None if parsed.null is None else parsed.null.encode(),
        tuple((name, value.encode()) for name, value in pairs(parsed.header, "--header").items()),
        parsed.partition,
    )


def _say(parsed: argparse.Namespace, text: str) -> None:
    if not parsed.quiet:
        print(text, file=sys.stderr)
