"""A topic read as a table: its content is fixed once for each epoch, and kept with the checkpoint of the sink.

Rule 1: an epoch that is repeated sees the same table as the first time. Its rows decide which task of a topic sink
        writes what, and finished tasks are skipped: with another table rows would be missing.
Rule 2: the bounds of the topic's partitions (the pin) are written to a file before any record is read for the epoch.
        A task that finds a pin uses it.
Rule 3: a pin alone is not enough: when a key gets a newer value, compaction removes the value that the epoch saw. So
        the content of a partition up to its pin is kept in a file (`table_snapshots`), named by its bounds.
Rule 4: a snapshot is made of the previous one and the records since. A table that has not changed is not read again.
Rule 5: pins and snapshots of two epochs are kept, since Spark repeats only the last epoch that it began.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.pipelines.source.ranges import (
    LogBounds,
    LogsByPartition,
    OffsetRange,
    from_document,
    to_document,
    topic_ids_from,
)
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

SUFFIX: Final = ".arrow"
_PIN: Final = re.compile(r"(\d+)\.json")


class TablePart(NamedTuple):
    """One partition of the table: its offsets, and the files of its snapshots."""

    wanted: OffsetRange
    snapshot: str
    """The file of its snapshot, which may not exist yet."""
    base: str
    """The file of an earlier snapshot of the partition to build on; empty if there is none."""
    base_end: int


class TablePins:
    def __init__(self, directory: str) -> None:
        """`directory` belongs to one table of one sink's query."""
        self._directory = directory

    def parts(self, epoch: int, survey: Callable[[], LogsByPartition]) -> list[TablePart]:
        """The table of an epoch. `survey` is called if the epoch has no pin yet. Removes files of older epochs."""
        os.makedirs(self._directory, exist_ok=True)
        pinned = self._pinned(epoch)
        if pinned is None:
            self._pin(epoch, survey())
            pinned = self._pinned(epoch)
            assert pinned is not None, "it was written"
        last = max((one for one in self._epochs() if one < epoch), default=None)
        before = (self._pinned(last) if last is not None else None) or {}
        self._forget({epoch, last}, [*self._snapshots(pinned), *self._snapshots(before)])
        return [
            self._part(partition, log, before.get(partition))
            for partition, log in sorted(pinned.items())
            if log.end > log.start
        ]

    def _part(self, partition: TopicPartition, log: LogBounds, before: LogBounds | None) -> TablePart:
        wanted = OffsetRange(partition, log.start, log.end, log.topic_id)
        snapshot = self._snapshot(partition, log)
        if before is None or before.topic_id != log.topic_id or not before.start < before.end <= log.end:
            return TablePart(wanted, snapshot, "", log.start)
        return TablePart(wanted, snapshot, self._snapshot(partition, before), max(before.end, log.start))

    def _snapshots(self, logs: LogsByPartition) -> Iterable[str]:
        return (self._snapshot(partition, log) for partition, log in logs.items())

    def _snapshot(self, partition: TopicPartition, log: LogBounds) -> str:
        known = f"-{uuid_to_text(log.topic_id)}" if log.topic_id != NO_UUID else ""
        # The start is part of the name: retention may remove records while the end stays the same.
        name = f"{partition.topic}-{partition.partition}{known}-{log.start}-{log.end}{SUFFIX}"
        return os.path.join(self._directory, name)

    def _pinned(self, epoch: int) -> dict[TopicPartition, LogBounds] | None:
        try:
            with open(self._path(epoch), encoding="utf-8") as file:
                document: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        starts, ids = from_document(document["starts"]), topic_ids_from(document["ends"])
        return {
            partition: LogBounds(starts[partition], end, ids.get(partition.topic, NO_UUID))
            for partition, end in from_document(document["ends"]).items()
        }

    def _pin(self, epoch: int, logs: LogsByPartition) -> None:
        """Write the pin; the file appears whole. If another task was first, its pin stays."""
        ids = {partition.topic: log.topic_id for partition, log in logs.items()}
        document = {
            "starts": to_document({partition: log.start for partition, log in logs.items()}),
            "ends": to_document({partition: log.end for partition, log in logs.items()}, ids),
        }
        made, temporary = tempfile.mkstemp(prefix=".pin-", dir=self._directory)
        try:
            with open(made, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, self._path(epoch))
        finally:
            os.unlink(temporary)

    def _epochs(self) -> list[int]:
        return [int(found[1]) for name in os.listdir(self._directory) if (found := _PIN.fullmatch(name))]

    def _forget(self, epochs: set[int | None], snapshots: Iterable[str]) -> None:
        """Remove the pins of all other epochs. Later ones belong to a checkpoint that was restored since."""
        kept = set(snapshots)
        gone = [self._path(epoch) for epoch in self._epochs() if epoch not in epochs]
        names = (os.path.join(self._directory, name) for name in os.listdir(self._directory) if name.endswith(SUFFIX))
        for path in (*gone, *(path for path in names if path not in kept)):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _path(self, epoch: int) -> str:
        return os.path.join(self._directory, f"{epoch}.json")
