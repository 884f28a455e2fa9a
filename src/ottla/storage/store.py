"""All the logs of a node, in all its `log.dirs`.

Rule 1: a directory that fails takes its logs offline and nothing else; the node goes on with the rest.
Rule 2: a log that cannot be opened is offline by itself, with the reason; its neighbours are not touched. Its
        directory is never marked as cleanly left, so that the next start looks at it as closely as this one. Nor is it
        where a log could not be closed.
Rule 3: a new log goes where the fewest bytes are, not the fewest logs, so that a new disk fills up.
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
    topic: str
    partition: int
    topic_id: bytes
    config: Config


def random_id() -> bytes:
    """An id for a topic, a directory, a node's life: sixteen bytes that nobody else has."""
    return uuid.uuid4().bytes


class LogStore:
    def __init__(self, disk: Disk, clock: Clock, random: Random, new_id: Callable[[], bytes] = random_id) -> None:
        self.disk = disk
        self.clock = clock
        self._random = random
        self._new_id = new_id
        self.directories: list[LogDirectory] = []
        self._untaken: list[str] = []
        """Paths that could not be taken at the start."""
        self.logs: dict[Partition, PartitionLog] = {}
        self.offline: dict[Partition, str] = {}
        """Partitions that are here but cannot be used, and why."""
        self._not_clean: set[str] = set()
        """Paths of the directories in which a log could not be opened, or not be closed."""
        self.on_offline: Callable[[LogDirectory], None] = lambda _: None
        """Told, on the loop, of a directory that has failed."""
        self._loop: AbstractEventLoop | None = None
        self._doomed: list[tuple[int, str]] = []
        """Directories of deleted partitions, and when their bytes go."""
        self._unsynced: dict[PartitionLog, None] = {}
        """Those that have something beside the active segment to sync, the one that has waited longest first."""
        self._has_unsynced = asyncio.Event()
        self._renamed_in: dict[LogDirectory, None] = {}
        """Where names have changed that are not synced yet."""

    # Opening and closing.

    async def open(self, paths: Iterable[str], cluster_id: str, node_id: int, config_of: ConfigOf) -> None:
        """Take the directories and open every log in them; what fails is left out and named in the trace."""
        self.take(paths, cluster_id, node_id)
        await self.load(config_of)

    def take(self, paths: Iterable[str], cluster_id: str, node_id: int) -> None:
        """Make the directories this node's; one that cannot be used is left out."""
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
        # A log that is opened again from here on was not left by a clean shutdown.
        clean, directory.was_clean = directory.was_clean, False
        logs = sum(log.directory is directory for log in self.logs.values())
        left = "new" if directory.is_new else "cleanly" if clean else "without a clean stop"
        trace("directory.opened", path=directory.path, logs=logs, left=left)

    async def _open_log(self, directory: LogDirectory, key: Partition, config: Config) -> None:
        make = partial(PartitionLog, directory, *key, config, self.clock, self._random, self.note_unsynced)
        try:
            opened = await self.disk.in_thread(make)
        except OutOfFiles:
            raise  # The log is whole: a node that is started again, with more of them, has it.
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
        """Sync everything and leave it so that the next open needs no recovery."""
        await gather(*(self._close_logs(directory) for directory in self.directories))
        self.checkpoint()
        for directory in self.directories:
            try:
                directory.close(clean=directory.path not in self._not_clean, broker_epoch=broker_epoch)
            except Refused as refusal:
                warn("directory.not_closed", path=directory.path, reason=refusal.text)

    async def _close_logs(self, directory: LogDirectory) -> None:
        """Several at a time: their syncs wait for the same disk, which makes one journal entry of them."""
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
        """Write down, per directory, how far each log is synced, committed and trimmed."""
        for directory in self.directories:
            try:
                with directory.guard("checkpoint"):
                    self.begin_checkpoint(directory)()
            except Refused as refusal:
                warn("checkpoint.failed", path=directory.path, reason=refusal.text)

    def begin_checkpoint(self, directory: LogDirectory) -> Callable[[], None]:
        """Take note of the offsets of the logs in a directory; calling the result, in any thread, writes them down."""
        logs = [log for log in self.logs.values() if log.directory is directory]
        return directory.begin_checkpoint(
            recovery_points={log.key: log.log.recovery_point for log in logs},
            high_watermarks={log.key: log.log.high_watermark for log in logs},
            log_starts={log.key: log.log.log_start_offset for log in logs},
        )

    def note_unsynced(self, log: PartitionLog) -> None:
        """A log has something to sync beside its active segment; `next_unsynced` hands it out."""
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
        """The `log.dirs` that cannot be used, and what is in them."""
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
        """A new, empty log in the directory that holds the fewest bytes."""
        self._check_new(topic, partition)
        directory = self._roomiest()
        with directory.guard("create"):
            directory.forget([(topic, partition)])  # A crash may have come between an earlier topic's end and this.
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
        """Take logs out of use at once; their directories are renamed, so that the topic may be made again."""
        for log, renamed in self._take_out(keys, "delete"):
            self._doomed.append((self.clock.wall_ms() + log.log.config[FILE_DELETE_DELAY_MS], renamed))

    async def create_some(self, wanted: Sequence[NewLog]) -> list[PartitionLog | Refused]:
        """As `create` of each, in a thread: making a directory with its files may have to wait for the disk."""
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
        """Where a log was begun that could not be made for want of descriptors: nowhere else may it be made now."""
        if len(self.directories) == 1:
            return None
        name = directory_name(new.topic, new.partition)
        begun = (one for one in self.directories if one.failure is None and self.disk.exists(f"{one.path}/{name}"))
        return next(begun, None)

    async def delete_some(self, keys: Iterable[Partition]) -> None:
        """As `delete`, for a part of very many logs. They are out of use before this waits for a thread to rename them,
        and it is durable for all parts after `end_delete`."""
        logs = [self.get(*key) for key in keys]
        names = [(log, self._taken_out(log, "delete")) for log in logs]
        for log, renamed in names:
            self._doomed.append((self.clock.wall_ms() + log.log.config[FILE_DELETE_DELAY_MS], renamed))
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
        """Sync the new names and write the checkpoints, once for each directory, in a thread."""
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
        """Take logs out of use that nobody asked to delete: they are renamed to `-stray` and stay on disk."""
        self._take_out(keys, "stray")

    def _take_out(self, keys: Iterable[Partition], fate: str) -> list[tuple[PartitionLog, str]]:
        """Rename, then sync and forget once for all of a directory; what was renamed, and to what."""
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
        log.here.close()  # First: a sync or a cleaning under way must see why its files are gone.
        self.disk.rename(log.here.path, renamed)
        del self.logs[log.key]
        detail("log.taken_out", log=log.name, renamed_to=renamed)
        return renamed

    def _taken_out(self, log: PartitionLog, fate: str) -> str:
        """Put a log out of use; what it has to be renamed to."""
        renamed = self._new_name(log, fate)
        log.here.close()
        del self.logs[log.key]
        trace("log.taken_out", log=log.name, renamed_to=renamed)
        return renamed

    def _new_name(self, log: PartitionLog, fate: str) -> str:
        return f"{log.directory.path}/{doomed_directory_name(*log.key, self._new_id().hex(), fate)}"

    async def purge(self, now_ms: int) -> None:
        """Remove the directories of partitions that were deleted long enough ago."""
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, path) for due_ms, path in self._doomed if due_ms > now_ms]
        for path in due:
            await self._remove_doomed(path)

    def _roomiest(self) -> LogDirectory:
        return self._places(1)[0]

    def _places(self, count: int) -> list[LogDirectory]:
        """Where so many new logs go."""
        online = [directory for directory in self.directories if directory.failure is None]
        if not online:
            raise Refused(Error.KAFKA_STORAGE_ERROR, "every log directory is offline")
        if len(online) == 1:
            return online * count  # Not worth counting.
        held = {directory.path: (0, 0) for directory in online}
        for log in self.logs.values():
            size, logs = held[log.directory.path]
            held[log.directory.path] = (size + log.log.size, logs + 1)
        places = []
        for _ in range(count):
            places.append(min(online, key=lambda directory: held[directory.path]))
            size, logs = held[places[-1].path]
            held[places[-1].path] = (size, logs + 1)
        return places

    def _directory_failed(self, directory: LogDirectory) -> None:
        """May be called from a disk thread; who is offline is decided on the loop."""
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
        """What cannot be removed is tried again at the next start."""
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
                self._remove_directory(f"{path}/{name}")  # What recovery had set aside.
        self.disk.remove_directory(path)


def _is_running(loop: AbstractEventLoop) -> bool:
    """Whether this is the loop's own thread."""
    try:
        return get_running_loop() is loop
    except RuntimeError:
        return False
