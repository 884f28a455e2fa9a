"""A partition's log on disk.

The state machine is `core/log`; this carries out what it decides and tells it what was done. Methods do plain file I/O
and belong to the event loop's thread, except where they say otherwise; fsync and cleaning are prepared here and run in
a thread (`begin_flush`, `storage/cleaner.py`).

Rule 1: first written, then applied: a batch changes the state only when all its bytes are in the file.
Rule 2: an I/O error takes the whole directory offline, because a batch may be there in part.
"""

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
from ottla.core.log.checkpoints import BadCheckpoint, decode_partition_metadata
from ottla.core.log.files import PARTITION_METADATA, directory_name
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX, AbortedTxn
from ottla.core.log.producers import VOUCHED, Origin, Verification
from ottla.core.log.retention import expired_segments
from ottla.core.log.rules import produce_rules
from ottla.core.log.segment import RollReason, Segment
from ottla.io.ports import Buffer, Clock, Random
from ottla.kernel import BatchHeader, Checked, EndTxnMarker, Run
from ottla.observe.trace import trace
from ottla.storage.atomic import read_whole
from ottla.storage.log_directory import LogDirectory
from ottla.storage.look_ups import LookUps
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.reading import Reading
from ottla.storage.recent import RecentBatches
from ottla.storage.recovery import Left, LogDamaged, marker_in, open_log, rebuild_producers
from ottla.storage.segment_files import SegmentFiles, TimeFound
from ottla.storage.slices import Slice
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


class Flush(NamedTuple):
    """A sync under way: `run` may go to a thread, then `PartitionLog.end_flush` takes note."""

    end_offset: int
    generation: int
    run: Callable[[], None]


