"""Reads dead letters, and filters them by the conditions of the command line.

Rule 1: a filter depends on the letter alone, so that it selects the same letters whenever it is applied.
Rule 2: reading ends where the topic ended when it began: a record that is sent back may fail again and be appended.
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ottla.cli.errors import UserError
from ottla.cli.partitions import choice_of, existing
from ottla.cli.times import MOMENT_FORMS, moment_ms
from ottla.client import BEGINNING, Admin, Client, Consumer, Received, Start, TopicPartition
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipelines.sink.dead_letters import LetterOrigin, origin_of


class DeadLetter(NamedTuple):
    record: Received
    origin: LetterOrigin

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)


@dataclass(frozen=True)
class LetterFilter:
    """The conditions that select dead letters. Empty and None are no condition."""

    errors: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def takes(self, letter: DeadLetter) -> bool:
        record, origin = letter
        error = (origin.error or "").lower()
        return (
            (not self.errors or any(text.lower() in error for text in self.errors))
            and (not self.sources or origin.topic in self.sources)
            and (not self.pipelines or origin.pipeline in self.pipelines)
            and (self.since_ms is None or record.timestamp >= self.since_ms)
            and (self.until_ms is None or record.timestamp < self.until_ms)
            and (self.from_offset is None or record.offset >= self.from_offset)
            and (self.to_offset is None or record.offset < self.to_offset)
        )

    def document(self) -> dict[str, Any]:
        """The conditions that are given, as a JSON object."""
        return {name: value for name, value in asdict(self).items() if value not in ((), None)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "LetterFilter":
        """Raises TypeError if the document is not a filter."""
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in document.items()}
        return cls(**given)


def choice_from(parsed: argparse.Namespace, now_ms: int) -> LetterFilter:
    """The filter of the command's arguments. Raises UserError for a malformed time."""
    return LetterFilter(
        tuple(sorted(set(parsed.errors))),
        tuple(sorted(set(parsed.sources))),
        tuple(sorted(set(parsed.pipelines))),
        _moment(parsed.since, "--since", now_ms),
        _moment(parsed.until, "--until", now_ms),
        parsed.from_offset,
        parsed.to_offset,
    )


async def partitions_of(client: Client, parsed: argparse.Namespace) -> list[TopicPartition]:
    return await existing(Admin(client), choice_of([parsed.topic], "TOPIC"))


async def letters(
    client: Client,
    partitions: list[TopicPartition],
    choice: LetterFilter,
    after: Mapping[TopicPartition, int] | None = None,
) -> AsyncIterator[list[DeadLetter]]:
    """All letters of the partitions, in parts. `after` holds offsets to continue at; `choice` only bounds the read."""
    first = await list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=True)
    due = {
        place: at.offset if choice.to_offset is None else min(at.offset, choice.to_offset) for place, at in ends.items()
    }
    starts = {
        place: max(at.offset, (after or {}).get(place, 0), choice.from_offset or 0) for place, at in first.items()
    }
    if choice.since_ms is not None:
        for place, at in (await list_offsets(client, dict.fromkeys(partitions, choice.since_ms))).items():
            starts[place] = max(starts[place], at.offset if at.offset >= 0 else due[place])
    async with Consumer(client, committed=True, reset=BEGINNING) as consumer:
        await consumer.assign({place: Start(offset=start) for place, start in starts.items() if start < due[place]})
        while any(consumer.position(place) < due[place] for place in consumer.assignment):
            received = await consumer.poll()
            read = [DeadLetter(one, origin_of(one.headers)) for one in received if one.offset < due[_place(one)]]
            if read:
                yield read


def _place(record: Received) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _moment(text: str | None, option: str, now_ms: int) -> int | None:
    if text is None:
        return None
    moment = moment_ms(text, now_ms)
    if moment is None:
        raise UserError(f"{option} {text!r}: expected {MOMENT_FORMS}")
    return moment
