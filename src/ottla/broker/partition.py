"""A partition that this broker leads: its log, its epoch, and who waits for it.

Rule 1: the high watermark moves when everyone in sync has the records. Alone that is at once, or, where the topic asks
        for a sync (`flush.messages`), when the sync is done: nobody reads what a power cut may take back.
Rule 2: one sync serves all that was appended before it began (group commit). It belongs to the partition, not to the
        client that made it necessary: that one may be gone before it is done, and its records must become readable.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ottla.broker.waiters import Watcher
from ottla.config import MIN_INSYNC_REPLICAS
from ottla.core.log.producers import VOUCHED, Origin, Verification
from ottla.kernel import Checked, Run
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.slices import Slice
from ottla.storage.upkeep import flush_in_thread
from ottla.wire.errors import Error, Refused


@dataclass(slots=True, eq=False)
class Partition:
    log: PartitionLog
    topic_id: bytes
    leader_epoch: int
    isr: tuple[int, ...]
    waiters: dict[Watcher, None] = field(default_factory=dict)
    retired: bool = False
    """It is no longer this broker's: who has kept it looks again for what there is now."""
    _syncing: "asyncio.Task[None] | None" = None
    _unsynced: "deque[tuple[int, asyncio.Future[Refused | None]]]" = field(default_factory=deque)

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def high_watermark(self) -> int:
        return self.log.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log.log_start_offset

    def lead(self, leader_epoch: int) -> None:
        """Become leader in an epoch; alone in sync, all that is here counts as committed, once it is synced."""
        self.leader_epoch = leader_epoch
        self.log.assign_epoch(leader_epoch)
        log = self.log.log
        if log.must_flush:
            # Recovered after a crash, but perhaps not on disk yet.
            log.advance_high_watermark(log.recovery_point)
            self._begin_sync()
        else:
            log.advance_high_watermark(log.end_offset)

    # Writing.

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        verification: Verification | None = VOUCHED,
        at_once: bool = False,
        checked: Checked | None = None,
    ) -> Appended:
        """Append a batch. Where `must_sync` holds afterwards, the acknowledgement waits for `synced`.

        `at_once` and `checked` are as for `PartitionLog.append`."""
        if acks == -1:
            self.check_in_sync()
        appended = self.log.append(
            records,
            self.leader_epoch,
            origin=origin,
            transaction_version=transaction_version,
            verification=verification,
            at_once=at_once,
            checked=checked,
        )
        self._appended(0 if appended.duplicate else len(records))
        return appended

    def begin_run(self) -> Run | None:
        """What batches are gathered in that are appended together (`append_run`); None where the topic asks for syncs,
        too few replicas are in sync, or the next batch has to be looked at alone."""
        if self.log.log.flushes_messages:
            return None
        if len(self.isr) < self._in_sync_min:
            return None
        return self.log.begin_run(self.leader_epoch)

    def append_run(self, run: Run) -> None:
        """Append the batches of a run; nothing else has happened to the partition since it was begun."""
        self.log.append_run(run)
        self._commit(run.next_offset, run.size)

    def append_own(self, batch: bytes) -> None:
        """Append what this broker built and numbered itself as a coordinator: there is nothing to check in it."""
        self.log.append_replicated(batch)
        self._appended(len(batch))

    def check_in_sync(self) -> None:
        """Whether enough replicas have what is here for more to be written."""
        if len(self.isr) < self._in_sync_min:
            raise Refused(
                Error.NOT_ENOUGH_REPLICAS,
                f"{self.name}: {len(self.isr)} replicas are in sync, min.insync.replicas asks for {self._in_sync_min}",
            )

    @property
    def _in_sync_min(self) -> int:
        return self.log.log.config[MIN_INSYNC_REPLICAS]

    def _appended(self, size: int) -> None:
        log = self.log.log
        if log.must_flush:
            self._begin_sync()
        elif size:
            self._commit(log.end_offset, size)

    @property
    def must_sync(self) -> bool:
        return self.log.log.must_flush

    def synced(self, offset: int) -> "asyncio.Future[Refused | None]":
        """Done when everything before `offset` is on disk, or never will be: then it tells why."""
        done: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._unsynced.append((offset, done))
        self._begin_sync()
        return done

    def _begin_sync(self) -> None:
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.get_running_loop().create_task(self._sync_all())

    async def _sync_all(self) -> None:
        """Until nothing is left that must be synced and nobody waits."""
        log = self.log.log
        try:
            while log.must_flush or self._unsynced:
                await flush_in_thread(self.log)
                self._commit(log.recovery_point, 0)
                self._tell_synced(log.recovery_point, None)
            self._commit(log.end_offset, 0)
        except Refused as refusal:
            self._tell_synced(log.end_offset, refusal)

    def _tell_synced(self, offset: int, refusal: Refused | None) -> None:
        while self._unsynced and self._unsynced[0][0] <= offset:
            _, done = self._unsynced.popleft()
            if not done.done():
                done.set_result(refusal)

    def _commit(self, offset: int, size: int) -> None:
        log = self.log.log
        before = log.high_watermark
        if log.advance_high_watermark(offset) > before and self.waiters:
            for waiter in list(self.waiters):
                waiter.grown(max(size, 1))

    # Reading.

    def check_epoch(self, asked: int) -> None:
        """Whether a client's idea of who leads since when is ours; -1 has none."""
        if asked == -1 or asked == self.leader_epoch:
            return
        if asked < self.leader_epoch:
            raise Refused(Error.FENCED_LEADER_EPOCH, f"{self.name}: epoch {asked} is over, {self.leader_epoch} leads")
        raise Refused(Error.UNKNOWN_LEADER_EPOCH, f"{self.name}: epoch {asked} is not known here yet")

    def bound(self, *, committed_only: bool) -> int:
        """Readers get nothing that is at or past it."""
        log = self.log.log
        return log.last_stable_offset if committed_only else log.high_watermark

    def read(self, offset: int, max_bytes: int, bound: int, *, whole_batch: bool) -> Slice:
        if offset >= bound:
            # A reader may stand between the bound and the end of the log: nothing for it yet, but no mistake either.
            log = self.log.log
            if log.log_start_offset <= offset <= log.end_offset:
                return Slice(None, 0, 0, offset)
        return self.log.read(offset, max_bytes, bound, whole_batch=whole_batch)

    def wake_all(self) -> None:
        """Let every waiter look: the partition is going away or has changed."""
        for waiter in list(self.waiters):
            waiter.wake()
