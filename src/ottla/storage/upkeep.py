"""Periodic maintenance of a node's logs; the node decides when it runs.

Rule 1: nothing here blocks the event loop for long. Syncs, checkpoints and cleaning run in threads. Loops over
        thousands of logs yield now and then; retention yields after each log that loses a segment, because a removal
        waits for the disk several times.
Rule 2: a log that cannot be cleaned is skipped until the next start, and reported once.
Rule 3: a segment is synced when it was closed, and its recovery point advances, so that recovery reads only later
        segments.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from weakref import WeakSet

from ottla.config import FLUSH_MS, TOPIC_RETENTION_BYTES
from ottla.core.log.cleaning import Cleanable, cleanable, dirtiest
from ottla.core.log.retention import beyond_topic_limit
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
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
    """The maintenance tasks of a `LogStore`."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        self._unflushed_since: dict[Partition, int] = {}

    async def retain(self) -> int:
        """Apply retention by log start, size and time to every log, then by topic size; returns the number of segments
        removed."""
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
            if log.state.config[TOPIC_RETENTION_BYTES] >= 0:
                by_topic[log.key[0]].append(log)
        return by_topic

    async def expire_producers(self) -> None:
        now_ms = self._store.clock.wall_ms()
        async for log in self._all_logs():
            log.expire_producers(now_ms)

    async def flush(self) -> None:
        """Sync the logs with records older than `flush.ms`."""
        now_ms = self._store.clock.monotonic_ms()
        async for log in self._all_logs():
            if log.state.recovery_point >= log.state.end_offset:
                self._unflushed_since.pop(log.key, None)
                continue
            since_ms = self._unflushed_since.setdefault(log.key, now_ms)
            if now_ms - since_ms >= log.state.config[FLUSH_MS]:
                del self._unflushed_since[log.key]
                with _only_this_one("flush.failed", log.name):
                    await log.flush_in_thread()

    async def sync_closed(self) -> None:
        """Runs forever: sync closed segments, a few logs at a time."""
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
        """Write the recovery point, high watermark and log start of every log, per directory."""
        for directory in self._store.directories:
            with _only_this_one("checkpoint.failed", directory.path), directory.guard("checkpoint"):
                await self._store.disk.in_thread(self._store.begin_checkpoint(directory))

    async def clean(self) -> Cleaned | None:
        """Clean the dirtiest log, if one is dirty enough."""
        now_ms = self._store.clock.wall_ms()
        candidates: dict[LogState, tuple[PartitionLog, Cleanable]] = {}
        async for log in self._all_logs():
            if log not in self._uncleanable and (candidate := self._candidate(log, now_ms)) is not None:
                candidates[log.state] = log, candidate
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
        """Every log that still exists when its turn comes."""
        for number, log in enumerate(list(self._store.logs.values()), start=1):
            if self._store.logs.get(log.key) is log:
                yield log
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _candidate(self, log: PartitionLog, now_ms: int) -> Cleanable | None:
        try:
            with log.directory.guard("look for what to clean"):
                return cleanable(
                    log.state,
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
    """Report a refusal of one log or directory, and go on with the others."""
    try:
        yield
    except Refused as refusal:
        warn(event, log=name, reason=refusal.text)


def _retain_topic(logs: list[PartitionLog], now_ms: int) -> int:
    by_name = {log.name: log for log in logs}
    limit = logs[0].state.config[TOPIC_RETENTION_BYTES]

    def largest_timestamp(log: LogState, segment: Segment) -> int:
        return by_name[log.name].largest_timestamp(segment)

    going = beyond_topic_limit([log.state for log in logs], limit, largest_timestamp)
    for name, count in going.items():
        by_name[name].drop_front(count, f"ottla.topic.retention.bytes={limit}", now_ms)
    return sum(going.values())
