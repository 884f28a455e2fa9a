"""All logs of a node, in all its `log.dirs`.

Rule 1: a failed directory takes its own logs offline and nothing else.
Rule 2: a log that cannot be opened is offline alone, with the reason. Its directory is then not marked as closed
        cleanly, so that the next start checks as strictly as this one. The same holds if a log could not be closed.
Rule 3: a new log goes to the directory with the fewest bytes, not the fewest logs, so that a new disk fills up.
"""

import asyncio
import uuid
from asyncio import AbstractEventLoop, gather, get_running_loop
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from ottla.config import FILE_DELETE_DELAY_MS, Config
from ottla.core.log import files
from ottla.core.log.files import directory_name, doomed_directory_name, parse_directory
from ottla.io.ports import Clock, Disk, Random
from ottla.observe.trace import detail, trace, warn
from ottla.storage.log_directory import LogDirectory, OutOfFiles, Partition, WrongDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.errors import Error, Refused

ConfigOf = Callable[[str], Config]

_CLOSING_AT_ONCE = 8


class NewLog(NamedTuple):
    """A log to create."""

    topic: str
    partition: int
    topic_id: bytes
    config: Config


def random_id() -> bytes:
    """A random 16-byte id for a topic, a directory or an incarnation of a node."""
    return uuid.uuid4().bytes


