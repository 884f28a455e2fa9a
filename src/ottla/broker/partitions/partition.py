"""A replica of a partition on this broker: its log, its role, and the requests that wait for it.

Rule 1: every append and every read checks the role. Callers keep a partition across awaits and epochs, so an earlier
        check may be outdated. Raises Refused if this broker does not lead, or not in the requested epoch.
Rule 2: the high watermark moves when every replica in sync has the records. With a single replica that is immediately
        or, if the topic requires a sync (`flush.messages`), after the sync. So no reader sees records that a power
        loss may remove, and waiting for the watermark (`committed`) includes waiting for the sync.
Rule 3: a waiting Fetch is notified of the number of bytes that became readable: those below the watermark, and those
        below the last stable offset. An open transaction holds back the second number; its end releases all at once.
Rule 4: one sync covers all records appended before it started (group commit). It belongs to the partition, not to the
        client that made it necessary: the client may disconnect before the sync is done, and its records must still
        become readable.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from ottla.broker.partitions.commits import Commit, Commits
from ottla.broker.partitions.waiters import Watcher
from ottla.config import MIN_INSYNC_REPLICAS, Config
from ottla.core.log.append_run import AppendRun
from ottla.core.log.checkpoints import EpochStart
from ottla.core.log.epochs import UNDEFINED_EPOCH
from ottla.core.log.producers import VOUCHED, AppendOrigin, Verification
from ottla.kernel import Checked
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.slices import Slice
from ottla.wire.errors import Error, Refused

_PLENTY = 2**31 - 1
"""More bytes than a Fetch can request."""
_OUT_OF_FILES_REST_S = 1.0


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    """Its log cannot be used, or is being removed."""


@dataclass(slots=True, eq=False)
class Partition:
    log: PartitionLog
    topic_id: bytes
    leader_epoch: int = -1
    """The epoch in which this broker leads, or last led."""
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    takes_runs: bool = field(init=False)
    """Whether `begin_run` may return a run: the topic requires no syncs, and enough replicas are in sync."""
    waiters: dict[Watcher, None] = field(default_factory=dict)
    is_led: bool = False
    """Whether this broker leads it. Requests that keep the partition look it up again when this is False."""
    _is_removed: bool = False
    _commits: Commits = field(init=False)
    _syncing: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self._commits = Commits(self.name)
        self._update_takes_runs()

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def high_watermark(self) -> int:
        return self.log.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.state.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.state.log_start_offset

    # Role.

    @property
    def role(self) -> Role:
        if self._is_removed or self.log.directory.failure is not None:
            return Role.OFFLINE
        return Role.LEADER if self.is_led else Role.FOLLOWER

    def set_replicas(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self.replicas, self.isr = replicas, isr
        self._update_takes_runs()

    def reconfigure(self, config: Config) -> None:
        self.log.reconfigure(config)
        self._update_takes_runs()

    def _update_takes_runs(self) -> None:
        self.takes_runs = not self.log.state.flushes_messages and self._is_enough_in_sync

    def lead(self, leader_epoch: int) -> None:
        """Become leader in an epoch. This replica alone is in sync, so its whole log is committed once it is synced."""
        self._end_epoch(Error.NOT_LEADER_OR_FOLLOWER)
        self.leader_epoch, self.is_led = leader_epoch, True
        self.log.assign_epoch(leader_epoch)
        log = self.log.state
        if log.must_flush:
            # The log was recovered after a crash, and its end may not be on disk yet.
            log.advance_high_watermark(log.recovery_point)
            self._begin_sync()
        else:
            log.advance_high_watermark(log.end_offset)

    def follow(self) -> None:
        """Stop leading: another broker leads, or none. If that is because the log directory failed, the records that
        are waited for may be on the disk all the same, and the error says so."""
        has_failed = self.log.directory.failure is not None
        self._end_epoch(Error.KAFKA_STORAGE_ERROR if has_failed else Error.NOT_LEADER_OR_FOLLOWER)

    def remove(self) -> None:
        """Take the partition offline for good: its topic was deleted."""
        self._is_removed = True
        self._end_epoch(Error.UNKNOWN_TOPIC_OR_PARTITION)

    def _end_epoch(self, error: Error) -> None:
        """Refuse every wait for a commit with this error, and wake the waiting fetches to read again."""
        self.is_led = False
        self._commits.refuse(Refused(error, f"{self.name}: leader epoch {self.leader_epoch} is over"))
        self.wake_all()

    def check_leads(self, leader_epoch: int | None = None) -> None:
        """Raises Refused if this broker does not lead the partition, or not in this epoch."""
        if self.is_led and self.log.directory.failure is None:
            if leader_epoch is None or leader_epoch == self.leader_epoch:
                return
            raise Refused(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"{self.name}: leader epoch {leader_epoch} is over, {self.leader_epoch} leads",
            )
        if self._is_removed:
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} is being removed")
        if self.log.directory.failure is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, f"{self.name} is offline")
        raise Refused(Error.NOT_LEADER_OR_FOLLOWER, f"{self.name}: this broker does not lead it")

    # Writing.

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        verification: Verification | None = VOUCHED,
        at_once: bool = False,
        checked: Checked | None = None,
    ) -> Appended:
        """Append a batch. The caller acknowledges it after `committed`.

        `at_once` and `checked` are as for `PartitionLog.append`."""
        self.check_leads()
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

    def begin_run(self) -> AppendRun | None:
        """Begin a run, which collects batches that `append_run` appends together. None if the next batch has to be
        appended alone."""
        self.check_leads()
        return self.log.begin_run(self.leader_epoch) if self.takes_runs else None

    def append_run(self, run: AppendRun) -> None:
        """Append the batches of a run. The partition must not have changed since `begin_run`."""
        self.check_leads()
        size = run.size
        self.log.append_run(run)
        self._commit(run.place.next_offset, size)

    def append_own(self, batch: bytes, leader_epoch: int) -> None:
        """Append a batch that a coordinator on this broker built and numbered in this leader epoch. Its records need
        no check."""
        self.check_leads(leader_epoch)
        self.log.append_replicated(batch)
        self._appended(len(batch))

    def check_in_sync(self) -> None:
        """Raises Refused if too few replicas are in sync for acks=all."""
        if not self._is_enough_in_sync:
            raise Refused(
                Error.NOT_ENOUGH_REPLICAS,
                f"{self.name}: {len(self.isr)} replicas are in sync, min.insync.replicas asks for {self._in_sync_min}",
            )

    @property
    def _is_enough_in_sync(self) -> bool:
        return len(self.isr) >= self._in_sync_min

    @property
    def _in_sync_min(self) -> int:
        """`min.insync.replicas`, limited to the number of replicas as in Kafka: more can never be in sync."""
        return min(self.log.state.config[MIN_INSYNC_REPLICAS], max(len(self.replicas), 1))

    def _appended(self, size: int) -> None:
        log = self.log.state
        if log.must_flush:
            self._begin_sync()
        elif size:
            self._commit(log.end_offset, size)

    def committed(self, leader_epoch: int, offset: int, timeout_ms: int | None = None) -> Commit | None:
        """A future that is done when all records before `offset`, appended in this epoch, are committed: below the high
        watermark, and synced if the topic requires that. None if they already are. Raises Refused if the epoch is
        over."""
        self.check_leads(leader_epoch)
        return None if self.log.state.high_watermark >= offset else self._commits.wait(offset, timeout_ms)

    def _begin_sync(self) -> None:
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.get_running_loop().create_task(self._sync_all())

    async def _sync_all(self) -> None:
        """Sync the log until nothing is left that must be synced."""
        log = self.log.state
        try:
            while log.must_flush:
                await self.log.flush_in_thread()
                self._commit(log.recovery_point, None)
            self._commit(log.end_offset, None)
        except Refused as refusal:
            self._commits.refuse(refusal)
            if self.log.directory.failure is None and not self.log.here.closed:
                # Out of file descriptors. Sync later: the records must become readable even if no producer retries.
                asyncio.get_running_loop().call_later(_OUT_OF_FILES_REST_S, self._begin_sync)

    def _commit(self, offset: int, size: int | None) -> None:
        """Move the watermark to `offset`; `size` is the size of the batches it moves over, None if unknown."""
        log = self.log.state
        if not self.waiters:
            log.advance_high_watermark(offset)
            self._commits.reached(log.high_watermark)
            return
        before, stable_before = log.high_watermark, log.last_stable_offset
        if log.advance_high_watermark(offset) > before:
            after, stable_after = log.high_watermark, log.last_stable_offset
            self._commits.reached(after)
            grown = self._bytes_between(before, after) if size is None else size
            if (stable_before, stable_after) == (before, after):
                stable_grown = grown  # As in most logs: no transaction was or is open.
            else:
                stable_grown = self._bytes_between(stable_before, stable_after)
            for waiter in list(self.waiters):
                waiter.grown(grown, stable_grown)

    def _bytes_between(self, offset: int, end_offset: int) -> int:
        """The size of the batches between two offsets; `_PLENTY` if they are in several segments."""
        if offset >= end_offset:
            return 0
        log = self.log.state
        if log.segment_at(offset) != log.segment_at(end_offset - 1):
            return _PLENTY
        try:
            return self.log.read(offset, _PLENTY, end_offset).length
        except Refused:
            return _PLENTY  # The waiter reads for itself and gets the refusal.

    # Reading.

    def check_epoch(self, asked: int) -> None:
        """Raises Refused if the client's leader epoch is not the current one; -1 means that the client sent none."""
        if asked == -1 or asked == self.leader_epoch:
            return
        if asked < self.leader_epoch:
            raise Refused(Error.FENCED_LEADER_EPOCH, f"{self.name}: epoch {asked} is over, {self.leader_epoch} leads")
        raise Refused(Error.UNKNOWN_LEADER_EPOCH, f"{self.name}: epoch {asked} is not known here yet")

    def parting(self, epoch: int, offset: int) -> EpochStart | None:
        """Find where a reader's log diverges from this one. The last batch of the reader has the leader epoch `epoch`
        and ends at `offset`. Returns the last epoch that both logs have, with its end offset in this log; None if the
        logs do not diverge. Raises Refused if this log no longer has that part."""
        log = self.log.state
        known = log.epochs.end_offset_of(epoch, log.end_offset)
        if UNDEFINED_EPOCH in known or offset < log.log_start_offset:
            raise Refused(
                Error.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} after a batch of leader epoch {epoch}; the log has "
                f"{log.log_start_offset} to {log.end_offset}, up to epoch {log.epochs.latest}",
            )
        return known if known.epoch < epoch or known.start_offset < offset else None

    def bound(self, *, committed_only: bool) -> int:
        """The end of the readable records: readers get only records before this offset."""
        log = self.log.state
        return log.last_stable_offset if committed_only else log.high_watermark

    def read(self, offset: int, max_bytes: int, bound: int, *, whole_batch: bool) -> Slice:
        self.check_leads()
        if offset >= bound:
            # An offset between the bound and the end of the log is valid: nothing is readable there yet.
            log = self.log.state
            if log.log_start_offset <= offset <= log.end_offset:
                return Slice(None, 0, 0, offset)
        return self.log.read(offset, max_bytes, bound, whole_batch=whole_batch)

    def goes_on(self, offset: int, bound: int) -> bool:
        """Whether the readable records from `offset` on continue in a later segment. One response ends with its
        segment, however few bytes it has, so waiting for more bytes would be useless."""
        log = self.log.state
        return offset < bound and log.segment_at(offset) != log.segment_at(bound - 1)

    def wake_all(self) -> None:
        """Wake every waiter to read again: the partition has changed or is being removed."""
        for waiter in list(self.waiters):
            waiter.wake()
