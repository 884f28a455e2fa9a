"""The files of one partition: its segments, producer snapshots, leader epochs and the summary of a clean close.

Rule 1: removing is made durable at once, before anything new is written: a file that came back after a crash would
        contradict what took its place.
Rule 2: making is made durable by the next sync: until then nobody was promised anything.
Rule 3: what retention and compaction take out of use keeps its bytes for `file.delete.delay.ms`, for readers that are
        still at it.
Rule 4: a log of any length holds a bounded number of synced segments open. One that is let go is not closed here: who
        still reads from it has its file, and the last one to drop that closes it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from ottla.core.log import files
from ottla.core.log.checkpoints import EpochStart, encode_epochs, encode_partition_metadata
from ottla.core.log.files import file_name, parse_file
from ottla.core.log.producers import Producers
from ottla.core.log.segment import Segment
from ottla.core.log.snapshots import BadSnapshot, decode_snapshot, encode_snapshot
from ottla.io.ports import Disk, File
from ottla.observe.trace import warn
from ottla.storage.atomic import parent, read_whole, write_unsynced, write_whole
from ottla.storage.segment_files import SegmentFiles

_SETTLED_OPEN_MAX = 16


class _Retired(NamedTuple):
    due_ms: int
    files: SegmentFiles
    paths: list[str]


class PartitionFiles:
    def __init__(self, disk: Disk, path: str, listing: Iterable[str]) -> None:
        self.disk = disk
        self.path = path
        self._segments: dict[int, SegmentFiles] = {}
        self._sweep_at = 2 * _SETTLED_OPEN_MAX
        """How many segments may be open before those that can be let go are looked for."""
        self._retired: list[_Retired] = []
        names = list(listing)
        # Also what a process that died has made may have no durable name yet, and no durable contents. Recovery makes
        # anew whatever may be torn, except the one file that says whose log this is.
        self._unsynced_files = [f"{path}/{name}" for name in names if name == files.PARTITION_METADATA]
        self._unsynced_names = bool(names)
        self._unsynced_parent = False
        self._unwritten_epochs: list[EpochStart] | None = None
        self.closed = False
        """Nobody uses the files from here any more; the directory may have another name by now."""
        self.has_summary = files.SEGMENT_SUMMARY in names
        parsed = [file for name in names if (file := parse_file(name)) is not None]
        self.snapshots = sorted(file.base_offset for file in parsed if file[1:] == (files.SNAPSHOT, ""))
        self.aborting = {file.base_offset for file in parsed if file[1:] == (files.TXN_INDEX, "")}
        """The base offsets of the segments that transactions may have been aborted in. Some may be gone since."""

    # Segments.

    def of(self, segment: Segment) -> SegmentFiles:
        opened = self._segments.get(segment.base_offset)
        return self._take(segment) if opened is None else opened

    def create(self, segment: Segment) -> SegmentFiles:
        if self._unsynced_names:
            # A later segment whose name survives a crash must not stand behind one whose name does not.
            self.begin_sync()()
        created = self._take(segment)
        created.create()
        self._unsynced_names = True
        return created

    def _take(self, segment: Segment) -> SegmentFiles:
        if len(self._segments) >= self._sweep_at:
            self._let_go()
        taken = self._segments[segment.base_offset] = SegmentFiles(
            self.disk,
            self.path,
            segment,
            before_rewriting=partial(self._forget_clean_close, segment),
            before_aborted=partial(self.aborting.add, segment.base_offset),
        )
        return taken

    def _forget_clean_close(self, segment: Segment) -> None:
        """A snapshot within a segment says that its indexes were synced up to there; soon they are not."""
        later = (offset for offset in self.snapshots if offset > segment.base_offset)
        inside = [offset for offset in later if not self.disk.exists(f"{self.path}/{file_name(offset, files.LOG)}")]
        self.drop_snapshots(lambda offset: offset in inside)

    def release(self, *, logs: bool) -> None:
        """Close the files until they are needed again, those of the logs only if they have nothing to sync."""
        for opened in self._segments.values():
            opened.release(log=logs)

    def _let_go(self) -> None:
        """Rule 4: the settled segments that were opened longest ago."""
        settled = [base_offset for base_offset, opened in self._segments.items() if opened.settled]
        for base_offset in settled[:-_SETTLED_OPEN_MAX]:
            del self._segments[base_offset]
        self._sweep_at = len(self._segments) + _SETTLED_OPEN_MAX

    def remove(self, segments: Iterable[Segment]) -> None:
        """Remove segments and their snapshots for good."""
        for segment in segments:
            self.of(segment).remove()
            del self._segments[segment.base_offset]
            self._forget_snapshot(segment.base_offset)
        self.sync_names()

    def retire(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Take segments out of use; their bytes go when `due_ms` has come."""
        for segment in segments:
            opened = self.of(segment)
            opened.retire()
            paths = (opened.path(kind) for kind in files.SEGMENT_KINDS)
            present = [path for path in paths if self.disk.exists(path)]
            for path in present:
                self.disk.rename(path, path + files.DELETED)
            del self._segments[segment.base_offset]
            self._retired.append(_Retired(due_ms, opened, [path + files.DELETED for path in present]))
        self.sync_names()

    def void_swaps(self) -> None:
        """Remove cleaned segments that wait to be swapped in: after a truncation they would bring back what it took."""
        waiting = [name for name in self.disk.list(self.path) if name.endswith(files.SWAP)]
        for name in waiting:
            self._remove(f"{self.path}/{name}")
        if waiting:
            self.sync_names()

    def purge(self, now_ms: int) -> None:
        """Remove what was retired long enough ago."""
        due = [retired for retired in self._retired if retired.due_ms <= now_ms]
        self._retired = [retired for retired in self._retired if retired.due_ms > now_ms]
        for retired in due:
            retired.files.close()
            for path in retired.paths:
                self._remove(path)

    # Snapshots, epochs and the rest beside the segments.

    def write_snapshot(self, producers: Producers) -> None:
        """Keep the producer state as of its end offset; durable with the next sync."""
        path = self._snapshot_path(producers.end_offset)
        write_unsynced(self.disk, path, encode_snapshot(list(producers.by_id.values())))
        if producers.end_offset not in self.snapshots:
            self.snapshots.append(producers.end_offset)
            self.snapshots.sort()
        self._unsynced_files.append(path)
        self._unsynced_names = True

    def load_snapshot(self, name: str, at_most: int, start_offset: int) -> Producers:
        """The newest state taken at or before `at_most`; an empty one at `start_offset` where there is none."""
        for offset in reversed(self.snapshots):
            if not start_offset <= offset <= at_most:
                continue
            try:
                data = read_whole(self.disk, self._snapshot_path(offset)) or b""
                return Producers.restore(name, offset, decode_snapshot(data))
            except BadSnapshot as error:
                warn("snapshot.unreadable", path=self._snapshot_path(offset), error=error)
        return Producers(name, start_offset)

    def drop_snapshots(self, goes: Callable[[int], bool]) -> None:
        dropped = [offset for offset in self.snapshots if goes(offset)]
        for offset in dropped:
            self._forget_snapshot(offset)
        if dropped:
            self.sync_names()

    def keep_epochs(self, epochs: Iterable[EpochStart]) -> None:
        """Have the leader epochs written with the next sync: until then the batches tell them, where there are any."""
        self._unwritten_epochs = list(epochs)

    def write_epochs(self, epochs: Iterable[EpochStart]) -> None:
        self._unwritten_epochs = None
        write_whole(self.disk, f"{self.path}/{files.LEADER_EPOCHS}", encode_epochs(epochs))

    def write_topic_id(self, topic_id: bytes) -> None:
        """Tie the directory to a topic; durable with the next sync, like all that is new."""
        path = f"{self.path}/{files.PARTITION_METADATA}"
        write_unsynced(self.disk, path, encode_partition_metadata(topic_id))
        self._unsynced_files.append(path)
        self._unsynced_names = True

    def open_summary(self) -> File:
        return self.disk.open(f"{self.path}/{files.SEGMENT_SUMMARY}", writable=False)

    def write_summary(self, data: bytes) -> None:
        write_whole(self.disk, f"{self.path}/{files.SEGMENT_SUMMARY}", data)
        self.has_summary = True

    def drop_summary(self) -> None:
        """What it says of the log's segments is not true, or soon is not."""
        if self.has_summary:
            self.has_summary = False
            self._remove(f"{self.path}/{files.SEGMENT_SUMMARY}")
            self.sync_names()

    def made(self) -> None:
        """The directory itself is new."""
        self._unsynced_parent = True

    def _forget_snapshot(self, offset: int) -> None:
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self._remove(self._snapshot_path(offset))

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.path}/{file_name(offset, files.SNAPSHOT)}"

    # Durability.

    def begin_sync(self) -> Callable[[], None]:
        """What was written so far and is not durable yet; calling the result, in any thread, makes it so."""
        if self._unwritten_epochs is not None:
            self.write_epochs(self._unwritten_epochs)
        pending, self._unsynced_files = self._unsynced_files, []
        names, self._unsynced_names = self._unsynced_names, False
        is_new, self._unsynced_parent = self._unsynced_parent, False

        def sync() -> None:
            for path in pending:
                self._sync_file(path)
            try:
                if names and not self.closed:
                    self.disk.sync_directory(self.path)
                if is_new:
                    self.disk.sync_directory(parent(self.path))
            except FileNotFoundError:
                if not self.closed:
                    raise

        return sync

    def _sync_file(self, path: str) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:
            return  # Dropped meanwhile.
        try:
            file.sync()
        finally:
            file.close()

    def sync_names(self) -> None:
        self._unsynced_names = False
        self.disk.sync_directory(self.path)

    def close(self) -> None:
        self.closed = True
        for opened in self._segments.values():
            opened.close()
        for retired in self._retired:
            retired.files.close()

    def _remove(self, path: str) -> None:
        if self.disk.exists(path):
            self.disk.remove(path)