class LogStore:
    """The logs of a node."""

    def __init__(self, disk: Disk, clock: Clock, random: Random, new_id: Callable[[], bytes] = random_id) -> None:
        self.disk = disk
        self.clock = clock
        self._random = random
        self._new_id = new_id
        self.directories: list[LogDirectory] = []
        self._untaken: list[str] = []
        """`log.dirs` that could not be used at the start."""
        self.logs: dict[Partition, PartitionLog] = {}
        self.offline: dict[Partition, str] = {}
        """Partitions that exist here but cannot be used, with the reason."""
        self._not_clean: set[str] = set()
        """Paths of directories in which a log could not be opened or closed."""
        self.on_offline: Callable[[LogDirectory], None] = lambda _: None
        """Called on the loop when a directory has failed."""
        self._loop: AbstractEventLoop | None = None
        self._doomed: list[tuple[int, str]] = []
        """Directories of deleted partitions, and when to remove them."""
        self._unsynced: dict[PartitionLog, None] = {}
        """Logs with something to sync beside the active segment; the longest waiting first."""
        self._has_unsynced = asyncio.Event()
        self._renamed_in: dict[LogDirectory, None] = {}
        """Log directories with renames that are not synced yet."""

    # Opening and closing.

    async def open(self, paths: Iterable[str], cluster_id: str, node_id: int, config_of: ConfigOf) -> None:
        """Claim the directories and open every log in them; failures are traced and left out."""
        self.take(paths, cluster_id, node_id)
        await self.load(config_of)

    def take(self, paths: Iterable[str], cluster_id: str, node_id: int) -> None:
        """Claim the directories for this node; an unusable one is left out."""
        for path in paths:
            try:
                directory = LogDirectory(self.disk, path, self._directory_failed)
                directory.claim(cluster_id, node_id, self._new_id)
            except OSError as error:
                warn("directory.offline", path=path, doing="open", error=error)
                self._untaken.append(path)
                continue
            self.directories.append(directory)
        if not self.directories:
            raise Refused(Error.KAFKA_STORAGE_ERROR, "none of the log.dirs can be used; the log says why of each")

    async def load(self, config_of: ConfigOf, threads: int = 1) -> None:
        """Open every log in the directories, up to `threads` at a time in each."""
        self._loop = get_running_loop()
        await gather(*(self._open_logs(directory, config_of, threads) for directory in self.directories))

    async def _open_logs(self, directory: LogDirectory, config_of: ConfigOf, threads: int) -> None:
        try:
            listing = self.disk.list(directory.path)
        except OSError as error:
            directory.fail(error, "open")
            return
        names = iter(listing)

        async def open_some() -> None:
            for name in names:
                parsed = parse_directory(name)
                if parsed is None or parsed.topic == files.METADATA_TOPIC:
                    continue
                if parsed.fate == "delete":
                    await self._remove_doomed(f"{directory.path}/{name}")
                elif not parsed.fate:
                    await self._open_log(directory, (parsed.topic, parsed.partition), config_of(parsed.topic))

        await gather(*(open_some() for _ in range(threads)))
        # From here on, a log that is opened again was not left by a clean shutdown.
        clean, directory.was_clean = directory.was_clean, False
        logs = sum(log.directory is directory for log in self.logs.values())
        left = "new" if directory.is_new else "cleanly" if clean else "without a clean stop"
        trace("directory.opened", path=directory.path, logs=logs, left=left)

    async def _open_log(self, directory: LogDirectory, key: Partition, config: Config) -> None:
        make = partial(PartitionLog, directory, *key, config, self.clock, self._random, self.note_unsynced)
        try:
            opened = await self.disk.in_thread(make)
        except OutOfFiles:
            raise  # The log is intact: a restart with more file descriptors opens it.
        except Refused as refusal:
            warn("log.offline", topic=key[0], partition=key[1], reason=refusal.text)
            self.offline[key] = refusal.text
            self._not_clean.add(directory.path)
            return
        other = self.logs.setdefault(key, opened)
        if other is not opened:
            raise WrongDirectory(
                f"{opened.name} is in {other.directory.path} and in {directory.path}: move one of them away"
            )

    async def close(self, broker_epoch: int = -1) -> None:
        """Sync and close everything, so that the next open needs no recovery."""
        await gather(*(self._close_logs(directory) for directory in self.directories))
        self.checkpoint()
        for directory in self.directories:
            try:
                directory.close(clean=directory.path not in self._not_clean, broker_epoch=broker_epoch)
            except Refused as refusal:
                warn("directory.not_closed", path=directory.path, reason=refusal.text)

    async def _close_logs(self, directory: LogDirectory) -> None:
        """Close several logs at a time: their syncs share one journal commit of the file system."""
        left = iter([log for log in self.logs.values() if log.directory is directory])

        async def close_some() -> None:
            for log in left:
                try:
                    await self.disk.in_thread(log.close)
                except Refused as refusal:
                    warn("log.offline", topic=log.key[0], partition=log.key[1], reason=refusal.text)
                    self._not_clean.add(directory.path)

        await gather(*(close_some() for _ in range(_CLOSING_AT_ONCE)))

    def checkpoint(self) -> None:
        """Write the recovery point, high watermark and log start of every log, per directory."""
        for directory in self.directories:
            try:
                with directory.guard("checkpoint"):
                    self.begin_checkpoint(directory)()
            except Refused as refusal:
                warn("checkpoint.failed", path=directory.path, reason=refusal.text)

    def begin_checkpoint(self, directory: LogDirectory) -> Callable[[], None]:
        """Record the offsets of a directory's logs; the returned function writes them and may run in any thread."""
        logs = [log for log in self.logs.values() if log.directory is directory]
        return directory.begin_checkpoint(
            recovery_points={log.key: log.state.recovery_point for log in logs},
            high_watermarks={log.key: log.state.high_watermark for log in logs},
            log_starts={log.key: log.state.log_start_offset for log in logs},
        )

    def note_unsynced(self, log: PartitionLog) -> None:
        """Queue a log that has something to sync beside its active segment, for `next_unsynced`."""
        self._unsynced[log] = None
        self._has_unsynced.set()

    async def next_unsynced(self) -> PartitionLog:
        while not self._unsynced:
            self._has_unsynced.clear()
            await self._has_unsynced.wait()
        log = next(iter(self._unsynced))
        del self._unsynced[log]
        return log

    @property
    def unusable(self) -> list[str]:
        """The unusable `log.dirs`, and the partitions in them."""
        return self._untaken + [directory.path for directory in self.directories if directory.failure is not None]

    # Partitions.

    def get(self, topic: str, partition: int) -> PartitionLog:
        log = self.logs.get((topic, partition))
        if log is not None:
            return log
        if (topic, partition) in self.offline:
            raise Refused(Error.KAFKA_STORAGE_ERROR, self.offline[topic, partition])
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {topic}-{partition} here")

    def create(self, topic: str, partition: int, topic_id: bytes, config: Config) -> PartitionLog:
        """Create an empty log in the directory that holds the fewest bytes."""
        self._check_new(topic, partition)
        directory = self._roomiest()
        with directory.guard("create"):
            # A crash may have come between the deletion of an earlier topic and this.
            directory.forget([(topic, partition)])
        log = PartitionLog(directory, topic, partition, config, self.clock, self._random, self.note_unsynced)
        log.set_topic_id(topic_id)
        self.logs[log.key] = log
        return log

    def _check_new(self, topic: str, partition: int) -> None:
        if (topic, partition) in self.offline:
            raise Refused(
                Error.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition} is here, but cannot be used: {self.offline[topic, partition]}",
            )
        if (topic, partition) in self.logs:
            raise Refused(Error.TOPIC_ALREADY_EXISTS, f"a log of {topic}-{partition} is here already")

    def delete(self, *keys: Partition) -> None:
        """Take logs out of use at once. Their directories are renamed, so that the topic can be created again."""
        for log, renamed in self._take_out(keys, "delete"):
            self._doomed.append((self.clock.wall_ms() + log.state.config[FILE_DELETE_DELAY_MS], renamed))

    async def create_some(self, wanted: Sequence[NewLog]) -> list[PartitionLog | Refused]:
        """Like `create` for each, in a thread: creating directories and files may wait for the disk."""
        places = self._places(len(wanted))

        def make(new: NewLog, directory: LogDirectory) -> PartitionLog:
            with directory.guard("create"):
                directory.forget([(new.topic, new.partition)])
            log = PartitionLog(
                directory, new.topic, new.partition, new.config, self.clock, self._random, self.note_unsynced
            )
            log.set_topic_id(new.topic_id)
            return log

        def make_all() -> list[PartitionLog | Refused]:
            made: list[PartitionLog | Refused] = []
            for new, directory in zip(wanted, places, strict=True):
                try:
                    self._check_new(new.topic, new.partition)
                    made.append(make(new, self._begun_in(new) or directory))
                except Refused as refusal:
                    made.append(refusal)
            return made

        made = await self.disk.in_thread(make_all)
        self.logs |= {log.key: log for log in made if isinstance(log, PartitionLog)}
        return made

    def _begun_in(self, new: NewLog) -> LogDirectory | None:
        """The directory in which creating this log failed for lack of descriptors: it must be created there, nowhere
        else."""
        if len(self.directories) == 1:
            return None
        name = directory_name(new.topic, new.partition)
        begun = (one for one in self.directories if one.failure is None and self.disk.exists(f"{one.path}/{name}"))
        return next(begun, None)

    async def delete_some(self, keys: Iterable[Partition]) -> None:
        """Like `delete`, for one slice of many logs. They are out of use before a thread renames them; `end_delete`
        makes all slices durable."""
        logs = [self.get(*key) for key in keys]
        names = [(log, self._taken_out(log, "delete")) for log in logs]
        for log, renamed in names:
            self._doomed.append((self.clock.wall_ms() + log.state.config[FILE_DELETE_DELAY_MS], renamed))
        for directory in dict.fromkeys(log.directory for log in logs):
            here = [(log.here.path, renamed) for log, renamed in names if log.directory is directory]
            directory.begin_forget([log.key for log in logs if log.directory is directory])
            self._renamed_in[directory] = None
            with directory.guard("delete"):
                await self.disk.in_thread(partial(self._rename_all, here))

    def _rename_all(self, names: Iterable[tuple[str, str]]) -> None:
        for old, new in names:
            self.disk.rename(old, new)

    async def end_delete(self) -> None:
        """Sync the renames and write the checkpoints, once per directory, in a thread."""
        renamed_in, self._renamed_in = self._renamed_in, {}
        for directory in renamed_in:
            write = directory.begin_write()

            def sync(directory: LogDirectory = directory, write: Callable[[], None] = write) -> None:
                self.disk.sync_directory(directory.path)
                write()

            try:
                with directory.guard("delete"):
                    await self.disk.in_thread(sync)
            except Refused as refusal:
                warn("partitions.not_removed", path=directory.path, reason=refusal.text)

    def set_aside(self, *keys: Partition) -> None:
        """Take logs out of use whose deletion was not requested: they are renamed to `-stray` and stay on disk."""
        self._take_out(keys, "stray")

    def _take_out(self, keys: Iterable[Partition], fate: str) -> list[tuple[PartitionLog, str]]:
        """Rename logs, then sync and drop checkpoints once per directory; returns each log with its new path."""
        logs = [self.get(*key) for key in keys]
        taken: list[tuple[PartitionLog, str]] = []
        for directory in dict.fromkeys(log.directory for log in logs):
            with directory.guard(fate):
                here = [log for log in logs if log.directory is directory]
                taken += [(log, self._rename(log, fate)) for log in here]
                self.disk.sync_directory(directory.path)
                directory.forget([log.key for log in here])
        return taken

    def _rename(self, log: PartitionLog, fate: str) -> str:
        renamed = self._new_name(log, fate)
        log.here.close()  # First, so that a sync or cleaning in progress sees why its files are gone.
        self.disk.rename(log.here.path, renamed)
        del self.logs[log.key]
        detail("log.taken_out", log=log.name, renamed_to=renamed)
        return renamed

    def _taken_out(self, log: PartitionLog, fate: str) -> str:
        """Take a log out of use; returns the path to rename it to."""
        renamed = self._new_name(log, fate)
        log.here.close()
        del self.logs[log.key]
        trace("log.taken_out", log=log.name, renamed_to=renamed)
        return renamed

    def _new_name(self, log: PartitionLog, fate: str) -> str:
        return f"{log.directory.path}/{doomed_directory_name(*log.key, self._new_id().hex(), fate)}"

    async def purge(self, now_ms: int) -> None:
        """Remove the directories of deleted partitions that are due."""
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, path) for due_ms, path in self._doomed if due_ms > now_ms]
        for path in due:
            await self._remove_doomed(path)

    def _roomiest(self) -> LogDirectory:
        return self._places(1)[0]

    def _places(self, count: int) -> list[LogDirectory]:
        """The directories for `count` new logs."""
        online = [directory for directory in self.directories if directory.failure is None]
        if not online:
            raise Refused(Error.KAFKA_STORAGE_ERROR, "every log directory is offline")
        if len(online) == 1:
            return online * count  # One directory only: nothing to compare.
        held = {directory.path: (0, 0) for directory in online}
        for log in self.logs.values():
            size, logs = held[log.directory.path]
            held[log.directory.path] = (size + log.state.size, logs + 1)
        places = []
        for _ in range(count):
            places.append(min(online, key=lambda directory: held[directory.path]))
            size, logs = held[places[-1].path]
            held[places[-1].path] = (size, logs + 1)
        return places

    def _directory_failed(self, directory: LogDirectory) -> None:
        """May be called from a disk thread; the logs are taken offline on the loop."""
        if self._loop is not None and not self._loop.is_closed() and not _is_running(self._loop):
            self._loop.call_soon_threadsafe(self._take_offline, directory)
        else:
            self._take_offline(directory)

    def _take_offline(self, directory: LogDirectory) -> None:
        reason = f"log directory {directory.path} is offline after an I/O error: {directory.failure}"
        for key in [key for key, log in self.logs.items() if log.directory is directory]:
            del self.logs[key]
            self.offline[key] = reason
        self.on_offline(directory)

    async def _remove_doomed(self, path: str) -> None:
        """A directory that cannot be removed is tried again at the next start."""
        try:
            await self.disk.in_thread(partial(self._remove_directory, path))
        except OSError as error:
            warn("directory.not_removed", path=path, error=error)

    def _remove_directory(self, path: str) -> None:
        plain = self.disk.scan(path)
        for name in plain:
            self.disk.remove(f"{path}/{name}")
        for name in self.disk.list(path):
            if name not in plain:
                self._remove_directory(f"{path}/{name}")  # Directories that recovery has set aside.
        self.disk.remove_directory(path)


def _is_running(loop: AbstractEventLoop) -> bool:
    """Whether this is the loop's own thread."""
    try:
        return get_running_loop() is loop
    except RuntimeError:
        return False
