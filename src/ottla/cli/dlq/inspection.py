"""`ottla dlq inspect`: counts dead letters by error and by source, and shows samples of each error."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from ottla.cli.dlq.letters import DeadLetter, choice_from, letters, partitions_of
from ottla.cli.log.tables import shown_time
from ottla.cli.plain import json_line, to_plain
from ottla.cli.progress import ProgressLine
from ottla.cli.tables import TableColumn, counted, number, print_table, stdout
from ottla.client import Client

LetterSource = tuple[str | None, str | None]
"""Topic and pipeline."""
_SHOWN = 300  # Characters of a value in a sample.


class LetterTally:
    """Counts and samples of the letters that the filter selects."""

    def __init__(self, samples_max: int) -> None:
        self.count = 0
        self.errors: Counter[str] = Counter()
        self.sources: Counter[LetterSource] = Counter()
        self.samples: dict[str, list[DeadLetter]] = {}
        self.redriven = 0
        self.first_ms, self.last_ms = -1, -1
        self._samples_max = samples_max

    def add(self, some: Iterable[DeadLetter]) -> None:
        for letter in some:
            origin, time_ms = letter.origin, letter.record.timestamp
            self.count += 1
            self.errors[origin.kind] += 1
            self.sources[origin.topic, origin.pipeline] += 1
            self.redriven += origin.redrives > 0
            self.first_ms = time_ms if self.first_ms < 0 else min(self.first_ms, time_ms)
            self.last_ms = max(self.last_ms, time_ms)
            kept = self.samples.setdefault(origin.kind, [])
            if len(kept) < self._samples_max:
                kept.append(letter)


async def inspect(client: Client, parsed: argparse.Namespace) -> int:
    choice = choice_from(parsed, client.ports.clock.wall_ms())
    partitions = await partitions_of(client, parsed)
    tally, read = LetterTally(parsed.samples), 0
    with ProgressLine(shown=not parsed.json) as progress:
        async for some in letters(client, partitions, choice):
            tally.add(letter for letter in some if choice.takes(letter))
            read += len(some)
            if progress.due:
                progress.say(f"{read:,} read")
    if parsed.json:
        for line in json_fields(tally):
            sys.stdout.write(json_line(line))
    elif tally.count:
        _print(parsed.topic, tally)
    else:
        selected = " that meets the conditions" if read else ""
        print(f"{parsed.topic} holds no dead letter{selected}", file=sys.stderr)
    return 0


def json_fields(tally: LetterTally) -> Iterable[dict[str, Any]]:
    for kind, count in tally.errors.most_common():
        yield {"what": "error", "error": kind, "count": count}
    for (topic, pipeline), count in tally.sources.most_common():
        yield {"what": "source", "topic": topic, "pipeline": pipeline, "count": count}
    for kept in tally.samples.values():
        for letter in kept:
            yield {"what": "letter", **letter_fields(letter)}


def letter_fields(letter: DeadLetter) -> dict[str, Any]:
    record, origin = letter
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "origin": origin._asdict(),
        "key": record.key,
        "value": record.value,
        "headers": [[name, value] for name, value in record.headers],
    }


def _print(topic: str, tally: LetterTally) -> None:
    console = stdout()
    again = f", {tally.redriven:,} of which were sent back before" if tally.redriven else ""
    first, last = (shown_time(time_ms, wide=False) for time_ms in (tally.first_ms, tally.last_ms))
    console.print(Text(f"{counted(tally.count, 'dead letter')} in {topic}{again}", "bold"))
    console.print(Text(f"from {first} to {last} UTC"))
    console.print()
    errors = [(f"{count:,}", kind) for kind, count in tally.errors.most_common()]
    print_table(console, [number("Count"), TableColumn("Error", wraps=True)], errors)
    console.print()
    sources = [
        (f"{count:,}", source or "unknown", pipeline or "unknown")
        for (source, pipeline), count in tally.sources.most_common()
    ]
    print_table(
        console,
        [number("Count"), TableColumn("Source topic", wraps=True), TableColumn("Pipeline", wraps=True)],
        sources,
    )
    for kept in tally.samples.values():
        for letter in kept:
            console.print()
            _print_letter(letter)


def _print_letter(letter: DeadLetter) -> None:
    record, origin = letter
    console = stdout()
    source = "source unknown"
    if origin.topic is not None:
        source = f"from {origin.topic}"
        if origin.partition is not None:
            source += f":{origin.partition}"
        if origin.offset is not None:
            source += f" offset {origin.offset:,}"
    console.print(Text(f"{record.topic}:{record.partition} offset {record.offset:,}, {source}", "bold"))
    console.print(Text(f"  error  {origin.error or 'unknown'}"))
    for name, value in (("key", record.key), ("value", record.value)):
        console.print(Text(f"  {name:<5}  {shown(value)}"))


def shown(value: bytes | None) -> str:
    """Printable text unchanged but cut to _SHOWN characters; other bytes with Python's escapes."""
    if value is None:
        return "none"
    plain = to_plain(value)
    text = plain if isinstance(plain, str) and plain.isprintable() else repr(value)[2:-1]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(value):,} bytes)"
