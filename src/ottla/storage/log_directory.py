"""One of the node's `log.dirs`: its owner, how it was closed, and the checkpoints of its partitions.

Rule 1: one process at a time; `.lock` is held while the directory is in use.
Rule 2: `.kafka_cleanshutdown` is removed first at the start and written last, after everything was synced. If it
        exists, no log needs recovery. A copy of it marks a shutdown by Ottla: Kafka's retention and cleaner invalidate
        the segment summaries that Ottla wrote.
Rule 3: the first I/O error takes the directory offline permanently, without retries. After a failed sync the kernel may
        have dropped the pages, and a later append would leave a hole (KAFKA-10778).
Rule 4: a checkpoint may be written in a thread. It never replaces one that was begun later, which may state a lower
        recovery point.
"""

import errno
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from ottla.core.log import files
from ottla.core.log.checkpoints import (
    BadCheckpoint,
    MetaProperties,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
)
from ottla.core.log.files import parse_directory
from ottla.io.ports import Disk
from ottla.observe.trace import warn
from ottla.storage.atomic import is_out_of_files, parent, read_whole, write_whole
from ottla.storage.evidence import LastClose
from ottla.wire.errors import Error, Refused

Partition = tuple[str, int]


class DirectoryInUse(Exception):
    """Another node has the directory open."""


class WrongDirectory(Exception):
    """The directory belongs to another node or cluster, or lacks the file that names its owner."""


class OutOfFiles(Refused):
    """Too few file descriptors. Nothing was changed, so the operation can be retried."""


