"""A partition's log on disk.

`core/log` is the state machine; this module executes its decisions and reports what was done. Methods do plain file I/O
and run in the event loop's thread unless they say otherwise. fsync and cleaning are prepared here and run in a thread
(`begin_flush`, `storage/cleaner.py`).

Rule 1: write first, then apply: a batch changes the state only when all its bytes are in the file.
Rule 2: an I/O error takes the whole directory offline, because a batch may be written in part. Running out of
        descriptors is different: operations open the files they need before they change anything, or can be repeated.
Rule 3: a closed segment is synced soon, in a thread (`on_unsynced`), so that recovery after a crash reads little.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla import kernel
from ottla.config import (
    FILE_DELETE_DELAY_MS,
    PRODUCER_ID_EXPIRATION_MS,
    SEGMENT_JITTER_MS,
    SEGMENT_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
    Config,
)
from ottla.core.log.append_run import AppendRun
from ottla.core.log.files import directory_name
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX, AbortedTxn
from ottla.core.log.producers import VOUCHED, AppendOrigin, Verification
from ottla.core.log.retention import expired_segments
from ottla.core.log.rules import produce_rules
from ottla.core.log.segment import RollReason, Segment
from ottla.io.ports import Buffer, Clock, Random
from ottla.kernel import BatchHeader, Checked, ControlType, EndTxnMarker
from ottla.observe.trace import detail, trace
from ottla.storage.atomic import is_out_of_files
from ottla.storage.index_file import OutOfUse
from ottla.storage.log_directory import LogDirectory
from ottla.storage.look_ups import LookUps
from ottla.storage.opening import open_as_left
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.reading import LogReader
from ottla.storage.recent import RecentBatches
from ottla.storage.recovery import marker_in, rebuild_producers
from ottla.storage.segment_files import SegmentFiles, TimeFound
from ottla.storage.slices import Slice
from ottla.storage.syncing import Sync, together
from ottla.storage.tidying import tidy
from ottla.wire.errors import Error, Refused
from ottla.wire.uuids import uuid_to_text

T = TypeVar("T")


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time: int
    """-1 unless the topic has LogAppendTime."""
    duplicate: bool = False
    size: int = 0
    """Size of the batch as written; recompression may have changed it."""


class Flush(NamedTuple):
    """A sync in progress: `run` may run in a thread, then `PartitionLog.end_flush` records its success."""

    end_offset: int
    generation: int
    run: Callable[[], None]
    """Raises `Refused` if descriptors run out or if the directory is or goes offline."""
    segments: Sync
    beside: Sync


class PartitionLog:
    def __init__(
        self,
        directory: LogDirectory,
        topic: str,
        partition: int,
        config: Config,
        clock: Clock,
        random: Random,
        on_unsynced: "Callable[[PartitionLog], None]" = lambda _: None,
    ) -> None:
        """Open the log, recovering it if needed; a missing directory is created. `on_unsynced` is called on the loop
        when something beside the active segment needs a sync soon."""
        self.directory = directory
        self.key = (topic, partition)
        self.name = directory_name(topic, partition)
        self._clock = clock
        self._random = random
        self.generation = 0
        """Incremented when batches are removed from the end; work based on older bytes is void."""
        self._flushing = asyncio.Lock()
        """Held on the loop during a flush in a thread, so that there is one at a time."""
        self._on_unsynced = on_unsynced
        self._recent = RecentBatches()
        self._run: AppendRun | None = None
        """The last one that was begun."""
        disk, path = directory.disk, f"{directory.path}/{self.name}"
        with directory.guard("open"):
            is_new = directory.make(path)
            listing = tidy(disk, path)
            left = directory.left(self.key)
            self.here = PartitionFiles(disk, path, listing, settled=left.clean and not is_new)
            self.topic_id, self.state = open_as_left(self.here, self.name, config, clock, left, listing)
            # A watermark above the recovered end would apply to whatever is appended there next.
            directory.lower_checkpoints(self.key, self.state.end_offset)
            # A node has thousands of logs, and most are idle.
            self.here.release()
        self._must_sync_front = not self.here.front_is_durable
        self._look_ups = LookUps(self.state, self.here)
        self._reading = LogReader(self.state, self.here, self._look_ups, self._recent)
        self.reconfigure(config)
        detail("log.opened", log=self.name, start=self.state.log_start_offset, end=self.state.end_offset)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Bind the log to its topic, before anything is written to it."""
        if self.topic_id is not None and self.topic_id != topic_id:
            raise Refused(
                Error.INCONSISTENT_TOPIC_ID,
                f"{self.name}: the log here belongs to topic id {uuid_to_text(self.topic_id)}, "
                f"not {uuid_to_text(topic_id)}",
            )
        with self.directory.guard("write partition.metadata"):
            self.here.write_topic_id(topic_id)
        self.topic_id = topic_id

    def reconfigure(self, config: Config) -> None:
        self.state.reconfigure(config)
        self.rules = produce_rules(config)
        """What a batch of a client is checked by."""
        self._long_rules = self.rules._replace(at_once_max=None)
        self._coordinator_rules = self._long_rules._replace(from_client=False)
        self._must_verify = config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]

    # Appending.

    def append(
        self,
        buffer: bytearray | memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        verification: Verification | None = VOUCHED,
        at_once: bool = False,
        checked: Checked | None = None,
    ) -> Appended:
        """Check one batch, assign its offsets and write it. The buffer is changed in place.

        A batch that this producer has sent before is not written again: the first result is returned. A batch that
        opens a transaction needs the verification that was begun for it. With `at_once`, raises TakesLong for a batch
        that is slow to check: call `check` in a thread then, and pass its result as `checked`.
        """
        self.directory.check_online()
        log, now_ms = self.state, self._clock.wall_ms()
        if checked is None:
            rules = self._long_rules if origin is AppendOrigin.CLIENT else self._coordinator_rules
            if at_once:
                rules = self.rules
            checked = kernel.check_produced(buffer, rules, now_ms)
        batch, header = checked.batch, checked.header.numbered(log.end_offset, leader_epoch)
        # Most batches have no attributes and no producer, so skip what depends on either.
        marker = marker_in(header, batch) if header.attributes else None
        if marker is not None:
            log.producers.check_marker(header, marker, transaction_version)
        elif header.producer_id >= 0:
            wanted = verification if self._must_verify else VOUCHED
            duplicate = log.producers.check(header, origin, log.end_offset, wanted)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, duplicate=True)
        kernel.stamp(batch, 0, header.base_offset, leader_epoch)
        self._write(header, marker, batch, now_ms)
        # Equivalent to calling Appended, in half the time.
        return tuple.__new__(Appended, (header.base_offset, header.last_offset, header.append_time, False, header.size))

    def check(self, buffer: bytearray | memoryview) -> Checked:
        """Check a client's batch. Runs in any thread."""
        return kernel.check_produced(buffer, self._long_rules, self._clock.wall_ms())

    def begin_run(self, leader_epoch: int) -> AppendRun | None:
        """Start a run: batches that were checked by `rules` and are written together. None if the next batch must be
        appended alone, because it may open a new segment. Nothing else may change the log before `append_run`."""
        self.directory.check_online()
        log, run = self.state, self._run
        if run is not None and run.goes_on(log, leader_epoch):
            return run
        room = log.active.room(log.limits, self._clock.wall_ms())
        self._run = AppendRun(log, room, leader_epoch) if room is not None else None
        return self._run

    def append_run(self, run: AppendRun) -> None:
        """Write the batches of a run."""
        log, headers, self._run = self.state, run.headers, None
        try:
            active = log.segments[-1]
            files, position = self.here.of(active), active.size
            files.append(run.batches)
            if self._must_sync_front:
                self._ask_for_sync()
            entries, new_epoch = log.appended_run(headers)
            self._recent.note(headers, position)
            files.add_index_entries(entries)
            if new_epoch:
                self.here.keep_epochs(log.epochs.entries)
        except OSError as error:
            raise self.directory.fail(error, "append") from error
        run.clear()
        self._run = run

    def append_replicated(self, buffer: Buffer) -> Appended | None:
        """Write batches with the offsets the leader assigned. A cut batch at the end is ignored."""
        self.directory.check_online()
        now_ms, view = self._clock.wall_ms(), memoryview(buffer)
        scanned = kernel.scan(view)
        if scanned.fault is not None:
            raise kernel.CorruptBatch(f"{self.name}: byte {scanned.consumed} of what the leader sent: {scanned.fault}")
        position = 0
        for header in scanned.headers:
            batch = view[position : position + header.size]
            self._write(header, marker_in(header, batch), batch, now_ms)
            position += header.size
        if not scanned.headers:
            return None
        return Appended(scanned.headers[0].base_offset, scanned.headers[-1].last_offset, -1)

    def _write(self, header: BatchHeader, marker: EndTxnMarker | None, batch: Buffer, now_ms: int) -> None:
        log = self.state
        reason = log.placement(header, now_ms)
        try:
            if reason is not None:
                self._roll(self._roll_offset(header), reason)
            active = log.segments[-1]
            files, position = self.here.of(active), active.size
            if marker is not None and marker.control_type is ControlType.ABORT and log.producers.has_open(header):
                self._look_ups.prepare_to_abort()
            files.append([batch])
            if self._must_sync_front:
                self._ask_for_sync()
            entries, completed, new_epoch = log.appended(header, marker)
            self._recent.note((header,), position)
            files.add_index_entries(entries)
            if completed is not None and completed.aborted:
                files.add_aborted(completed.as_aborted())
            if new_epoch:
                self.here.keep_epochs(log.epochs.entries)
        except OSError as error:
            raise self.directory.fail(error, "append") from error

    def _roll_offset(self, header: BatchHeader) -> int:
        """The new segment begins at the log end, even before a gap in the leader's offsets: recovery treats a gap
        between segments as a loss. Only a gap too wide for relative offsets is skipped."""
        end_offset = self.state.end_offset
        return end_offset if header.last_offset - end_offset <= RELATIVE_OFFSET_MAX else header.base_offset

    def assign_epoch(self, epoch: int) -> None:
        """Record that a new leader epoch begins here, even if nothing is written in it (KAFKA-7415)."""
        if self.state.epochs.assign(epoch, self.state.end_offset):
            self.here.keep_epochs(self.state.epochs.entries)

    def roll(self) -> None:
        """Close the active segment and create a new one. An empty active segment stays."""
        if self.state.active.size:
            with self.directory.guard("roll"):
                self._roll(self.state.end_offset, RollReason.ASKED)

    def _roll(self, base_offset: int, reason: RollReason) -> None:
        log, closed = self.state, self.state.active
        if closed.size:
            self.here.of(closed).finish_indexes()
        jitter_ms = min(log.config[SEGMENT_JITTER_MS], log.config[SEGMENT_MS])
        segment = Segment(base_offset, created_ms=self._clock.wall_ms())
        segment.roll_jitter_ms = self._random.randrange(jitter_ms) if jitter_ms > 0 else 0
        self.here.create(segment)
        self._recent.clear()
        if closed.size:
            self._look_ups.closed(closed)
        else:
            log.segments.pop()
        log.rolled(segment)
        if not closed.size:
            # Nothing was written to it, and the new one has replaced it.
            self.here.remove([closed])
        self.here.keep_snapshot(log.producers)
        self._ask_for_sync()
        trace("log.rolled", log=self.name, base_offset=base_offset, reason=reason)

    def _ask_for_sync(self) -> None:
        self._must_sync_front = False
        self._on_unsynced(self)

    # Making durable.

    def begin_flush(self, *, active: bool = True) -> Flush:
        """Prepare a sync of everything appended so far; without `active`, of the closed segments and the files beside
        them."""
        log, here, directory = self.state, self.here, self.directory
        if here.closed:
            raise OutOfUse(here.path)
        # The records of a segment closed since the last flush may be synced; its indexes are not.
        first = log.segment_at(log.recovery_point - 1)
        with directory.guard("flush"):
            syncs = [here.of(segment).begin_sync(indexes=True) for segment in log.segments[first:-1]]
            if active:
                syncs.append(here.of(log.active).begin_sync(indexes=False))
            segments, beside = together(list(filter(None, syncs))), here.begin_sync()

        def run() -> None:
            # A failure is recorded in the thread, because the awaiting task may be gone.
            with here.syncing, directory.guard("flush"):
                segments.run()
                beside.run()

        end_offset = log.end_offset if active else log.active.base_offset
        return Flush(end_offset, self.generation, run, segments, beside)

    def end_flush(self, flush: Flush) -> None:
        """Record that the flush has run, unless the log was truncated meanwhile: newer bytes are not synced."""
        if self.here.closed:
            return
        with self.directory.guard("flush"):
            flush.beside.settle()
            if flush.generation == self.generation:
                flush.segments.settle()
                self.state.flushed(flush.end_offset)

    def flush(self) -> None:
        """Sync everything appended so far, in this thread."""
        flush = self.begin_flush()
        flush.run()
        self.end_flush(flush)

    async def flush_in_thread(self, *, active: bool = True) -> None:
        """Like `flush`, in a thread; without `active` only closed segments."""
        async with self._flushing:
            flush = self.begin_flush(active=active)
            await self.directory.disk.in_thread(flush.run)
            self.end_flush(flush)

    @property
    def is_unsynced_beside_the_active_segment(self) -> bool:
        return self.state.recovery_point < self.state.active.base_offset or self.here.is_unsynced

    def close(self) -> None:
        """Close the log so that the next open needs no recovery."""
        log, here = self.state, self.here
        with self.directory.guard("close"):
            # Left by a cleaner that was stopped. The next open would swap it in, and the summary would not match.
            here.void_swaps()
            here.of(log.active).finish_indexes()
            self.flush()
            here.of(log.active).sync(indexes=True)
            self._look_ups.summarize()
            # Last, because recovery takes a snapshot inside a segment as proof that its indexes were synced up to
            # there.
            if log.producers.end_offset not in here.snapshots:
                here.write_snapshot(log.producers)
            sync = here.begin_sync()
            sync.run()
            sync.settle()
            here.sync_names()
        here.close()

    # Reading.

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, whole_batch: bool = True) -> Slice:
        """The batches from the one that contains `offset` on, at most `max_bytes`, all below `upper_offset`.

        With `whole_batch` the first batch is returned whole even if it is larger, so that a reader always advances.
        Without it the result is empty if the first batch does not fit.
        """
        log = self.state
        log.check_readable(offset)
        if offset >= upper_offset:
            return Slice(None, 0, 0, offset)
        self.directory.check_online()
        try:
            return self._reading.read(offset, max_bytes, upper_offset, whole_batch=whole_batch)
        except OSError as error:
            raise self.directory.fail(error, "read") from error

    def find_readable(self, offset: int) -> int:
        """The start of the first whole batch at or after `offset`, skipping damage; the log end if there is none. May
        run in a thread: it opens files separately."""
        with self.directory.guard("read"):
            return self._reading.find_readable(offset)

    def is_warm(self, part: Slice) -> bool:
        """Whether a slice just read can be sent without waiting for the disk."""
        try:
            return self._reading.is_warm(part)
        except OSError as error:
            raise self.directory.fail(error, "read") from error

    def find_time(self, timestamp: int) -> TimeFound | None:
        """The first record whose timestamp is at least `timestamp`."""
        with self.directory.guard("look up by time"):
            return self._look_ups.find_time(timestamp)

    @property
    def must_learn_times(self) -> bool:
        """Whether a look-up by time on the event loop should await `learn_times` first."""
        with self.directory.guard("look up by time"):
            return self._look_ups.must_learn_times

    async def learn_times(self) -> None:
        """Read the largest timestamps of segments outside the summary, in a thread."""
        await self._look_ups.learn_times()

    def find_max_timestamp(self) -> TimeFound | None:
        """The first record with the largest timestamp in the log."""
        with self.directory.guard("look up by time"):
            return self._look_ups.find_max_timestamp()

    def aborted_transactions(self, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that a reader of `first_offset` up to `upper_offset` (exclusive) must filter out."""
        with self.directory.guard("read the transaction index"):
            return self._look_ups.aborted(first_offset, upper_offset)

    def aborted_among(self, records: Slice, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions to filter out of `records`, which were read from `first_offset` below
        `upper_offset`. Later ones are left out: a reader far behind would get all up to the log end with each Fetch."""
        try:
            if not records.length or not self._look_ups.may_be_aborted(records.first_offset):
                return []
            segment = self.state.segments[self.state.segment_at(records.first_offset)]
            end_offset = self._look_ups.end_offset_before(segment, records.position + records.length)
            return self._look_ups.aborted(first_offset, min(end_offset, upper_offset))
        except OSError as error:
            raise self.directory.fail(error, "read the transaction index") from error

    def largest_timestamp(self, segment: Segment) -> int:
        """The largest timestamp of the segment's records; the file's modification time if no record has one."""
        with self.directory.guard("look up by time"):
            timestamp = self._look_ups.max_timestamp(segment)
            return timestamp if timestamp >= 0 else self.here.of(segment).modified_ms()

    def first_timestamp(self, segment: Segment) -> int:
        """The timestamp of its first batch; -1 if there is none."""
        self.here.of(segment).load_first_timestamp()
        return -1 if segment.first_timestamp is None else segment.first_timestamp

    # Removing.

    def replace(self, segments: list[Segment], cleaned: SegmentFiles, now_ms: int) -> None:
        """Replace adjacent segments by a cleaned one, which is complete and named `.swap`."""
        log, here = self.state, self.here
        first = log.segments.index(segments[0])
        with self.directory.guard("swap in a cleaned segment"):
            retired = here.rename_deleted(segments)
            try:
                here.sync_names()
            except OSError as error:
                if is_out_of_files(error):
                    here.undo_deleted(retired)
                raise
        with self.directory.guard("swap in a cleaned segment", half_done=True):
            here.retire(segments, retired, now_ms + log.config[FILE_DELETE_DELAY_MS])
            cleaned.rename("")
            log.segments[first : first + len(segments)] = [cleaned.segment]
            self._look_ups.replaced(cleaned)
            gone = [segment.base_offset for segment in segments[1:]]
            here.drop_snapshots(lambda offset: offset in gone, durably=False)
            here.sync_names_if_possible()

    def delete_records(self, offset: int) -> int:
        """Delete the records before `offset`; returns the new log start. Their segments are removed by the next
        `retain`."""
        if self.state.is_new_start(offset):
            with self.directory.guard("delete records"):
                self._advance_log_start(offset)
        return self.state.log_start_offset

    def _advance_log_start(self, offset: int) -> None:
        # The start first, then the epochs: records that reappear after a crash would lack theirs otherwise.
        self.directory.begin_checkpoint({}, {}, {self.key: offset})()
        self.state.advance_log_start(offset)
        self.here.write_epochs(self.state.epochs.entries)

    def log_start_kept(self, offset: int) -> None:
        """A new log start is durable; older leader epochs may be dropped with the next sync."""
        if self.state.advance_log_start(offset):
            self.here.keep_epochs(self.state.epochs.entries)

    def retain(self, now_ms: int) -> int:
        """Remove segments by retention, and files whose delay is over; returns the number of segments removed."""
        removed = 0
        with self.directory.guard("retention"):
            while (expired := expired_segments(self.state, now_ms, self.largest_timestamp)) is not None:
                self.drop_front(expired.segments, expired.reason, now_ms)
                removed += expired.segments
            self.here.purge(now_ms)
        return removed

    def expire_producers(self, now_ms: int) -> None:
        """Drop the producers that have been idle for `producer.id.expiration.ms`."""
        self.state.producers.expire(now_ms, self.state.config[PRODUCER_ID_EXPIRATION_MS])

    def drop_front(self, count: int, reason: str, now_ms: int) -> None:
        """Take the first `count` segments out of use; the active one is closed first if it is among them."""
        log = self.state
        with self.directory.guard("retention"):
            if count == len(log.segments):
                self._roll(log.end_offset, RollReason.ASKED)
            self._keep_producers(count)
            new_start = max(log.log_start_offset, log.segments[count].base_offset)
            # The new start first, then the files: a crash in between must not leave a hole in the log.
            if log.is_new_start(new_start):
                self._advance_log_start(new_start)
            dropped = log.segments[:count]
            retired = self.here.rename_deleted(dropped)
            del log.segments[:count]
            self._look_ups.forget_times()
            self.here.retire(dropped, retired, now_ms + log.config[FILE_DELETE_DELAY_MS])
            self.here.drop_snapshots(lambda offset: offset < log.segments[0].base_offset, durably=False)
            self.here.sync_names_if_possible()
        trace(
            "log.segments_expired",
            log=self.name,
            segments=[segment.base_offset for segment in dropped],
            log_start_offset=new_start,
            reason=reason,
        )

    def _keep_producers(self, count: int) -> None:
        """Make the producer state at the end of the first `count` segments durable in a snapshot, because they are
        removed."""
        log = self.state
        first_kept = log.segments[count].base_offset
        # The existing snapshot may be unreadable; then this rebuilds from an older one.
        self.here.write_snapshot(
            rebuild_producers(self.here, self.name, log.segments[: count + 1], first_kept, first_kept)
        )
        sync = self.here.begin_sync()
        sync.run()
        sync.settle()

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on, including the whole batch that contains it."""
        log = self.state
        if offset >= log.end_offset:
            return
        if offset < log.segments[0].base_offset:
            self.restart(offset)
            return
        with self.directory.guard("truncate"):
            keep = log.segment_at(offset)
            first = self._look_ups.locate(log.segments[keep], offset)
            end_offset = offset if first is None else min(offset, first.header.base_offset)
            self._look_ups.make_aborted_readable(keep)
            # Before the truncation, which removes the newest snapshot.
            producers = rebuild_producers(
                self.here, self.name, log.segments[: keep + 1], end_offset, log.high_watermark
            )
        with self.directory.guard("truncate", half_done=True):
            if end_offset < log.log_start_offset:
                # The batch begins before the log start, and its offsets will be written again. If a crash keeps the
                # batch, its first records are in the log again and need their epoch.
                log.epochs.reach_back(end_offset)
                self.here.write_epochs(log.epochs.entries)
            # Also a log start that was requested but could not be written: the next records are not the ones to delete.
            if self.directory.log_starts.get(self.key, 0) > end_offset:
                self.directory.keep_log_start(self.key, min(log.log_start_offset, end_offset))
            self.directory.lower_checkpoints(self.key, end_offset)
            self.here.void_swaps()
            self._look_ups.forget()
            self.here.remove(log.segments[keep + 1 :])
            del log.segments[keep + 1 :]
            active = self.here.of(log.active)
            if first is not None:
                active.truncate(first, log.config)
            else:
                self._look_ups.max_timestamp(log.active)
                active.load_first_timestamp()
            self.here.drop_snapshots(lambda snapshot: snapshot > end_offset)
            log.truncated(end_offset, producers)
            self.here.write_epochs(log.epochs.entries)
            self._reading.forget()
            self.generation += 1
        trace("log.truncated", log=self.name, end_offset=end_offset)

    def restart(self, offset: int) -> None:
        """Remove everything and begin again, empty, at `offset`."""
        with self.directory.guard("restart", half_done=True):
            self.directory.lower_checkpoints(self.key, 0)
            self.here.void_swaps()
            self._look_ups.forget()
            self.here.remove(self.state.segments)
            self.here.drop_snapshots(lambda _: True)
            self.directory.keep_log_start(self.key, offset)
            self.state.restarted(Segment(offset, created_ms=self._clock.wall_ms()))
            self.here.create(self.state.active, is_first=True)
            self.here.write_epochs([])
            self._reading.forget()
            self.generation += 1
        trace("log.restarted", log=self.name, offset=offset)
