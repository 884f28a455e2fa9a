"""A topic source, driven as Spark drives it, without Spark."""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from nodes.ottla_node import wait_until

from ottla.pipelines.source.read_options import from_options, read_options_of, to_options
from ottla.pipelines.spark.topic_source import TopicReader, TopicStreamReader
from ottla.pipelines.spec.model import DataLoss, Isolation, Parse, StartPosition, TopicSource

SOURCE = TopicSource(
    name="shop",
    topics=(),
    pattern="",
    parse=Parse.BYTES,
    schema=None,
    message="",
    start=StartPosition(),
    isolation=Isolation.READ_COMMITTED,
    table=False,
    records_per_batch_max=1_000_000,
    records_per_second_max=None,
    partitions_min=None,
    on_data_loss=DataLoss.FAIL,
)


def source(*topics: str, **given: Any) -> TopicSource:
    return replace(SOURCE, topics=topics, **given)


class Row(NamedTuple):
    """A record, in the order of the source's columns."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: Any
    headers: list[dict[str, Any]]


class Stream:
    """A query: each epoch reads what there is between two offsets that Spark would keep."""

    def __init__(
        self,
        bootstrap: str,
        read: TopicSource,
        *,
        until: StartPosition | None = None,
        checkpoint: dict[str, Any] | None = None,
    ) -> None:
        self.reader = TopicStreamReader(from_options(to_options(read_options_of(read, bootstrap, until=until))))
        if checkpoint is None:
            self.position = self.reader.latestOffset()
            assert self.reader.initialOffset() == self.position
        else:
            self.position = checkpoint
            assert self.reader.partitions(checkpoint, checkpoint) == []

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def plan(self) -> list[Any]:
        start, self.position = self.position, self.reader.latestOffset()
        return list(self.reader.partitions(start, self.position))

    def read(self, partitions: Iterable[Any]) -> list[Row]:
        """Each in a task of its own, which gets copies."""
        return read_by(self.reader, partitions)

    def epoch(self) -> list[Row]:
        return self.read(self.plan())

    def next_rows(self, at_least: int = 1) -> list[Row]:
        """Of epochs until there are so many: what is new in a cluster takes a moment to be known."""
        rows: list[Row] = []
        wait_until(lambda: bool(rows.extend(self.epoch()) or len(rows) >= at_least), f"epochs with {at_least} records")
        return rows

    def rest(self) -> list[list[Row]]:
        """Epochs until there is nothing new."""
        found = []
        while rows := self.epoch():
            found.append(rows)
        return found


def read_by(reader: TopicStreamReader | TopicReader, partitions: Iterable[Any]) -> list[Row]:
    rows: list[Row] = []
    for partition in partitions:
        task, wanted = pickle.loads(pickle.dumps((reader, partition)))
        for batch in task.read(wanted):
            rows += [Row(*values) for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return rows


def values(rows: Iterable[Row]) -> list[bytes | None]:
    return [row.value for row in rows]