class LogDirectory:
    """An open log directory."""

    def __init__(self, disk: Disk, path: str, on_offline: Callable[["LogDirectory"], None] | None = None) -> None:
        self.disk = disk
        self.path = path
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.is_new = False
        """Whether this process created `meta.properties` here."""
        self.was_left_by_ottla = False
        self.failure: OSError | None = None
        self._on_offline = on_offline
        self._writing = disk.mutex()
        self._numbers = count(1)
        self._changed: dict[str, int] = {}
        """Per checkpoint: the number of its last change, and the number of the last change written."""
        self._written: dict[str, int] = {}
        disk.make_directory(path)
        try:
            self._lock = disk.lock(f"{path}/{files.LOCK}")
        except BlockingIOError as error:
            raise DirectoryInUse(f"{path} is in use by another node: stop it, or choose another log.dirs") from error
        self.recovery_points = self._read_offsets(files.RECOVERY_POINTS)
        self.log_starts = self._read_offsets(files.LOG_STARTS)
        self.high_watermarks = self._read_offsets(files.HIGH_WATERMARKS)
        self.cleaner_offsets = self._read_offsets(files.CLEANER_OFFSETS)
        self._take_shutdown_marker()
        if not self.was_clean:
            # The directory may be new, or left by a process that died between creating a name and syncing it.
            disk.sync_directory(parent(path))
            disk.sync_directory(path)

    # Ownership.

    def claim(self, cluster_id: str, node_id: int, new_id: Callable[[], bytes]) -> None:
        """Check that the directory belongs to this node, or claim it if it is empty."""
        meta = read_meta(self.disk, self.path)
        if meta is not None:
            if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
                raise WrongDirectory(
                    f"{self.path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, not to node {node_id} "
                    f"of cluster {cluster_id}: correct node.id or log.dirs"
                )
            self.meta = meta
            if meta.directory_id is not None:
                return
        elif (used := self.sign_of_use(metadata=True)) is not None:
            raise WrongDirectory(
                f"{self.path} does not say whose it is: {files.META_PROPERTIES} is missing, though there is {used}. "
                f"Restore the file; an empty directory is taken as it is"
            )
        self.is_new = meta is None
        self.meta = MetaProperties(cluster_id, node_id, new_id())
        write_whole(self.disk, f"{self.path}/{files.META_PROPERTIES}", self.meta.encode())

    def sign_of_use(self, *, metadata: bool) -> str | None:
        """A file that shows that a node has used the directory, or None. `metadata` says whether the metadata log
        counts."""
        if self.was_clean:
            return files.CLEAN_SHUTDOWN
        for name in self.disk.list(self.path):
            if name in (files.RECOVERY_POINTS, files.HIGH_WATERMARKS, files.LOG_STARTS, files.CLEANER_OFFSETS):
                return name
            parsed = parse_directory(name)
            if parsed is not None and (metadata or parsed.topic != files.METADATA_TOPIC):
                return name
        return None

    def _take_shutdown_marker(self) -> None:
        marker, own = f"{self.path}/{files.CLEAN_SHUTDOWN}", f"{self.path}/{files.OWN_CLEAN_SHUTDOWN}"
        contents, own_contents = read_whole(self.disk, marker), read_whole(self.disk, own)
        self.was_clean = contents is not None
        self.was_left_by_ottla = self.was_clean and contents == own_contents
        if contents is not None:
            self.disk.remove(marker)
        if own_contents is not None:
            self.disk.remove(own)
        if self.was_clean:
            self.disk.sync_directory(self.path)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Release the directory. `clean` if every log in it was closed and synced."""
        try:
            if clean and self.failure is None:
                with self.guard("close"):
                    contents = encode_clean_shutdown(broker_epoch)
                    write_whole(self.disk, f"{self.path}/{files.OWN_CLEAN_SHUTDOWN}", contents)
                    write_whole(self.disk, f"{self.path}/{files.CLEAN_SHUTDOWN}", contents)
        finally:
            self._lock.release()

    # Failures.

    def fail(self, error: OSError, doing: str, *, half_done: bool = False) -> Refused:
        """Take the directory offline; returns the refusal to raise instead of the error.

        If the process is out of file descriptors the disk is healthy and nothing was changed. Then the directory stays
        online, unless earlier steps have left a log `half_done`.
        """
        if is_out_of_files(error) and not half_done:
            warn("files.too_many_open", path=self.path, doing=doing)
            return OutOfFiles(Error.KAFKA_STORAGE_ERROR, f"{doing}: too many open files; raise the limit (ulimit -n)")
        if self.failure is None:
            self.failure = error
            warn("directory.offline", path=self.path, doing=doing, error=error)
            if self._on_offline is not None:
                self._on_offline(self)
        return self._offline()

    def make(self, path: str) -> bool:
        """Create the directory of a log; returns whether it is new."""
        if self.disk.exists(path):
            return False
        if not self.disk.exists(self.path):
            # The log directory was removed or unmounted. A new one in its place would be empty.
            raise FileNotFoundError(errno.ENOENT, "the log directory is gone", self.path)
        self.disk.make_directory(path)
        return True

    def check_online(self) -> None:
        if self.failure is not None:
            raise self._offline()

    def _offline(self) -> Refused:
        return Refused(
            Error.KAFKA_STORAGE_ERROR,
            f"log directory {self.path} is offline after an I/O error ({self.failure}): repair the disk and restart",
        )

    @contextmanager
    def guard(self, doing: str, *, half_done: bool = False) -> Iterator[None]:
        """Context for I/O: an error takes the directory offline, and an offline directory raises its refusal."""
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing, half_done=half_done) from error

    # Checkpoints.

    def left(self, partition: Partition) -> LastClose:
        """How the log of a partition was closed last."""
        return LastClose(
            clean=self.was_clean,
            by_ottla=self.was_left_by_ottla,
            recovery_point=self.recovery_points.get(partition, 0),
            log_start_offset=self.log_starts.get(partition, 0),
            high_watermark=self.high_watermarks.get(partition, 0),
            cleaned_up_to=self.cleaner_offsets.get(partition, 0),
        )

    def checkpoint(
        self,
        *,
        recovery_points: dict[Partition, int],
        high_watermarks: dict[Partition, int],
        log_starts: dict[Partition, int],
    ) -> None:
        """Write the offsets of the open logs; those of other logs stay unchanged."""
        with self.guard("checkpoint"):
            self.begin_checkpoint(recovery_points, high_watermarks, log_starts)()

    def begin_checkpoint(
        self,
        recovery_points: Mapping[Partition, int],
        high_watermarks: Mapping[Partition, int],
        log_starts: Mapping[Partition, int],
    ) -> Callable[[], None]:
        """Record offsets; the returned function writes the changed checkpoints and may run in any thread. A log start
        that is about to be written is not lowered by a caller that does not know of it."""
        number = next(self._numbers)
        pending = []
        log_starts = {one: max(offset, self.log_starts.get(one, 0)) for one, offset in log_starts.items()}
        for name, known, news in (
            (files.RECOVERY_POINTS, self.recovery_points, recovery_points),
            (files.HIGH_WATERMARKS, self.high_watermarks, high_watermarks),
            (files.LOG_STARTS, self.log_starts, log_starts),
        ):
            if any(known.get(partition) != offset for partition, offset in news.items()):
                known.update(news)
                self._changed[name] = number
            # This includes changes recorded by an earlier call whose function has not run yet.
            if self._is_unwritten(name):
                pending.append((name, known.copy()))

        def write() -> None:
            for name, offsets in pending:
                self._write_as(number, name, offsets)

        return write

    def keep_log_start(self, partition: Partition, offset: int) -> None:
        self._keep(files.LOG_STARTS, self.log_starts, partition, offset)

    def keep_recovery_point(self, partition: Partition, offset: int) -> None:
        self._keep(files.RECOVERY_POINTS, self.recovery_points, partition, offset)

    def keep_cleaned_up_to(self, partition: Partition, offset: int) -> None:
        self._keep(files.CLEANER_OFFSETS, self.cleaner_offsets, partition, offset)

    def _keep(self, name: str, offsets: dict[Partition, int], partition: Partition, offset: int) -> None:
        """Set one offset in a checkpoint, durably."""
        if offsets.get(partition) != offset:
            offsets[partition] = offset
            self._changed[name] = next(self._numbers)
        if self._is_unwritten(name):
            self.write_offsets(name, offsets)

    def _is_unwritten(self, name: str) -> bool:
        """Whether recorded changes are not in the file: a thread may be about to write them, or has failed."""
        return self._changed.get(name, 0) > self._written.get(name, 0)

    def lower_checkpoints(self, partition: Partition, offset: int) -> None:
        """Before a log is truncated at `offset`: lower its recovery point, cleaner checkpoint and high watermark."""
        for name, offsets in (
            (files.RECOVERY_POINTS, self.recovery_points),
            (files.CLEANER_OFFSETS, self.cleaner_offsets),
            (files.HIGH_WATERMARKS, self.high_watermarks),
        ):
            if offsets.get(partition, 0) > offset:
                self._keep(name, offsets, partition, offset)
            elif self._is_unwritten(name):
                self.write_offsets(name, offsets)  # The file may hold higher offsets than the ones in memory.

    def forget(self, partitions: Collection[Partition]) -> None:
        """Drop the checkpoints of deleted partitions, so that new ones of the same name start without."""
        for name, offsets in self._checkpoints():
            known = [partition for partition in partitions if partition in offsets]
            for partition in known:
                del offsets[partition]
            if known:
                self._changed[name] = next(self._numbers)
                self.write_offsets(name, offsets)

    def begin_forget(self, partitions: Collection[Partition]) -> None:
        """Like `forget`, for one slice of many partitions. The function from `begin_write` writes all slices."""
        number = next(self._numbers)
        for name, offsets in self._checkpoints():
            before = len(offsets)
            for partition in partitions:
                offsets.pop(partition, None)
            if len(offsets) < before:
                self._changed[name] = number

    def begin_write(self) -> Callable[[], None]:
        """The returned function writes every changed checkpoint and may run in any thread."""
        number = next(self._numbers)
        pending = [
            (name, offsets.copy())
            for name, offsets in self._checkpoints()
            if self._changed.get(name, 0) > self._written.get(name, 0)
        ]

        def write() -> None:
            for name, offsets in pending:
                self._write_as(number, name, offsets)

        return write

    def _checkpoints(self) -> tuple[tuple[str, dict[Partition, int]], ...]:
        return (
            (files.RECOVERY_POINTS, self.recovery_points),
            (files.LOG_STARTS, self.log_starts),
            (files.HIGH_WATERMARKS, self.high_watermarks),
            (files.CLEANER_OFFSETS, self.cleaner_offsets),
        )

    def write_offsets(self, name: str, offsets: Mapping[Partition, int]) -> None:
        self._write_as(next(self._numbers), name, offsets)

    def _write_as(self, number: int, name: str, offsets: Mapping[Partition, int]) -> None:
        with self._writing:
            if number > self._written.get(name, 0):
                write_whole(self.disk, f"{self.path}/{name}", encode_offsets(offsets))
                self._written[name] = number

    def _read_offsets(self, name: str) -> dict[Partition, int]:
        """An unreadable checkpoint counts as empty: recovery then reads more, and nothing is lost."""
        try:
            return decode_offsets(read_whole(self.disk, f"{self.path}/{name}") or encode_offsets({}))
        except BadCheckpoint as error:
            warn("checkpoint.unreadable", path=f"{self.path}/{name}", error=error)
            return {}


def read_meta(disk: Disk, directory: str) -> MetaProperties | None:
    """The owner that `meta.properties` names; None if the file is missing."""
    path = f"{directory}/{files.META_PROPERTIES}"
    data = read_whole(disk, path)
    try:
        return None if data is None else MetaProperties.decode(data)
    except BadCheckpoint as error:
        raise WrongDirectory(
            f"{path} does not say whose directory this is ({error}): restore it, or write cluster.id and node.id there"
        ) from error
