"""What has to be done to the logs of a node from time to time; the node decides when.

Rule 1: nothing here stops the event loop for long: syncing and cleaning run in a thread.
Rule 2: a log that refuses to be cleaned is left alone until the next start, and said so once.
"""

from collections import defaultdict

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


class Upkeep:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._uncleanable: set[Partition] = set()
        self._unflushed_since: dict[Partition, int] = {}

    async def retain(self) -> int:
        """Retention by log start, size and time in every log, then by the size of whole topics; segments removed."""
        now_ms = self._store.clock.wall_ms()
        removed = 0
        for log in list(self._store.logs.values()):
            try:
                removed += log.retain(now_ms)
            except Refused as refusal:
                warn("retention.failed", log=log.name, reason=refusal.text)
        removed += self._retain_topics(now_ms)
        await self._store.purge(now_ms)
        return removed

    def _retain_topics(self, now_ms: int) -> int:
        by_topic: dict[str, list[PartitionLog]] = defaultdict(list)
        for log in self._store.logs.values():
            if log.log.config[TOPIC_RETENTION_BYTES] >= 0:
                by_topic[log.key[0]].append(log)
        removed = 0
        for logs in by_topic.values():
            by_name = {log.name: log for log in logs}
            limit = logs[0].log.config[TOPIC_RETENTION_BYTES]

            def largest_timestamp(log: Log, segment: Segment, by_name: dict[str, PartitionLog] = by_name) -> int:
                return by_name[log.name].largest_timestamp(segment)

            for name, count in beyond_topic_limit([log.log for log in logs], limit, largest_timestamp).items():
                by_name[name].drop_front(count, f"ottla.topic.retention.bytes={limit}", now_ms)
                removed += count
        return removed

    async def flush(self) -> None:
        """Sync the logs that have waited for `flush.ms`."""
        now_ms = self._store.clock.monotonic_ms()
        for log in list(self._store.logs.values()):
            if log.log.recovery_point >= log.log.end_offset:
                self._unflushed_since.pop(log.key, None)
                continue
            since_ms = self._unflushed_since.setdefault(log.key, now_ms)
            if now_ms - since_ms >= log.log.config[FLUSH_MS]:
                del self._unflushed_since[log.key]
                await flush_in_thread(log)

    async def clean(self) -> Cleaned | None:
        """Clean the dirtiest log, if one is dirty enough."""
        now_ms = self._store.clock.wall_ms()
        chosen = dirtiest(
            candidate
            for log in self._store.logs.values()
            if log.key not in self._uncleanable and (candidate := self._candidate(log, now_ms)) is not None
        )
        if chosen is None:
            return None
        log = next(log for log in self._store.logs.values() if log.log is chosen.log)
        try:
            return await clean(log, chosen, now_ms)
        except CleaningVoid:
            return None
        except CorruptBatch as error:
            self._uncleanable.add(log.key)
            warn("log.uncleanable", log=log.name, reason=error.text)
            return None

    def _candidate(self, log: PartitionLog, now_ms: int) -> Cleanable | None:
        checkpoint = log.directory.cleaner_offsets.get(log.key)
        return cleanable(
            log.log, checkpoint, now_ms, first_timestamp=log.first_timestamp, largest_timestamp=log.largest_timestamp
        )


async def flush_in_thread(log: PartitionLog) -> None:
    """Sync what was appended so far, while the loop goes on."""
    flush = log.begin_flush()
    with log.directory.guard("flush"):
        await log.directory.disk.in_thread(flush.run)
    log.end_flush(flush)
