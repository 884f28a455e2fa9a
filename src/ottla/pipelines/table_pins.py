"""A topic read as a table: what it holds in an epoch is settled once, and kept with the checkpoint of the sink.

Rule 1: an epoch that is done again sees the table that it saw the first time. The rows that it gives decide which task
        of a topic sink writes what, and tasks that had finished are skipped: with another table rows would be missing.
Rule 2: so it is written down where the topic's partitions begin and end (the pin) before any record is read for the
        epoch. Who comes second takes what is there.
Rule 3: a pin alone is not enough: when a key gets a newer value, compaction removes the one that the epoch saw. So what
        a partition holds up to its pin is kept as a file (`table_snapshots`), named by where it ends.
Rule 4: the next snapshot is made of the last one and the records since. A table that has not changed is not read again.
Rule 5: pins and snapshots of two epochs are kept. Spark does none again but the last that it began.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.pipelines.ranges import Log, Logs, Range, from_document, to_document, topic_ids_from
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

SUFFIX: Final = ".arrow"
_PIN: Final = re.compile(r"(\d+)\.json")


class TablePart(NamedTuple):
    """A partition of the table, whole."""

    wanted: Range
    snapshot: str
    """Where it is kept, or will be."""
    base: str
    """An earlier snapshot of the same partition, to begin with; empty where there is none."""
    base_end: int


class TablePins:
    def __init__(self, directory: str) -> None:
        """A directory for one table of one sink's query."""
        self._directory = directory

    def parts(self, epoch: int, survey: Callable[[], Logs]) -> list[TablePart]:
        """The table of an epoch; `survey` is asked the first time. Files that no epoch needs any more are removed."""
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

    def _part(self, partition: TopicPartition, log: Log, before: Log | None) -> TablePart:
        wanted = Range(partition, log.start, log.end, log.topic_id)
        snapshot = self._snapshot(partition, log)
        if before is None or before.topic_id != log.topic_id or not before.start < before.end <= log.end:
            return TablePart(wanted, snapshot, "", log.start)
        return TablePart(wanted, snapshot, self._snapshot(partition, before), max(before.end, log.start))

    def _snapshots(self, logs: Logs) -> Iterable[str]:
        return (self._snapshot(partition, log) for partition, log in logs.items())

    def _snapshot(self, partition: TopicPartition, log: Log) -> str:
        known = f"-{uuid_to_text(log.topic_id)}" if log.topic_id != NO_UUID else ""
        # What begins later has fewer records, and may end at the same place.
        name = f"{partition.topic}-{partition.partition}{known}-{log.start}-{log.end}{SUFFIX}"
        return os.path.join(self._directory, name)

    def _pinned(self, epoch: int) -> dict[TopicPartition, Log] | None:
        try:
            with open(self._path(epoch), encoding="utf-8") as file:
                document: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        starts, ids = from_document(document["starts"]), topic_ids_from(document["ends"])
        return {
            partition: Log(starts[partition], end, ids.get(partition.topic, NO_UUID))
            for partition, end in from_document(document["ends"]).items()
        }

    def _pin(self, epoch: int, logs: Logs) -> None:
        """Appears whole, unless somebody was first."""
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
        """Epochs after this one belong to a history that was given up with the checkpoint's end."""
        kept = set(snapshots)
        gone = [self._path(epoch) for epoch in self._epochs() if epoch not in epochs]
        names = (os.path.join(self._directory, name) for name in os.listdir(self._directory) if name.endswith(SUFFIX))
        for path in (*gone, *(path for path in names if path not in kept)):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _path(self, epoch: int) -> str:
        return os.path.join(self._directory, f"{epoch}.json")
