"""What has to be done to the logs of a node from time to time; the node decides when.

Rule 1: nothing here stops the event loop for long: syncing, checkpoints and cleaning run in a thread; who looks at
        thousands of logs lets others have their turn now and then, and retention, whose every removal waits for the
        disk a few times, does so after each log that loses something.
Rule 2: a log that refuses to be cleaned is left alone until the next start, and said so once.
Rule 3: a segment is synced when it was closed, and its recovery point moves on: after a crash only what came later is
        read again.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from weakref import WeakSet

from ottla.config import FLUSH_MS, TOPIC_RETENTION_BYTES
from ottla.core.log.cleaning import Cleanable, cleanable, dirtiest
from ottla.core.log.log import Log
from ottla.core.log.retention import beyond_topic_limit
from ottla.core.log.segment import Segment
from ottla.kernel import CorruptBatch
from ottla.observe.trace import warn
from ottla.storage.cleaner import Cleaned, CleaningVoid, clean
from ottla.storage.log_directory import Partition
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore
from ottla.wire.errors import Refused

_LOOKED_AT_ONCE = 256
_SYNCED_AT_ONCE = 2
_OUT_OF_FILES_REST_S = 1.0


class Upkeep:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        self._unflushed_since: dict[Partition, int] = {}

    async def retain(self) -> int:
        """Retention by log start, size and time in every log, then by the size of whole topics; segments removed."""
        now_ms = self._store.clock.wall_ms()
        removed = 0
        async for log in self._all_logs():
            going = 0
            with _only_this_one("retention.failed", log.name):
                going = log.retain(now_ms)
            if going:
                removed += going
                await asyncio.sleep(0)
        for topic, logs in self._limited_topics().items():
            with _only_this_one("retention.failed", topic):
                removed += _retain_topic(logs, now_ms)
        await self._store.purge(now_ms)
        return removed

    def _limited_topics(self) -> dict[str, list[PartitionLog]]:
        by_topic: dict[str, list[PartitionLog]] = defaultdict(list)
        for log in self._store.logs.values():
            if log.log.config[TOPIC_RETENTION_BYTES] >= 0:
                by_topic[log.key[0]].append(log)
        return by_topic

    async def expire_producers(self) -> None:
        now_ms = self._store.clock.wall_ms()
        async for log in self._all_logs():
            log.expire_producers(now_ms)

    async def flush(self) -> None:
        """Sync the logs that have waited for `flush.ms`."""
        now_ms = self._store.clock.monotonic_ms()
        async for log in self._all_logs():
            if log.log.recovery_point >= log.log.end_offset:
                self._unflushed_since.pop(log.key, None)
                continue
            since_ms = self._unflushed_since.setdefault(log.key, now_ms)
            if now_ms - since_ms >= log.log.config[FLUSH_MS]:
                del self._unflushed_since[log.key]
                with _only_this_one("flush.failed", log.name):
                    await log.flush_in_thread()

    async def sync_closed(self) -> None:
        """For ever: sync the segments that were closed, a few logs at a time."""
        await asyncio.gather(*(self._sync_closed() for _ in range(_SYNCED_AT_ONCE)))

    async def _sync_closed(self) -> None:
        while True:
            log = await self._store.next_unsynced()
            try:
                while self._store.logs.get(log.key) is log and log.is_unsynced_beside_the_active_segment:
                    await log.flush_in_thread(active=False)
            except Refused as refusal:
                warn("flush.failed", log=log.name, reason=refusal.text)
                if log.directory.failure is None:
                    await asyncio.sleep(_OUT_OF_FILES_REST_S)
                    self._store.note_unsynced(log)

    async def checkpoint(self) -> None:
        """Write down, per directory, how far each log is synced, committed and trimmed."""
        for directory in self._store.directories:
            with _only_this_one("checkpoint.failed", directory.path), directory.guard("checkpoint"):
                await self._store.disk.in_thread(self._store.begin_checkpoint(directory))

    async def clean(self) -> Cleaned | None:
        """Clean the dirtiest log, if one is dirty enough."""
        now_ms = self._store.clock.wall_ms()
        candidates: dict[Log, tuple[PartitionLog, Cleanable]] = {}
        async for log in self._all_logs():
            if log not in self._uncleanable and (candidate := self._candidate(log, now_ms)) is not None:
                candidates[log.log] = log, candidate
        chosen = dirtiest(candidate for _, candidate in candidates.values())
        if chosen is None:
            return None
        log = candidates[chosen.log][0]
        if self._store.logs.get(log.key) is not log:
            return None  # Deleted meanwhile.
        try:
            return await clean(log, chosen, now_ms)
        except CleaningVoid:
            return None
        except Refused as refusal:
            self._note_refusal(log, refusal)
            return None

    async def _all_logs(self) -> AsyncIterator[PartitionLog]:
        """Each that is still there when its turn comes."""
        for number, log in enumerate(list(self._store.logs.values()), start=1):
            if self._store.logs.get(log.key) is log:
                yield log
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _candidate(self, log: PartitionLog, now_ms: int) -> Cleanable | None:
        try:
            with log.directory.guard("look for what to clean"):
                return cleanable(
                    log.log,
                    log.directory.cleaner_offsets.get(log.key),
                    now_ms,
                    first_timestamp=log.first_timestamp,
                    largest_timestamp=log.largest_timestamp,
                )
        except Refused as refusal:
            self._note_refusal(log, refusal)
            return None

    def _note_refusal(self, log: PartitionLog, refusal: Refused) -> None:
        if isinstance(refusal, CorruptBatch):
            self._uncleanable.add(log)
        event = "log.uncleanable" if log in self._uncleanable else "cleaning.failed"
        warn(event, log=log.name, reason=refusal.text)


@contextmanager
def _only_this_one(event: str, name: str) -> Iterator[None]:
    """A refusal concerns one log, or one directory; the others get their turn."""
    try:
        yield
    except Refused as refusal:
        warn(event, log=name, reason=refusal.text)


def _retain_topic(logs: list[PartitionLog], now_ms: int) -> int:
    by_name = {log.name: log for log in logs}
    limit = logs[0].log.config[TOPIC_RETENTION_BYTES]

    def largest_timestamp(log: Log, segment: Segment) -> int:
        return by_name[log.name].largest_timestamp(segment)

    going = beyond_topic_limit([log.log for log in logs], limit, largest_timestamp)
    for name, count in going.items():
        by_name[name].drop_front(count, f"ottla.topic.retention.bytes={limit}", now_ms)
    return sum(going.values())
