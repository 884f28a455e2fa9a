"""A partition's log on disk.

The state machine is `core/log`; this carries out what it decides and tells it what was done. Methods do plain file I/O
and belong to the event loop's thread, except where they say otherwise; fsync and cleaning are prepared here and run in
a thread (`begin_flush`, `storage/cleaner.py`).

Rule 1: first written, then applied: a batch changes the state only when all its bytes are in the file.
Rule 2: an I/O error takes the whole directory offline, because a batch may be there in part. Too few descriptors are
        no such error: what may meet them opens what it needs before it changes anything, or can be done again.
Rule 3: a segment that was closed is synced soon, in a thread (`on_unsynced`): a crash leaves little to read again.
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
from ottla.core.log.files import directory_name
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX, AbortedTxn
from ottla.core.log.producers import VOUCHED, Origin, Verification
from ottla.core.log.retention import expired_segments
from ottla.core.log.rules import produce_rules
from ottla.core.log.segment import RollReason, Segment
from ottla.io.ports import Buffer, Clock, Random
from ottla.kernel import BatchHeader, Checked, ControlType, EndTxnMarker, Run
from ottla.observe.trace import detail, trace
from ottla.storage.atomic import is_out_of_files
from ottla.storage.index_file import OutOfUse
from ottla.storage.log_directory import LogDirectory
from ottla.storage.look_ups import LookUps
from ottla.storage.opening import open_as_left
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.reading import Reading
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
    """Of the batch as it was written, which may be compressed otherwise than it came."""


class Flush(NamedTuple):
    """A sync under way: `run` may go to a thread, then `PartitionLog.end_flush` takes note."""

    end_offset: int
    generation: int
    run: Callable[[], None]
    """Raises `Refused`: for want of descriptors, or because the directory is offline, perhaps since just now."""
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
        """Open the log in its directory, which is made where it is missing, and recover what needs it.

        `on_unsynced` is called, on the loop, when there is something beside the active segment to be synced soon.
        """
        self.directory = directory
        self.key = (topic, partition)
        self.name = directory_name(topic, partition)
        self._clock = clock
        self._random = random
        self.generation = 0
        """Grows when batches are taken away from the end: work on older bytes is void."""
        self._flushing = asyncio.Lock()
        """Held on the loop around a flush in a thread, so that there is one at a time."""
        self._on_unsynced = on_unsynced
        self._recent = RecentBatches()
        disk, path = directory.disk, f"{directory.path}/{self.name}"
        with directory.guard("open"):
            is_new = not disk.exists(path)
            disk.make_directory(path)
            listing = tidy(disk, path)
            left = directory.left(self.key)
            self.here = PartitionFiles(disk, path, listing, settled=left.clean and not is_new)
            self.topic_id, self.log = open_as_left(self.here, self.name, config, clock, left, listing)
            # A watermark above what was recovered would count for what is written there next.
            directory.lower_checkpoints(self.key, self.log.end_offset)
            # A node has thousands of logs, most of which nobody uses now.
            self.here.release()
        self._must_sync_front = not self.here.front_is_durable
        self._look_ups = LookUps(self.log, self.here)
        self._reading = Reading(self.log, self.here, self._look_ups, self._recent)
        self.reconfigure(config)
        detail("log.opened", log=self.name, start=self.log.log_start_offset, end=self.log.end_offset)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Tie the log to its topic, before anything is written to it."""
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
        self.log.reconfigure(config)
        self._rules = produce_rules(config)
        self._long_rules = self._rules._replace(at_once_max=None)
        self._coordinator_rules = self._long_rules._replace(from_client=False)
        self._must_verify = config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]

    # Appending.

    def append(
        self,
        buffer: bytearray | memoryview,
        leader_epoch: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        verification: Verification | None = VOUCHED,
        at_once: bool = False,
        checked: Checked | None = None,
    ) -> Appended:
        """Check one batch, number it and write it. The buffer is changed in place.

        A batch that this producer has sent before is not written again: the answer is the first one. One that opens a
        transaction needs the verification that was begun for it. With `at_once`, raises TakesLong for a batch that
        takes long to check: then `check` may do it in a thread, and gives what is handed over as `checked`.
        """
        self.directory.check_online()
        log, now_ms = self.log, self._clock.wall_ms()
        if checked is None:
            rules = self._rules if at_once else self._long_rules if origin is Origin.CLIENT else self._coordinator_rules
            checked = kernel.check_produced(buffer, rules, now_ms)
        batch, header = checked.batch, checked.header.numbered(log.end_offset, leader_epoch)
        # Most batches have no attributes and no producer: what follows from either need not be asked.
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
        # As calling it does, in half the time.
        return tuple.__new__(Appended, (header.base_offset, header.last_offset, header.append_time, False, header.size))

    def check(self, buffer: bytearray | memoryview) -> Checked:
        """Check a batch of a client, in any thread."""
        return kernel.check_produced(buffer, self._long_rules, self._clock.wall_ms())

    def begin_run(self, leader_epoch: int) -> Run | None:
        """What the batches of Produce requests that are alike are gathered in, to be written together; None where the
        next batch has to be looked at alone. Nothing else may happen to the log until `append_run`."""
        self.directory.check_online()
        log, now_ms = self.log, self._clock.wall_ms()
        room = log.active.room(log.limits, now_ms)
        if room is None:
            return None
        return Run(self._rules, room, now_ms, log.end_offset, leader_epoch, log.log_start_offset, self._may_begin)

    def _may_begin(self, header: BatchHeader) -> bool:
        """Whether a run may have this batch as the first of its producer."""
        return self.log.producers.check(header, Origin.CLIENT, header.base_offset, VOUCHED) is None

    def append_run(self, run: Run) -> None:
        """Write the batches of a run."""
        log, headers = self.log, run.headers
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

    def append_replicated(self, buffer: Buffer) -> Appended | None:
        """Write batches as their leader numbered them; a cut one at the end is left out."""
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
        log = self.log
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
        """The new segment begins where the log ends, also before a gap in what a leader sent: recovery takes a gap
        between segments for a loss. Only a gap too wide for relative offsets is left out."""
        end_offset = self.log.end_offset
        return end_offset if header.last_offset - end_offset <= RELATIVE_OFFSET_MAX else header.base_offset

    def assign_epoch(self, epoch: int) -> None:
        """A new leader epoch begins here, whether anything is ever written in it or not (KAFKA-7415)."""
        if self.log.epochs.assign(epoch, self.log.end_offset):
            self.here.keep_epochs(self.log.epochs.entries)

    def roll(self) -> None:
        """Close the active segment and begin a new one; an empty one stays as it is."""
        if self.log.active.size:
            with self.directory.guard("roll"):
                self._roll(self.log.end_offset, RollReason.ASKED)

    def _roll(self, base_offset: int, reason: RollReason) -> None:
        log, closed = self.log, self.log.active
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
            # Nothing was ever written to it: the new one has taken its place.
            self.here.remove([closed])
        self.here.keep_snapshot(log.producers)
        self._ask_for_sync()
        trace("log.rolled", log=self.name, base_offset=base_offset, reason=reason)

    def _ask_for_sync(self) -> None:
        self._must_sync_front = False
        self._on_unsynced(self)

    # Making durable.

    def begin_flush(self, *, active: bool = True) -> Flush:
        """Everything appended so far, ready to be synced; without `active` only the segments that are closed, and what
        is beside them."""
        log, here, directory = self.log, self.here, self.directory
        if here.closed:
            raise OutOfUse(here.path)
        # Of a segment that was closed since the last flush the records may be synced, the indexes are not.
        first = log.segment_at(log.recovery_point - 1)
        with directory.guard("flush"):
            syncs = [here.of(segment).begin_sync(indexes=True) for segment in log.segments[first:-1]]
            if active:
                syncs.append(here.of(log.active).begin_sync(indexes=False))
            segments, beside = together(list(filter(None, syncs))), here.begin_sync()

        def run() -> None:
            # What fails is noted in the thread: the task that waits for it may be gone.
            with here.syncing, directory.guard("flush"):
                segments.run()
                beside.run()

        end_offset = log.end_offset if active else log.active.base_offset
        return Flush(end_offset, self.generation, run, segments, beside)

    def end_flush(self, flush: Flush) -> None:
        """Take note that it has run, unless the log was truncated meanwhile: what was written in the place of the old
        is not synced."""
        if self.here.closed:
            return
        with self.directory.guard("flush"):
            flush.beside.settle()
            if flush.generation == self.generation:
                flush.segments.settle()
                self.log.flushed(flush.end_offset)

    def flush(self) -> None:
        """Sync everything appended so far, in this thread."""
        flush = self.begin_flush()
        flush.run()
        self.end_flush(flush)

    async def flush_in_thread(self, *, active: bool = True) -> None:
        """As `flush`, while the loop goes on; without `active` only what was closed."""
        async with self._flushing:
            flush = self.begin_flush(active=active)
            await self.directory.disk.in_thread(flush.run)
            self.end_flush(flush)

    @property
    def is_unsynced_beside_the_active_segment(self) -> bool:
        return self.log.recovery_point < self.log.active.base_offset or self.here.is_unsynced

    def close(self) -> None:
        """Leave everything on disk so that the next open has nothing to recover."""
        log, here = self.log, self.here
        with self.directory.guard("close"):
            # A cleaner that was stopped has left it: swapped in by the next open, it would not be what is summarized.
            here.void_swaps()
            here.of(log.active).finish_indexes()
            self.flush()
            here.of(log.active).sync(indexes=True)
            self._look_ups.summarize()
            # Last: recovery takes a snapshot within a segment for a proof that the indexes were synced up to there.
            if log.producers.end_offset not in here.snapshots:
                here.write_snapshot(log.producers)
            sync = here.begin_sync()
            sync.run()
            sync.settle()
            here.sync_names()
        here.close()

    # Reading.

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, whole_batch: bool = True) -> Slice:
        """The batches from the one that holds `offset` on, up to `max_bytes`, none at or past `upper_offset`.

        With `whole_batch` the first one comes whole even if it is larger, so that a reader always gets on; without,
        nothing comes when not even the first fits.
        """
        log = self.log
        log.check_readable(offset)
        if offset >= upper_offset:
            return Slice(None, 0, 0, offset)
        self.directory.check_online()
        try:
            return self._reading.read(offset, max_bytes, upper_offset, whole_batch=whole_batch)
        except OSError as error:
            raise self.directory.fail(error, "read") from error

    def find_readable(self, offset: int) -> int:
        """Where the first whole batch begins at or after `offset`, past whatever damage there is; the end of the log if
        there is none. May run in a thread: it reads by files of its own."""
        with self.directory.guard("read"):
            return self._reading.find_readable(offset)

    def is_warm(self, part: Slice) -> bool:
        """Whether a slice that was just read can be sent without waiting for the disk."""
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
        """Whether who looks up by time on the event loop should await `learn_times` first."""
        with self.directory.guard("look up by time"):
            return self._look_ups.must_learn_times

    async def learn_times(self) -> None:
        """Ask the segments that no summary knows for their largest timestamps, in a thread."""
        await self._look_ups.learn_times()

    def find_max_timestamp(self) -> TimeFound | None:
        """The first record that has the largest timestamp of all."""
        with self.directory.guard("look up by time"):
            return self._look_ups.find_max_timestamp()

    def aborted_transactions(self, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Those that a reader of the offsets from `first_offset` to before `upper_offset` must leave out."""
        with self.directory.guard("read the transaction index"):
            return self._look_ups.aborted(first_offset, upper_offset)

    def aborted_among(self, records: Slice, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Those that a reader must leave out of `records`, which were read from `first_offset` below `upper_offset`.

        Not those after them: a reader that is far behind would be told of all up to the end of the log, each time.
        """
        try:
            if not records.length or not self._look_ups.may_be_aborted(records.first_offset):
                return []
            segment = self.log.segments[self.log.segment_at(records.first_offset)]
            end_offset = self._look_ups.end_offset_before(segment, records.position + records.length)
            return self._look_ups.aborted(first_offset, min(end_offset, upper_offset))
        except OSError as error:
            raise self.directory.fail(error, "read the transaction index") from error

    def largest_timestamp(self, segment: Segment) -> int:
        """Of its records; of its file where no record has one."""
        with self.directory.guard("look up by time"):
            timestamp = self._look_ups.max_timestamp(segment)
            return timestamp if timestamp >= 0 else self.here.of(segment).modified_ms()

    def first_timestamp(self, segment: Segment) -> int:
        """Of its first batch; -1 where there is none."""
        self.here.of(segment).load_first_timestamp()
        return -1 if segment.first_timestamp is None else segment.first_timestamp

    # Letting go.

    def replace(self, segments: list[Segment], cleaned: SegmentFiles, now_ms: int) -> None:
        """Put a cleaned segment, which is whole and named `.swap`, in the place of neighbours."""
        log, here = self.log, self.here
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
        """Records before `offset` are deleted; the new log start. Their segments go with the next `retain`."""
        if self.log.is_new_start(offset):
            with self.directory.guard("delete records"):
                self._advance_log_start(offset)
        return self.log.log_start_offset

    def _advance_log_start(self, offset: int) -> None:
        # First the start, then the epochs: records that came back after a crash would have lost theirs.
        self.directory.begin_checkpoint({}, {}, {self.key: offset})()
        self.log.advance_log_start(offset)
        self.here.write_epochs(self.log.epochs.entries)

    def log_start_kept(self, offset: int) -> None:
        """A new log start is durable; older leader epochs may go with what is synced next."""
        if self.log.advance_log_start(offset):
            self.here.keep_epochs(self.log.epochs.entries)

    def retain(self, now_ms: int) -> int:
        """Let go of what retention says, and of the files whose time has come; how many segments went."""
        removed = 0
        with self.directory.guard("retention"):
            while (expired := expired_segments(self.log, now_ms, self.largest_timestamp)) is not None:
                self.drop_front(expired.segments, expired.reason, now_ms)
                removed += expired.segments
            self.here.purge(now_ms)
        return removed

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        self.log.producers.expire(now_ms, self.log.config[PRODUCER_ID_EXPIRATION_MS])

    def drop_front(self, count: int, reason: str, now_ms: int) -> None:
        """Take the first `count` segments out of use; the active one is closed first if it is among them."""
        log = self.log
        with self.directory.guard("retention"):
            if count == len(log.segments):
                self._roll(log.end_offset, RollReason.ASKED)
            self._keep_producers(count)
            new_start = max(log.log_start_offset, log.segments[count].base_offset)
            # First the new start, then the files: a crash in between must not leave a hole in what counts as the log.
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
        """What the first `count` segments say of producers must outlive them: in a snapshot, and that one durable."""
        log = self.log
        first_kept = log.segments[count].base_offset
        # The one that is there may be unreadable; then this reads on from an older one.
        self.here.write_snapshot(
            rebuild_producers(self.here, self.name, log.segments[: count + 1], first_kept, first_kept)
        )
        sync = self.here.begin_sync()
        sync.run()
        sync.settle()

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on; a batch that holds it goes whole."""
        log = self.log
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
            # First, for the cut takes the newest snapshot away.
            producers = rebuild_producers(
                self.here, self.name, log.segments[: keep + 1], end_offset, log.high_watermark
            )
        with self.directory.guard("truncate", half_done=True):
            if end_offset < log.log_start_offset:
                # The batch begins before the log start; where it goes from will be written again. Should a crash keep
                # the batch, its first records are in the log again, and must have their epoch.
                log.epochs.reach_back(end_offset)
                self.here.write_epochs(log.epochs.entries)
            # Also one that was asked for, and could not be written: what comes next is not what was to be deleted.
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
        """Drop everything and begin anew, empty, at `offset`."""
        with self.directory.guard("restart", half_done=True):
            self.directory.lower_checkpoints(self.key, 0)
            self.here.void_swaps()
            self._look_ups.forget()
            self.here.remove(self.log.segments)
            self.here.drop_snapshots(lambda _: True)
            self.directory.keep_log_start(self.key, offset)
            self.log.restarted(Segment(offset, created_ms=self._clock.wall_ms()))
            self.here.create(self.log.active, is_first=True)
            self.here.write_epochs([])
            self._reading.forget()
            self.generation += 1
        trace("log.restarted", log=self.name, offset=offset)
