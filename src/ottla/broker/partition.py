"""A partition that this broker leads: its log, its epoch, and who waits for it.

Rule 1: the high watermark moves when everyone in sync has the records. Alone that is at once, or, where the topic asks
        for a sync (`flush.messages`), when the sync is done: nobody reads what a power cut may take back.
Rule 2: whoever waits for records is told how many bytes of them have become readable: below the watermark, and below
        the last stable offset. An open transaction holds back the second, and its end brings all of it at once.
Rule 3: one sync serves all that was appended before it began (group commit). It belongs to the partition, not to the
        client that made it necessary: that one may be gone before it is done, and its records must become readable.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ottla.broker.waiters import Watcher
from ottla.config import MIN_INSYNC_REPLICAS
from ottla.core.log.checkpoints import EpochStart
from ottla.core.log.epochs import UNDEFINED_EPOCH
from ottla.core.log.producers import VOUCHED, Origin, Verification
from ottla.kernel import Checked, Run
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.slices import Slice
from ottla.wire.errors import Error, Refused

_PLENTY = 2**31 - 1
"""More bytes than a Fetch can ask for."""
_OUT_OF_FILES_REST_S = 1.0


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
        self._appended(appended.size)
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
                await self.log.flush_in_thread()
                self._commit(log.recovery_point, None)
                self._tell_synced(log.recovery_point, None)
            self._commit(log.end_offset, None)
        except Refused as refusal:
            self._tell_synced(log.end_offset, refusal)
            if self.log.directory.failure is None and not self.log.here.closed:
                # For want of descriptors. What was appended waits to be read, whether its producer tries again or not.
                asyncio.get_running_loop().call_later(_OUT_OF_FILES_REST_S, self._begin_sync)

    def _tell_synced(self, offset: int, refusal: Refused | None) -> None:
        while self._unsynced and self._unsynced[0][0] <= offset:
            _, done = self._unsynced.popleft()
            if not done.done():
                done.set_result(refusal)

    def _commit(self, offset: int, size: int | None) -> None:
        """Move the watermark; `size` is that of the batches it moves over, None where that is not known."""
        log = self.log.log
        if not self.waiters:
            log.advance_high_watermark(offset)
            return
        before, stable_before = log.high_watermark, log.last_stable_offset
        if log.advance_high_watermark(offset) > before:
            after, stable_after = log.high_watermark, log.last_stable_offset
            grown = self._bytes_between(before, after) if size is None else size
            if (stable_before, stable_after) == (before, after):
                stable_grown = grown  # As in most logs: no transaction was or is open.
            else:
                stable_grown = self._bytes_between(stable_before, stable_after)
            for waiter in list(self.waiters):
                waiter.grown(grown, stable_grown)

    def _bytes_between(self, offset: int, end_offset: int) -> int:
        """How many bytes the batches between two offsets take; `_PLENTY` where they are in several segments."""
        if offset >= end_offset:
            return 0
        log = self.log.log
        if log.segment_at(offset) != log.segment_at(end_offset - 1):
            return _PLENTY
        try:
            return self.log.read(offset, _PLENTY, end_offset).length
        except Refused:
            return _PLENTY  # Whoever waits looks, and is told.

    # Reading.

    def check_epoch(self, asked: int) -> None:
        """Whether a client's idea of who leads since when is ours; -1 has none."""
        if asked == -1 or asked == self.leader_epoch:
            return
        if asked < self.leader_epoch:
            raise Refused(Error.FENCED_LEADER_EPOCH, f"{self.name}: epoch {asked} is over, {self.leader_epoch} leads")
        raise Refused(Error.UNKNOWN_LEADER_EPOCH, f"{self.name}: epoch {asked} is not known here yet")

    def parting(self, epoch: int, offset: int) -> EpochStart | None:
        """Where the log of a reader whose last batch is of this epoch, and ends at the offset, parts from this one:
        the epoch that both have, and where it ends here. None if it does not.

        Raises Refused if that cannot be told."""
        log = self.log.log
        known = log.epochs.end_offset_of(epoch, log.end_offset)
        if UNDEFINED_EPOCH in known or offset < log.log_start_offset:
            raise Refused(
                Error.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} after a batch of leader epoch {epoch}; the log has "
                f"{log.log_start_offset} to {log.end_offset}, up to epoch {log.epochs.latest}",
            )
        return known if known.epoch < epoch or known.start_offset < offset else None

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

    def goes_on(self, offset: int, bound: int) -> bool:
        """Whether what a reader may read from `offset` on goes on in a later segment. One answer ends with its segment,
        however few bytes that are: to wait for more would be in vain."""
        log = self.log.log
        return offset < bound and log.segment_at(offset) != log.segment_at(bound - 1)

    def wake_all(self) -> None:
        """Let every waiter look: the partition is going away or has changed."""
        for waiter in list(self.waiters):
            waiter.wake()
