"""The files of one partition: segments, producer snapshots, leader epochs and the summary of a clean close.

Rule 1: a removal is made durable at once, before anything new is written. A file that reappeared after a crash would
        contradict its replacement. Only files removed by retention may reappear: they lie before the log start.
Rule 2: a creation is made durable by the next sync; nothing was acknowledged before that. But the name of the first
        segment is durable before a second one exists: otherwise a lost front would look like retention.
Rule 3: files removed by retention and compaction keep their bytes for `file.delete.delay.ms`, for readers that still
        use them.
Rule 4: a log of any length keeps a bounded number of synced segments open. A released segment is not closed here: a
        reader holds a reference to its file, and dropping the last reference closes it.
Rule 5: the snapshot at the start of a segment gets its name when everything of the previous segment is durable, indexes
        included. If it exists, recovery need not read the previous segment.
Rule 6: segments that recovery cannot use are moved to a separate directory that Kafka ignores, not removed.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import NamedTuple

from ottla.core.log import files
from ottla.core.log.checkpoints import EpochStart, encode_epochs, encode_partition_metadata
from ottla.core.log.files import file_name, parse_file
from ottla.core.log.producers import Producers
from ottla.core.log.segment import Segment
from ottla.core.log.snapshots import BadProducerSnapshot, decode_snapshot, encode_snapshot
from ottla.io.ports import Disk, File
from ottla.observe.trace import warn
from ottla.storage.atomic import TEMPORARY, is_out_of_files, parent, read_whole, write_unsynced, write_whole
from ottla.storage.segment_files import SegmentFiles
from ottla.storage.syncing import Changes, Sync

_SETTLED_OPEN_MAX = 16
_COPIED_AT_ONCE = 1 << 20


class _Retired(NamedTuple):
    """Paths that were renamed to `.deleted`, and when to remove the files."""

    due_ms: int
    paths: list[str]


class PartitionFiles:
    """The files of one partition's directory."""

    def __init__(self, disk: Disk, path: str, listing: Iterable[str], *, settled: bool = False) -> None:
        """`settled` if the previous process has left everything durable."""
        self.disk = disk
        self.path = path
        self._segments: dict[int, SegmentFiles] = {}
        self._sweep_at = 2 * _SETTLED_OPEN_MAX
        """The number of open segments at which the next search for releasable ones starts."""
        self._retired: list[_Retired] = []
        self._aside: str | None = None
        names = list(listing)
        # A process that died may have created files whose names or contents are not durable. Recovery rewrites every
        # file that may be torn, except the one with the topic id.
        self._unsynced_files: dict[str, Changes] = {}
        if files.PARTITION_METADATA in names and not settled:
            self._unsynced_files[f"{path}/{files.PARTITION_METADATA}"] = Changes(unsynced=True)
        self._names = Changes(unsynced=not settled)
        self._own_name = Changes(unsynced=not settled)
        self.front_is_durable = settled
        """Whether the first segment's name is durable (Rule 2)."""
        self._due_snapshots: dict[int, bytes] = {}
        """Snapshots that the next sync writes, by offset (Rule 5)."""
        self._epochs: bytes | None = None
        """The leader epochs that the next sync writes."""
        self._writing_epochs = disk.mutex()
        self.syncing = disk.mutex()
        """Held by a running sync: of two concurrent fsyncs of a file only one would report an error."""
        self.closed = False
        """The files are out of use; the directory may have another name by now."""
        self.has_summary = files.SEGMENT_SUMMARY in names
        parsed = [file for name in names if (file := parse_file(name)) is not None]
        self.snapshots = sorted(file.base_offset for file in parsed if file[1:] == (files.SNAPSHOT, ""))
        self.aborting = {file.base_offset for file in parsed if file[1:] == (files.TXN_INDEX, "")}
        """Base offsets of the segments that may have a transaction index. Some may be gone."""

    # Segments.

    def of(self, segment: Segment) -> SegmentFiles:
        opened = self._segments.get(segment.base_offset)
        return self._take(segment) if opened is None else opened

    def create(self, segment: Segment, *, is_first: bool = False) -> SegmentFiles:
        if not is_first and not self.front_is_durable:
            self._sync_front()
        created = self._take(segment)
        try:
            created.create()
        except OSError:
            del self._segments[segment.base_offset]
            raise
        self._names.note()
        return created

    def _sync_front(self) -> None:
        """Sync the first segment's name (Rule 2). Blocks on the disk if no flush has done it before."""
        self.sync_names()
        self.disk.sync_directory(parent(self.path))
        self._own_name.settle_all()
        self.front_is_durable = True

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
        """Remove the snapshots inside a segment: each states that the indexes were synced up to its offset, which is
        about to become untrue."""
        later = (offset for offset in self.snapshots if offset > segment.base_offset)
        inside = [offset for offset in later if not self.disk.exists(f"{self.path}/{file_name(offset, files.LOG)}")]
        self.drop_snapshots(lambda offset: offset in inside)

    def release(self) -> None:
        """Close the files until they are needed again; log files only if they have nothing to sync."""
        for opened in self._segments.values():
            opened.release()

    def _let_go(self) -> None:
        """Release the synced segments that were opened longest ago (Rule 4)."""
        settled = [base_offset for base_offset, opened in self._segments.items() if opened.is_settled]
        for base_offset in settled[:-_SETTLED_OPEN_MAX]:
            del self._segments[base_offset]
        self._sweep_at = len(self._segments) + _SETTLED_OPEN_MAX

    def remove(self, segments: Iterable[Segment]) -> None:
        """Remove segments and their snapshots permanently."""
        for segment in segments:
            self._names.note()
            self.of(segment).remove()
            del self._segments[segment.base_offset]
            self._forget_snapshot(segment.base_offset)
        self.sync_names()

    def rename_deleted(self, segments: Iterable[Segment]) -> list[str]:
        """Rename the files of segments to `.deleted`; returns their old paths."""
        paths = [self.of(segment).path(kind) for segment in segments for kind in files.SEGMENT_KINDS]
        present = [path for path in paths if self.disk.exists(path)]
        for path in present:
            self.disk.rename(path, path + files.DELETED)
        self._names.note()
        return present

    def undo_deleted(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.disk.rename(path + files.DELETED, path)

    def retire(self, segments: Iterable[Segment], paths: Iterable[str], due_ms: int) -> None:
        """Take renamed segments out of use; their files are removed at `due_ms`."""
        for segment in segments:
            self.of(segment).retire()
            del self._segments[segment.base_offset]
        self._retired.append(_Retired(due_ms, [path + files.DELETED for path in paths]))

    def void_swaps(self) -> None:
        """Remove cleaned segments that wait to be swapped in: after a truncation they would bring back truncated
        records."""
        waiting = [name for name in self.disk.list(self.path) if name.endswith(files.SWAP)]
        for name in waiting:
            self._remove(f"{self.path}/{name}")
        if waiting:
            self.sync_names()

    def purge(self, now_ms: int) -> None:
        """Remove the retired files that are due."""
        due = [retired for retired in self._retired if retired.due_ms <= now_ms]
        self._retired = [retired for retired in self._retired if retired.due_ms > now_ms]
        for path in (path for retired in due for path in retired.paths):
            self._remove(path)

    # Snapshots, epochs and other files beside the segments.

    def write_snapshot(self, producers: Producers) -> None:
        """Write the producer state at its end offset now; the next sync makes it durable."""
        offset = producers.end_offset
        path = self._snapshot_path(offset)
        write_unsynced(self.disk, path, _encoded(producers))
        self._due_snapshots.pop(offset, None)
        self._have_snapshot(offset)
        self._note_file(path)

    def keep_snapshot(self, producers: Producers) -> None:
        """Write the producer state at the start of a segment with the next sync (Rule 5)."""
        self._due_snapshots[producers.end_offset] = _encoded(producers)

    def _have_snapshot(self, offset: int) -> None:
        if offset not in self.snapshots:
            insort(self.snapshots, offset)

    def load_snapshot(self, name: str, at_most: int, start_offset: int) -> Producers:
        """The newest producer state at or before `at_most`; an empty one at `start_offset` if there is none."""
        for offset in sorted({*self.snapshots, *self._due_snapshots}, reverse=True):
            if start_offset <= offset <= at_most and (found := self._read_snapshot(name, offset)) is not None:
                return found
        return Producers(name, start_offset)

    def snapshot_at(self, name: str, offset: int) -> Producers | None:
        """The producer state at exactly this offset, read from disk."""
        return self._read_snapshot(name, offset) if offset in self.snapshots else None

    def _read_snapshot(self, name: str, offset: int) -> Producers | None:
        path = self._snapshot_path(offset)
        data = self._due_snapshots.get(offset)
        try:
            return Producers.restore(name, offset, decode_snapshot(data or read_whole(self.disk, path) or b""))
        except BadProducerSnapshot as error:
            warn("snapshot.unreadable", path=path, error=error)
            return None

    def drop_snapshots(self, goes: Callable[[int], bool], *, durably: bool = True) -> None:
        dropped = [offset for offset in {*self.snapshots, *self._due_snapshots} if goes(offset)]
        for offset in dropped:
            self._forget_snapshot(offset)
        if dropped and durably:
            self.sync_names()

    def keep_epochs(self, epochs: Iterable[EpochStart]) -> None:
        """Write the leader epochs with the next sync; until then the batches carry them."""
        self._epochs = encode_epochs(epochs)

    def write_epochs(self, epochs: Iterable[EpochStart]) -> None:
        self.keep_epochs(epochs)
        self._settle_epochs(self._write_epochs())

    def _write_epochs(self) -> bytes | None:
        """Write the newest leader epochs if they are unwritten. Runs in any thread. All epochs from before the sync are
        then on disk; one that begins beyond the log end after a crash is dropped by recovery."""
        with self._writing_epochs:
            newest = self._epochs
            if newest is not None and not self.closed:
                write_whole(self.disk, f"{self.path}/{files.LEADER_EPOCHS}", newest)
            return newest

    def _settle_epochs(self, written: bytes | None) -> None:
        if self._epochs is written:
            self._epochs = None

    def write_topic_id(self, topic_id: bytes) -> None:
        """Bind the directory to a topic; the next sync makes it durable."""
        path = f"{self.path}/{files.PARTITION_METADATA}"
        write_unsynced(self.disk, path, encode_partition_metadata(topic_id))
        self._note_file(path)

    def open_summary(self) -> File:
        return self.disk.open(f"{self.path}/{files.SEGMENT_SUMMARY}", writable=False)

    def write_summary(self, data: bytes) -> None:
        write_whole(self.disk, f"{self.path}/{files.SEGMENT_SUMMARY}", data)
        self.has_summary = True

    def drop_summary(self) -> None:
        """Remove the summary, because it does not match the segments or soon will not."""
        if self.has_summary:
            self.has_summary = False
            self._remove(f"{self.path}/{files.SEGMENT_SUMMARY}")
            self.sync_names()

    def _forget_snapshot(self, offset: int) -> None:
        self._due_snapshots.pop(offset, None)
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self._remove(self._snapshot_path(offset))
            self._names.note()

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.path}/{file_name(offset, files.SNAPSHOT)}"

    # Setting aside.

    def set_aside(self, segments: Iterable[Segment], at_ms: int) -> str:
        """Move segments and their snapshots to a directory where an operator finds them."""
        aside = self._make_aside(at_ms)
        for segment in segments:
            opened = self.of(segment)
            opened.close()
            del self._segments[segment.base_offset]
            paths = [*(opened.path(kind) for kind in files.SEGMENT_KINDS), self._snapshot_path(segment.base_offset)]
            for path in paths:
                if self.disk.exists(path):
                    self.disk.rename(path, f"{aside}/{path.rpartition('/')[2]}")
            self._due_snapshots.pop(segment.base_offset, None)
            if segment.base_offset in self.snapshots:
                self.snapshots.remove(segment.base_offset)
        self.disk.sync_directory(aside)
        self.sync_names()
        return aside

    def set_tail_aside(self, segment: Segment, position: int, at_ms: int) -> str:
        """Copy the log from `position` on to that directory, before it is truncated there."""
        aside = self._make_aside(at_ms)
        source = self.of(segment).log
        kept = self.disk.open(f"{aside}/{file_name(segment.base_offset, files.LOG)}.from-{position}", create=True)
        try:
            for start in range(position, segment.size, _COPIED_AT_ONCE):
                kept.write(start - position, [source.read(start, min(_COPIED_AT_ONCE, segment.size - start))])
            kept.sync()
        finally:
            kept.close()
        self.disk.sync_directory(aside)
        return aside

    def _make_aside(self, at_ms: int) -> str:
        """Create a new durable directory for the segments this recovery sets aside."""
        if self._aside is None:
            at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
            taken = set(self.disk.list(self.path))
            names = (f"{files.SET_ASIDE}-{at}-{number}" for number in count(1))
            self._aside = f"{self.path}/{next(name for name in names if name not in taken)}"
            self.disk.make_directory(self._aside)
            self.disk.sync_directory(self.path)
        return self._aside

    # Durability.

    def _note_file(self, path: str) -> None:
        self._unsynced_files.setdefault(path, Changes()).note()
        self._names.note()

    @property
    def is_unsynced(self) -> bool:
        """Whether anything beside the segments needs a sync."""
        return bool(self._unsynced_files or self._due_snapshots or self._epochs is not None or self._names.are_unsynced)

    def begin_sync(self) -> Sync:
        """A sync of everything beside the segments. It runs after the segments were synced."""
        pending = [(path, changes, changes.made) for path, changes in self._unsynced_files.items()]
        due, own_name = list(self._due_snapshots.items()), self._own_name.made
        has_epochs, epochs_written = self._epochs is not None, list[bytes | None]()
        names = self._names.made if self._names.are_unsynced or pending else None

        def run() -> None:
            for path, _, _ in pending:
                self._sync_file(path)
            if has_epochs:
                epochs_written.append(self._write_epochs())
            if names is not None:
                self._sync_directory(self.path)
            if self._own_name.are_unsynced:
                self._sync_directory(parent(self.path))
            for offset, data in due:
                self._write_due(offset, data)

        def settle() -> None:
            for path, changes, made in pending:
                changes.settle(made)
                if not changes.are_unsynced:
                    self._unsynced_files.pop(path, None)
            for written in epochs_written:
                self._settle_epochs(written)
            if names is not None:
                self._names.settle(names)
            self._own_name.settle(own_name)
            self.front_is_durable = True
            for offset, data in due:
                self._name_due(offset, data)

        return Sync(run, settle)

    def _sync_file(self, path: str) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:
            return  # Dropped meanwhile.
        try:
            file.sync()
        finally:
            file.close()

    def _sync_directory(self, path: str) -> None:
        try:
            if not self.closed:
                self.disk.sync_directory(path)
        except FileNotFoundError:
            if not self.closed:
                raise

    def _write_due(self, offset: int, data: bytes) -> None:
        """Write under a temporary name, because the log may be truncated before the snapshot may get its own."""
        try:
            if not self.closed:
                write_unsynced(self.disk, self._snapshot_path(offset) + TEMPORARY, data, then_sync=True)
        except FileNotFoundError:
            if not self.closed:
                raise

    def _name_due(self, offset: int, data: bytes) -> None:
        path = self._snapshot_path(offset)
        if self._due_snapshots.get(offset) is data:
            self.disk.rename(path + TEMPORARY, path)
            del self._due_snapshots[offset]
            self._have_snapshot(offset)
            self._names.note()
        else:
            self._remove(path + TEMPORARY)

    def sync_names(self) -> None:
        """Sync the directory, in this thread."""
        self.disk.sync_directory(self.path)
        self._names.settle_all()

    def sync_names_if_possible(self) -> None:
        """Like `sync_names`; without a free descriptor it is left to the next sync."""
        try:
            self.sync_names()
        except OSError as error:
            if not is_out_of_files(error):
                raise

    def close(self) -> None:
        with self._writing_epochs:
            self.closed = True  # From here on the path may belong to another log.
        for opened in self._segments.values():
            opened.close()

    def _remove(self, path: str) -> None:
        if self.disk.exists(path):
            self.disk.remove(path)


def _encoded(producers: Producers) -> bytes:
    return encode_snapshot(list(producers.by_id.values()))