class PartitionLog:
    def __init__(
        self, directory: LogDirectory, topic: str, partition: int, config: Config, clock: Clock, random: Random
    ) -> None:
        """Open the log in its directory, which is made where it is missing, and recover what needs it."""
        self.directory = directory
        self.key = (topic, partition)
        self.name = directory_name(topic, partition)
        self._clock = clock
        self._random = random
        self.generation = 0
        """Grows when batches are taken away from the end: work on older bytes is void."""
        self._recent = RecentBatches()
        disk, path = directory.disk, f"{directory.path}/{self.name}"
        with directory.guard("open"):
            is_new = not disk.exists(path)
            disk.make_directory(path)
            listing = tidy(disk, path)
            self.here = PartitionFiles(disk, path, listing)
            if is_new:
                self.here.made()
            left = directory.left(self.key)
            self.topic_id = self._read_topic_id(left)
            self.log = open_log(self.here, self.name, config, clock, left, listing)
            # A watermark above what was recovered would count for what is written there next.
            directory.lower_checkpoints(self.key, self.log.end_offset)
            # A node has thousands of logs, most of which nobody uses now.
            self.here.release(logs=self.log.recovery_point >= self.log.end_offset)
        self._look_ups = LookUps(self.log, self.here)
        self._reading = Reading(self.log, self.here, self._look_ups, self._recent)
        self.reconfigure(config)
        trace("log.opened", log=self.name, start=self.log.log_start_offset, end=self.log.end_offset)

    def _read_topic_id(self, left: Left) -> bytes | None:
        path = f"{self.here.path}/{PARTITION_METADATA}"
        data = read_whole(self.here.disk, path)
        try:
            return decode_partition_metadata(data) if data is not None else None
        except BadCheckpoint as error:
            if not left.clean and left.recovery_point == 0:
                return None  # Torn before anything here was synced.
            raise LogDamaged(f"{path} does not say which topic this is: {error}") from error

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
        return tuple.__new__(Appended, (header.base_offset, header.last_offset, header.append_time, False))

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
            files.append([batch])
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
        log = self.log
        self._recent.clear()
        closed = log.active
        if closed.size == 0:
            # Nothing was ever written to it: the new one takes its place.
            self.here.remove([log.segments.pop()])
        else:
            self.here.of(closed).finish_indexes()
            self._look_ups.closed(closed)
        jitter_ms = min(log.config[SEGMENT_JITTER_MS], log.config[SEGMENT_MS])
        segment = Segment(base_offset, created_ms=self._clock.wall_ms())
        segment.roll_jitter_ms = self._random.randrange(jitter_ms) if jitter_ms > 0 else 0
        self.here.create(segment)
        log.rolled(segment)
        self.here.write_snapshot(log.producers)
        trace("log.rolled", log=self.name, base_offset=base_offset, reason=reason)

    # Making durable.

    def begin_flush(self) -> Flush:
        """Everything appended so far, ready to be synced."""
        log = self.log
        # Of a segment that was closed since the last flush the records may be synced, the indexes are not.
        first = log.segment_at(log.recovery_point - 1)
        closed = [self.here.of(segment) for segment in log.segments[first:-1]]
        active = self.here.of(log.active)
        with self.directory.guard("flush"):
            sync_rest = self.here.begin_sync()

        def run() -> None:
            for files in closed:
                files.sync(indexes=True)
            active.sync(indexes=False)
            sync_rest()

        return Flush(log.end_offset, self.generation, run)

    def end_flush(self, flush: Flush) -> None:
        """Take note, unless the log was truncated meanwhile: what was written in the place of the old is not synced."""
        if flush.generation == self.generation:
            self.log.flushed(flush.end_offset)

    def flush(self) -> None:
        """Sync everything appended so far, in this thread."""
        flush = self.begin_flush()
        with self.directory.guard("flush"):
            flush.run()
        self.end_flush(flush)

    def close(self) -> None:
        """Leave everything on disk so that the next open has nothing to recover."""
        log = self.log
        with self.directory.guard("close"):
            self.here.of(log.active).finish_indexes()
            flush = self.begin_flush()
            flush.run()
            self.here.of(log.active).sync(indexes=True)
            self._look_ups.summarize()
            # Last: recovery takes a snapshot within a segment for a proof that the indexes were synced up to there.
            if log.producers.end_offset not in self.here.snapshots:
                self.here.write_snapshot(log.producers)
            self.here.begin_sync()()
            self.here.sync_names()
        self.end_flush(flush)
        self.here.close()

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
        log = self.log
        first = log.segments.index(segments[0])
        with self.directory.guard("swap in a cleaned segment"):
            log.segments[first : first + len(segments)] = [cleaned.segment]
            self._look_ups.replaced(cleaned)
            snapshots = [segment.base_offset for segment in segments[1:]]
            self.here.retire(segments, now_ms + log.config[FILE_DELETE_DELAY_MS])
            self.here.drop_snapshots(lambda offset: offset in snapshots)
            cleaned.rename("")
            self.here.sync_names()

    def delete_records(self, offset: int) -> int:
        """Records before `offset` are deleted; the new log start. Their segments go with the next `retain`."""
        if self.log.advance_log_start(offset):
            with self.directory.guard("delete records"):
                # First the start, then the epochs: records that came back after a crash would have lost theirs.
                self.directory.keep_log_start(self.key, self.log.log_start_offset)
                self.here.write_epochs(self.log.epochs.entries)
        return self.log.log_start_offset

    def log_start_kept(self) -> None:
        """After `log.advance_log_start`: the new log start is durable, so that older leader epochs may go."""
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
            log.advance_log_start(new_start)
            # First the new start, then the files: a crash in between must not leave a hole in what counts as the log.
            self.directory.keep_log_start(self.key, new_start)
            self.here.write_epochs(log.epochs.entries)
            dropped = log.segments[:count]
            del log.segments[:count]
            self._look_ups.forget_times()
            self.here.retire(dropped, now_ms + log.config[FILE_DELETE_DELAY_MS])
            self.here.drop_snapshots(lambda offset: offset < log.segments[0].base_offset)
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
        self.here.begin_sync()()

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
            if end_offset < log.log_start_offset:
                # The batch begins before the log start; where it goes from will be written again.
                self.directory.keep_log_start(self.key, end_offset)
            # First, for the cut takes the newest snapshot away.
            producers = rebuild_producers(
                self.here, self.name, log.segments[: keep + 1], end_offset, log.high_watermark
            )
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
        with self.directory.guard("restart"):
            self.directory.lower_checkpoints(self.key, 0)
            self.here.void_swaps()
            self._look_ups.forget()
            self.here.remove(self.log.segments)
            self.here.drop_snapshots(lambda _: True)
            self.directory.keep_log_start(self.key, offset)
            self.log.restarted(Segment(offset, created_ms=self._clock.wall_ms()))
            self.here.create(self.log.active)
            self.here.write_epochs([])
            self._reading.forget()
            self.generation += 1
        trace("log.restarted", log=self.name, offset=offset)
