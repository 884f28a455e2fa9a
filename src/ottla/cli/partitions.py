"""Formats and parses partitions: `orders` is a topic, `orders:0,2` two partitions of it."""

from collections.abc import Iterable, Mapping

from ottla.cli.errors import UserError
from ottla.client.admin import Admin
from ottla.client.core.names import TopicPartition

Choice = dict[str, list[int] | None]  # Topic to partitions; None: all of them.


def choice_of(given: Iterable[str], option: str) -> Choice:
    """Parse TOPIC and TOPIC:PARTITION,... texts. Raises UserError."""
    chosen: Choice = {}
    for text in given:
        topic, separator, numbers = text.partition(":")
        if not topic or (separator and not all(part.isascii() and part.isdecimal() for part in numbers.split(","))):
            raise UserError(f"{option} {text!r}: expected TOPIC or TOPIC:PARTITION,..., as in orders:0,2")
        before = chosen.get(topic, [])
        if not separator or before is None:
            chosen[topic] = None
        else:
            chosen[topic] = sorted({*before, *map(int, numbers.split(","))})
    return chosen


async def existing(admin: Admin, choice: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    """The chosen partitions. Raises UserError for one that does not exist, ClientError for a topic that does not."""
    partitions: list[TopicPartition] = []
    for name, numbers in choice.items():
        count = len((await admin.describe_topic(name)).partitions)
        for number in numbers or ():
            if number >= count:
                raise UserError(f"topic {name} has no partition {number}: it has 0 to {count - 1}")
        partitions += [TopicPartition(name, number) for number in (range(count) if numbers is None else numbers)]
    return partitions


def shown_partitions(partitions: Iterable[TopicPartition]) -> str:
    """The partitions as text, with consecutive numbers as ranges: `orders:0-3,7 payments:1`."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{_runs(numbers)}" for topic, numbers in topics.items())


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
