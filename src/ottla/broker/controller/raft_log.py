"""The metadata log of a voter: append, sync, snapshots, loading, control records, high watermark.

A single node is a quorum of one voter: its synced records are committed. The log, its control records and the files
beside it have Kafka's formats. The controller and the publisher interpret the records.

Rule 1: no record is committed before it is synced. One sync covers all records appended before it started.
Rule 2: committed records go to the publisher in the order of the log. After the publisher has called all its listeners,
        the high watermark moves, and the callers that wait in `committed` go on.
Rule 3: when the log cannot be written or synced, it has failed for good: every later append is refused.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ottla.broker.controller.metadata_files import MetadataFiles
from ottla.broker.controller.publisher import MetadataDelta, MetadataPublisher
from ottla.config import Config
from ottla.config.quorum import (
    CONTROLLER_QUORUM_VOTERS,
    INTERNAL_METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_SEGMENT_MS,
    METADATA_MAX_RETENTION_BYTES,
    METADATA_MAX_RETENTION_MS,
)
from ottla.core.log import files
from ottla.core.metadata.control import (
    QuorumState,
    Voter,
    Voters,
    leader_change,
    quorum_records,
    read_control_records,
)
from ottla.core.metadata.features import LATEST_LEVEL, check_supported
from ottla.core.metadata.framing import BadMetadataRecord, decode_record, encode_record
from ottla.core.metadata.records import MetadataRecord
from ottla.core.metadata.snapshot import SnapshotId, encode_snapshot, records_of
from ottla.io.ports import Clock, Random
from ottla.kernel import Record, build_batch, crc_ok, read_records
from ottla.observe.trace import trace, warn
from ottla.storage.batches import BatchAt, BatchWalk
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.storage.recovery import LogDamaged
from ottla.wire.errors import Error, Refused

TOPIC_ID: Final = bytes(15) + b"\x01"
_KEY: Final = (files.METADATA_TOPIC, 0)
_OUT_OF_FILES_REST_S = 0.1


class NotAlone(Exception):
    """The metadata belongs to a quorum of several voters."""


class RaftLog:
    def __init__(
        self,
        directory: LogDirectory,
        voter: Voter,
        config: Config,
        clock: Clock,
        random: Random,
        publisher: MetadataPublisher,
    ) -> None:
        """Load the existing log and snapshot into the publisher. `open` does it in a thread."""
        self.node_id = voter.node_id
        self.voters: Voters = (voter,)
        self.epoch = 0
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._publisher = publisher
        self._config = config
        self._clock = clock
        self._directory = directory
        self._is_dynamic = not config[CONTROLLER_QUORUM_VOTERS]
        self._voters_in_log = False
        self._uncommitted: deque[tuple[int, Sequence[MetadataRecord]]] = deque()
        """The end offset and the records of each batch that is appended but not yet published."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._snapshotter: asyncio.Task[None] | None = None
        self._snapshot = SnapshotId(0, 0)
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = clock.monotonic_ms()
        self._last_timestamp = -1
        self._stopping = False
        with directory.guard("open the metadata log"):
            self._files = MetadataFiles(directory)
            self._files.prepare()
            self._log = PartitionLog(directory, *_KEY, _log_config(config), clock, random)
            if self._log.topic_id is None:
                self._log.set_topic_id(TOPIC_ID)
            self._load()
        self.high_watermark = self._log.state.advance_high_watermark(self._log.state.end_offset)
        publisher.end_offset = self.high_watermark

    @classmethod
    async def open(
        cls,
        directory: LogDirectory,
        voter: Voter,
        config: Config,
        clock: Clock,
        random: Random,
        publisher: MetadataPublisher,
    ) -> "RaftLog":
        """Open the metadata log of a directory, or create it there. This voter leads after `begin_epoch`."""
        return await directory.disk.in_thread(lambda: cls(directory, voter, config, clock, random, publisher))

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.state.end_offset

    @property
    def log_start_offset(self) -> int:
        return self._log.state.log_start_offset

    @property
    def kraft_version(self) -> int:
        """1 if the voters are in the log, 0 if they are in the settings."""
        return int(self._is_dynamic)

    # Loading.

    def _load(self) -> None:
        log = self._log.state
        snapshots = self._files.snapshots()
        if snapshots:
            self._snapshot = snapshots[-1]
            self._load_snapshot()
        start_offset = self._snapshot.end_offset
        if start_offset < log.log_start_offset:
            raise LogDamaged(f"{self._log.here.path}: no snapshot holds what lies before {log.log_start_offset}")
        if start_offset > log.end_offset:
            # The snapshot was fetched from a leader whose log was longer than this one.
            self._log.restart(start_offset)
        was_static = log.end_offset > 0 and not self._voters_in_log
        for batch in self._batches_from(start_offset):
            self._load_batch(batch, start_offset)
        if was_static and not self._voters_in_log:
            self._is_dynamic = False
        check_supported(self._publisher.image)
        others = [voter.node_id for voter in self.voters if voter.node_id != self.node_id]
        if others or len(self._config[CONTROLLER_QUORUM_VOTERS]) > 1:
            raise NotAlone(f"{self._log.here.path} belongs to a quorum with other voters as well: {others}")

    def _load_snapshot(self) -> None:
        snapshot = self._files.read_snapshot(self._snapshot)
        self._publisher.load(MetadataDelta(snapshot.records))
        self._last_timestamp = snapshot.last_log_timestamp
        if snapshot.voters is not None:
            self.voters, self._is_dynamic = snapshot.voters, True
            self._voters_in_log = self._snapshot.end_offset > 0
        elif self._snapshot.end_offset > 0:
            self._is_dynamic = False

    def _batches_from(self, offset: int) -> Iterator[BatchAt]:
        """Recovery does not read the log after a clean stop. Raises LogDamaged, because a flipped bit must not be
        replayed, and nothing after it may be left out."""
        log = self._log.state
        for segment in log.segments[log.segment_at(offset) :]:
            walk = BatchWalk(self._log.here.of(segment).log, segment.size)
            for batch in walk:
                if not crc_ok(batch.data, 0, batch.header.size):
                    at = batch.header.base_offset
                    raise LogDamaged(f"{self._log.here.path}, offset {at}: the batch fails its CRC")
                if batch.header.last_offset >= offset:
                    yield batch
            if walk.damage is not None:
                raise LogDamaged(f"{self._log.here.path}, position {walk.damage.position}: {walk.damage.reason}")

    def _load_batch(self, batch: BatchAt, start_offset: int) -> None:
        self._last_timestamp = batch.header.max_timestamp
        records = read_records(batch.data, batch.header)
        if batch.header.is_control:
            control = read_control_records(records)
            if control.voters is not None:
                self.voters, self._voters_in_log, self._is_dynamic = control.voters, True, True
            return
        new = [self._decode(record) for record in records if record.offset >= start_offset]
        self._publisher.load(MetadataDelta(new))
        self._bytes_since_snapshot += batch.header.size

    def _decode(self, record: Record) -> MetadataRecord:
        try:
            return decode_record(record.value)
        except BadMetadataRecord as error:
            raise LogDamaged(f"{self._log.here.path}, offset {record.offset}: {error}") from error

    # Leading.

    def begin_epoch(self) -> None:
        """Become leader in a new epoch: write its state to `quorum-state`, then append its first records."""
        known = self._files.read_state() or QuorumState(epoch=0)
        self.epoch = max(known.epoch, self._log.state.epochs.latest, self._snapshot.epoch, 0) + 1
        with self._directory.guard("write quorum-state"):
            if self._is_dynamic and not self._voters_in_log and not self._files.snapshots():
                self._write_first_voters()
            self._files.write_state(
                QuorumState(self.epoch, leader_id=self.node_id), None if self._is_dynamic else self.voters
            )
        first = [leader_change(self.node_id, self.voters)]
        if self._is_dynamic and not self._voters_in_log:
            first += quorum_records(self.voters)
        self._append_batch(first, control=True)
        self._uncommitted.append((self.end_offset, []))
        self._voters_in_log = self._is_dynamic
        trace("quorum.leading", node_id=self.node_id, epoch=self.epoch, offset=self.end_offset)

    def bootstrap_records(self) -> list[MetadataRecord]:
        """The first records of a new log, from `bootstrap.checkpoint`, which is written if it is missing."""
        with self._directory.guard("write quorum-state"):
            return self._files.bootstrap(self._clock.wall_ms())

    def _write_first_voters(self) -> None:
        """Write the snapshot before the first record. It holds the voters that may elect the first leader."""
        now_ms = self._clock.wall_ms()
        batches = encode_snapshot(
            [], level=LATEST_LEVEL, epoch=0, now_ms=now_ms, last_log_timestamp=now_ms, voters=self.voters
        )
        self._files.write_snapshot(SnapshotId(0, 0), batches)

    # Appending.

    def append(self, records: Sequence[MetadataRecord], level: int) -> None:
        """Append records as one batch, encoded for this metadata.version. They take effect after `committed`."""
        self._append_batch([(None, encode_record(record, level)) for record in records])
        self._uncommitted.append((self.end_offset, records))

    async def committed(self) -> None:
        """Wait until everything appended so far is committed and published."""
        if self.high_watermark < self.end_offset:
            await self._committed(self.end_offset)

    def check_usable(self) -> None:
        """Raises Refused if nothing can be appended any more."""
        if self.failure is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written any more: {self.failure}")
        if self._stopping:
            raise Refused(Error.NOT_CONTROLLER, "the node is stopping")

    def _append_batch(self, contents: list[tuple[Any, bytes]], *, control: bool = False) -> None:
        """Append one batch without syncing it."""
        now_ms, base_offset = self._clock.wall_ms(), self.end_offset
        records = [Record(base_offset + index, now_ms, key, value) for index, (key, value) in enumerate(contents)]
        batch = build_batch(records, leader_epoch=self.epoch, control=control)
        try:
            self._log.append_replicated(batch)
        except Refused as refusal:
            self._fail(refusal)
            raise
        self._last_timestamp = now_ms
        self._bytes_since_snapshot += len(batch)

    async def _committed(self, offset: int) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, done))
        # A task that has just ended has not committed this record; its done callback may not have run yet.
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit_all())
            self._committer.add_done_callback(self._ended)
        await done

    async def _commit_all(self) -> None:
        """Sync and publish until nothing is left."""
        while self.high_watermark < self.end_offset:
            try:
                await self._log.flush_in_thread()
            except Refused:
                if self._directory.failure is not None:
                    raise
                await asyncio.sleep(_OUT_OF_FILES_REST_S)  # Nothing was lost; file descriptors become free again.
                continue
            self._directory.recovery_points[_KEY] = self._log.state.recovery_point
            await self._publish(self._log.state.recovery_point)

    async def _publish(self, offset: int) -> None:
        await self._publisher.publish(self._take_committed(offset), offset)
        self.high_watermark = self._log.state.advance_high_watermark(offset)
        while self._waiting and self._waiting[0][0] <= offset:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)
        self._snapshot_if_due()

    def _take_committed(self, offset: int) -> Iterator[Sequence[MetadataRecord]]:
        while self._uncommitted and self._uncommitted[0][0] <= offset:
            yield self._uncommitted.popleft()[1]

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            warn("quorum.failed", node_id=self.node_id, epoch=self.epoch, error=error)
            self.on_failure()
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(
                    Refused(Error.KAFKA_STORAGE_ERROR, f"the metadata log could not be written: {error}")
                )

    # Snapshots.

    def _snapshot_if_due(self) -> None:
        interval_ms = self._config[METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS]
        late = interval_ms > 0 and self._clock.monotonic_ms() - self._last_snapshot_ms >= interval_ms
        large = self._bytes_since_snapshot >= self._config[METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS]
        idle = self._snapshotter is None or self._snapshotter.done()
        if (late or large) and idle and not self._stopping:
            self._snapshotter = asyncio.create_task(self.snapshot())
            self._snapshotter.add_done_callback(self._ended)

    async def snapshot(self) -> None:
        """Write a snapshot of the committed image, and drop the part of the log and the snapshots that it replaces."""
        snapshot = SnapshotId(self.high_watermark, self.epoch)
        self._bytes_since_snapshot, self._last_snapshot_ms = 0, self._clock.monotonic_ms()
        if snapshot.end_offset <= self._snapshot.end_offset:
            return
        contents, level = list(records_of(self._publisher.image)), self._publisher.image.level
        now_ms, timestamp = self._clock.wall_ms(), self._last_timestamp
        voters = self.voters if self._is_dynamic else None

        def write() -> None:
            batches = encode_snapshot(
                contents,
                level=level,
                epoch=snapshot.epoch,
                now_ms=now_ms,
                last_log_timestamp=timestamp,
                voters=voters,
            )
            self._files.write_snapshot(snapshot, batches)

        with self._directory.guard("write a snapshot"):
            await self._directory.disk.in_thread(write)
            self._snapshot = snapshot
            self._trim()
            self._write_recovery_point()
        trace("quorum.snapshot", offset=snapshot.end_offset, epoch=snapshot.epoch, records=len(contents))

    def _trim(self) -> None:
        """Drop the log before the newest snapshot, and older snapshots, if they are too large or too old."""
        log, now_ms = self._log.state, self._clock.wall_ms()
        oldest_ms = now_ms - self._config[METADATA_MAX_RETENTION_MS]
        large = log.size + self._files.snapshot_bytes() > self._config[METADATA_MAX_RETENTION_BYTES]
        old = [log.end_of(index) <= self._snapshot.end_offset for index in range(len(log.segments))]
        if not large and not (old[0] and self._log.largest_timestamp(log.segments[0]) < oldest_ms):
            return
        self._log.roll()
        covered = sum(log.end_of(index) <= self._snapshot.end_offset for index in range(len(log.segments) - 1))
        if covered:
            self._log.drop_front(covered, "metadata retention", now_ms)
        self._log.here.purge(now_ms)
        self._files.remove_snapshots_before(self._snapshot)

    def keep_recovery_point(self) -> None:
        """Write to the checkpoint file how far the log is synced, so that the next start need not check it."""
        with self._directory.guard("keep the recovery point"):
            self._write_recovery_point()

    def _write_recovery_point(self) -> None:
        self._directory.keep_recovery_point(_KEY, self._log.state.recovery_point)

    # Stopping.

    async def close(self) -> None:
        """Commit what was appended and close the log, so that the next open has nothing to recover."""
        self._stopping = True
        for task in (self._committer, self._snapshotter):
            if task is not None:
                await asyncio.wait([task])
        if self.failure is None:
            await self._directory.disk.in_thread(self._log.close)
            self._write_recovery_point()


def _log_config(config: Config) -> Config:
    overrides = {
        "segment.bytes": str(config[METADATA_LOG_SEGMENT_BYTES]),
        "segment.ms": str(max(config[METADATA_LOG_SEGMENT_MS], 1)),
    }
    if (internal := config[INTERNAL_METADATA_LOG_SEGMENT_BYTES]) is not None:
        overrides["internal.segment.bytes"] = str(internal)
    return Config.of(overrides)
