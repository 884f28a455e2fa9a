"""One of the node's `log.dirs`: who owns it, how it was left, and the checkpoints of the partitions in it.

Rule 1: one process at a time: `.lock` is held as long as the directory is in use.
Rule 2: `.kafka_cleanshutdown` is removed before anything else is done and written after everything was synced, so that
        finding it means that no log needs recovery. A copy of it says that it was Ottla that left the directory, and
        not Kafka, whose retention and cleaner make what Ottla wrote down of the segments untrue.
Rule 3: the first I/O error takes the directory offline for good. Nothing is tried again: after a failed sync the
        kernel may have dropped what it could not write, and an append that follows would leave a hole (KAFKA-10778).
Rule 4: a checkpoint may be written in a thread. It never takes the place of one that was begun after it: that one may
        say that less is synced.
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
from ottla.storage.evidence import Left
from ottla.wire.errors import Error, Refused

Partition = tuple[str, int]


class DirectoryInUse(Exception):
    """Another node has this directory open."""


class WrongDirectory(Exception):
    """The directory belongs to another node or cluster, or does not say to whom."""


class OutOfFiles(Refused):
    """There were too few descriptors. Nothing was touched: it can be tried again when there are some."""


class LogDirectory:
    def __init__(self, disk: Disk, path: str, on_offline: Callable[["LogDirectory"], None] | None = None) -> None:
        self.disk = disk
        self.path = path
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.is_new = False
        """Taken into use by this process: it had no `meta.properties`."""
        self.was_left_by_ottla = False
        self.failure: OSError | None = None
        self._on_offline = on_offline
        self._writing = disk.mutex()
        self._numbers = count(1)
        self._changed: dict[str, int] = {}
        """Per checkpoint the number under which its contents were last changed, and under which they were written."""
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
            # New, or left by a process that died between making a name and syncing it.
            disk.sync_directory(parent(path))
            disk.sync_directory(path)

    # Whose it is.

    def claim(self, cluster_id: str, node_id: int, new_id: Callable[[], bytes]) -> None:
        """Make sure the directory belongs to this node; an empty one is taken."""
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
        """What shows that a node has run here; None where none has. `metadata` says whether its log counts."""
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
        told, told_by_ottla = read_whole(self.disk, marker), read_whole(self.disk, own)
        self.was_clean = told is not None
        self.was_left_by_ottla = self.was_clean and told == told_by_ottla
        if told is not None:
            self.disk.remove(marker)
        if told_by_ottla is not None:
            self.disk.remove(own)
        if self.was_clean:
            self.disk.sync_directory(self.path)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Leave the directory; `clean` when every log in it was closed and synced."""
        try:
            if clean and self.failure is None:
                with self.guard("close"):
                    told = encode_clean_shutdown(broker_epoch)
                    write_whole(self.disk, f"{self.path}/{files.OWN_CLEAN_SHUTDOWN}", told)
                    write_whole(self.disk, f"{self.path}/{files.CLEAN_SHUTDOWN}", told)
        finally:
            self._lock.release()

    # Failing.

    def fail(self, error: OSError, doing: str, *, half_done: bool = False) -> Refused:
        """Take the directory offline; the refusal to raise instead of the error.

        Too many open files is the process's trouble, not the disk's: nothing was touched, and the directory stays,
        unless what was done before it leaves a log `half_done`.
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
        """Make the directory of a log here, unless it is there; whether it is new."""
        if self.disk.exists(path):
            return False
        if not self.disk.exists(self.path):
            # Somebody removed it, or the disk is not mounted any more: a new one in its place would be another.
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
        """Around I/O: an error takes the directory offline, an offline directory refuses."""
        self.check_online()
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing, half_done=half_done) from error

    # Checkpoints.

    def left(self, partition: Partition) -> Left:
        """How the log of a partition was left here."""
        return Left(
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
        """Keep the offsets of the logs that are open; what is known of others stays."""
        with self.guard("checkpoint"):
            self.begin_checkpoint(recovery_points, high_watermarks, log_starts)()

    def begin_checkpoint(
        self,
        recovery_points: Mapping[Partition, int],
        high_watermarks: Mapping[Partition, int],
        log_starts: Mapping[Partition, int],
    ) -> Callable[[], None]:
        """Take note of offsets; calling the result, in any thread, writes down what has changed. A log start that is
        about to be written is not moved back by one who does not know of it yet."""
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
            # Also what an earlier call took note of, whose result may not have been called yet.
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
        """Have an offset in a checkpoint, durably."""
        if offsets.get(partition) != offset:
            offsets[partition] = offset
            self._changed[name] = next(self._numbers)
        if self._is_unwritten(name):
            self.write_offsets(name, offsets)

    def _is_unwritten(self, name: str) -> bool:
        """Whether the file lacks something that was taken note of: a thread may be about to write it, or has failed."""
        return self._changed.get(name, 0) > self._written.get(name, 0)

    def lower_checkpoints(self, partition: Partition, offset: int) -> None:
        """Before a log is cut at `offset`: nothing beyond it counts as synced, cleaned or committed any more."""
        for name, offsets in (
            (files.RECOVERY_POINTS, self.recovery_points),
            (files.CLEANER_OFFSETS, self.cleaner_offsets),
            (files.HIGH_WATERMARKS, self.high_watermarks),
        ):
            if offsets.get(partition, 0) > offset:
                self._keep(name, offsets, partition, offset)
            elif self._is_unwritten(name):
                self.write_offsets(name, offsets)  # The file may have more than what was taken note of.

    def forget(self, partitions: Collection[Partition]) -> None:
        """The partitions are gone from here; new ones of the same names start without checkpoints."""
        for name, offsets in self._checkpoints():
            known = [partition for partition in partitions if partition in offsets]
            for partition in known:
                del offsets[partition]
            if known:
                self._changed[name] = next(self._numbers)
                self.write_offsets(name, offsets)

    def begin_forget(self, partitions: Collection[Partition]) -> None:
        """As `forget`, for one part of very many partitions: what `begin_write` gives writes it down for all parts."""
        number = next(self._numbers)
        for name, offsets in self._checkpoints():
            before = len(offsets)
            for partition in partitions:
                offsets.pop(partition, None)
            if len(offsets) < before:
                self._changed[name] = number

    def begin_write(self) -> Callable[[], None]:
        """Calling the result, in any thread, writes down every checkpoint that has changed."""
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
        """A checkpoint that cannot be read counts as empty: more is recovered, nothing is lost."""
        try:
            return decode_offsets(read_whole(self.disk, f"{self.path}/{name}") or encode_offsets({}))
        except BadCheckpoint as error:
            warn("checkpoint.unreadable", path=f"{self.path}/{name}", error=error)
            return {}


def read_meta(disk: Disk, directory: str) -> MetaProperties | None:
    """Whose a directory is; None where it does not say."""
    path = f"{directory}/{files.META_PROPERTIES}"
    data = read_whole(disk, path)
    try:
        return None if data is None else MetaProperties.decode(data)
    except BadCheckpoint as error:
        raise WrongDirectory(
            f"{path} does not say whose directory this is ({error}): restore it, or write cluster.id and node.id there"
        ) from error
