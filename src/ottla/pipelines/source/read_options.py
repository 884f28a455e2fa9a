"""The options of the Spark source `ottla-topic`: as a value, and as the text options that Spark takes.

spark.readStream.format("ottla-topic").option("bootstrap", "127.0.0.1:9092").option("topics", "orders").load()
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from ottla.client.core.names import TopicPartition
from ottla.pipelines.source.ranges import from_document, to_document
from ottla.pipelines.spec.model import DataLoss, Isolation, StartPosition, TopicSource
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS

RECORDS_PER_BATCH_MAX: Final = 1_000_000
PLACES: Final = ("earliest", "latest")
LATEST: Final = "latest"
NAMES: Final = frozenset(
    {
        *("bootstrap", "source", "topics", "pattern", "start", "until", "isolation", "records_per_batch_max"),
        *("records_per_second_max", "partitions_min", "on_data_loss", "columns"),
    }
)
E = TypeVar("E", bound=StrEnum)


class BadOption(ValueError):
    """An option of the source is missing, unknown or wrong."""


@dataclass(frozen=True)
class TopicReadOptions:
    bootstrap: str
    source: str
    """The source's name in the pipeline, for messages."""
    topics: tuple[str, ...]
    pattern: str
    start: StartPosition
    until: StartPosition | None
    """Where reading ends: at the topics' ends when it began (`latest`), or at a time. None: never."""
    isolation: Isolation
    records_per_batch_max: int
    records_per_second_max: int | None
    partitions_min: int | None
    on_data_loss: DataLoss
    columns: tuple[str, ...] = SOURCE_COLUMNS
    """The columns to read. Others are not made: Spark would copy them record by record only to drop them."""

    @property
    def committed(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED


def read_options_of(
    source: TopicSource,
    bootstrap: str,
    *,
    start: StartPosition | None = None,
    until: StartPosition | None = None,
    columns: tuple[str, ...] = SOURCE_COLUMNS,
) -> TopicReadOptions:
    return TopicReadOptions(
        bootstrap=bootstrap,
        source=source.name,
        topics=source.topics,
        pattern=source.pattern,
        start=start or source.start,
        until=until,
        isolation=source.isolation,
        records_per_batch_max=source.records_per_batch_max,
        records_per_second_max=source.records_per_second_max,
        partitions_min=source.partitions_min,
        on_data_loss=source.on_data_loss,
        columns=columns,
    )


def to_options(reading: TopicReadOptions) -> dict[str, str]:
    options = {
        "bootstrap": reading.bootstrap,
        "source": reading.source,
        "topics": ",".join(reading.topics),
        "pattern": reading.pattern,
        "start": _written(reading.start),
        "until": _written(reading.until) if reading.until else "",
        "isolation": reading.isolation.value,
        "records_per_batch_max": str(reading.records_per_batch_max),
        "records_per_second_max": str(reading.records_per_second_max or ""),
        "partitions_min": str(reading.partitions_min or ""),
        "on_data_loss": reading.on_data_loss.value,
        "columns": ",".join(reading.columns) if reading.columns != SOURCE_COLUMNS else "",
    }
    return {name: text for name, text in options.items() if text}


def from_options(options: Mapping[str, str]) -> TopicReadOptions:
    """Raises BadOption, with the option's name and value and what is allowed."""
    unknown = sorted(name for name in options if name not in NAMES)
    if unknown:
        raise BadOption(f"option {unknown[0]!r} is not known; the options are {', '.join(sorted(NAMES))}")
    topics = tuple(name.strip() for name in options.get("topics", "").split(",") if name.strip())
    pattern = options.get("pattern", "")
    if bool(topics) == bool(pattern):
        raise BadOption("give either `topics`, names separated by commas, or `pattern`, an RE2 regular expression")
    if not options.get("bootstrap"):
        raise BadOption("option `bootstrap` is missing: the address of the cluster, such as 127.0.0.1:9092")
    until = options.get("until", "")
    return TopicReadOptions(
        bootstrap=options["bootstrap"],
        source=options.get("source", ""),
        topics=topics,
        pattern=pattern,
        start=_read_start("start", options.get("start", PLACES[0])),
        until=_read_until(until) if until else None,
        isolation=_one_of(Isolation, "isolation", options.get("isolation", Isolation.READ_COMMITTED)),
        records_per_batch_max=_number(options, "records_per_batch_max") or RECORDS_PER_BATCH_MAX,
        records_per_second_max=_number(options, "records_per_second_max"),
        partitions_min=_number(options, "partitions_min"),
        on_data_loss=_one_of(DataLoss, "on_data_loss", options.get("on_data_loss", DataLoss.FAIL)),
        columns=_read_columns(options.get("columns", "")) or SOURCE_COLUMNS,
    )


def _written(start: StartPosition) -> str:
    if start.place:
        return start.place
    if start.time_ms is not None:
        return str(start.time_ms)
    return json.dumps(to_document({TopicPartition(topic, number): offset for topic, number, offset in start.offsets}))


def _read_start(name: str, text: str) -> StartPosition:
    if text in PLACES:
        return StartPosition(text)
    if text.isascii() and text.isdecimal():
        return StartPosition("", int(text))
    try:
        offsets = from_document(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        raise BadOption(
            f"option `{name}` is {text!r}; choose {' or '.join(PLACES)}, milliseconds since 1970, "
            'or offsets such as {"orders": {"0": 42}}'
        ) from None
    return StartPosition("", None, tuple((one.topic, one.partition, offset) for one, offset in sorted(offsets.items())))


def _read_until(text: str) -> StartPosition:
    until = _read_start("until", text)
    if until.offsets or until.place == PLACES[0]:
        raise BadOption(f"option `until` is {text!r}; choose {LATEST} or milliseconds since 1970")
    return until


def _read_columns(text: str) -> tuple[str, ...]:
    named = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := sorted(named.difference(SOURCE_COLUMNS)):
        raise BadOption(f"option `columns` has {unknown[0]!r}; there are {', '.join(SOURCE_COLUMNS)}")
    return tuple(name for name in SOURCE_COLUMNS if name in named)


def _one_of(kind: type[E], name: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise BadOption(f"option `{name}` is {text!r}; choose {' or '.join(kind)}") from None


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise BadOption(f"option `{name}` is {text!r}; choose a whole number from 1")
    return int(text)
