"""The log under test, opened on a simulated disk as a node opens it, and read as a client reads it."""

from collections.abc import Callable, Iterator
from random import Random

from ottla.config import Config
from ottla.core.log.cleaning import Cleanable, cleanable
from ottla.core.log.producers import AppendOrigin
from ottla.observe.trace import trace
from ottla.sim.log.checkers import Seen, SeenProducer
from ottla.sim.machine.disk import SimDisk
from ottla.sim.played import Violation
from ottla.sim.records import DecodedBatch, decode_all
from ottla.storage.cleaner import CleaningVoid, clean
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import Appended, PartitionLog

ROOT = "/data"
TOPIC, PARTITION = "t", 0
EVERYTHING = 1 << 30


class Subject:
    """One process with one partition. `close` stops cleanly; a process that dies is dropped."""

    def __init__(self, disk: SimDisk, config: Config, random: Random) -> None:
        self.disk = disk
        self.directory = LogDirectory(disk, ROOT)
        self.is_unsynced = False
        """Whether something beside the active segment needs a sync."""
        self.partition = PartitionLog(
            self.directory, TOPIC, PARTITION, config, disk.clock, random, on_unsynced=self._note_unsynced
        )
        self.log = self.partition.state

    def _note_unsynced(self, _: PartitionLog) -> None:
        self.is_unsynced = True

    # Writing.

    def append(self, data: bytes, leader_epoch: int, *, marker: bool = False) -> Appended:
        origin = AppendOrigin.COORDINATOR if marker else AppendOrigin.CLIENT
        return self.partition.append(bytearray(data), leader_epoch, origin=origin)

    async def flush(self) -> None:
        await self.partition.flush_in_thread()

    async def sync_closed(self) -> None:
        """Sync the closed segments, as a node does soon after a roll."""
        self.is_unsynced = False
        while self.partition.is_unsynced_beside_the_active_segment:
            await self.partition.flush_in_thread(active=False)

    def cleanable(self, now_ms: int) -> Cleanable | None:
        checkpoint = self.directory.cleaner_offsets.get(self.partition.key)
        with self.directory.guard("look for what to clean"):
            return cleanable(
                self.log,
                checkpoint,
                now_ms,
                first_timestamp=self.partition.first_timestamp,
                largest_timestamp=self.partition.largest_timestamp,
            )

    async def clean(self, cleanable: Cleanable, now_ms: int) -> None:
        try:
            await clean(self.partition, cleanable, now_ms)
        except CleaningVoid as error:
            trace("log.cleaning_void", reason=error)

    def begin_checkpoint(self) -> Callable[[], None]:
        key = self.partition.key
        return self.directory.begin_checkpoint(
            recovery_points={key: self.log.recovery_point},
            high_watermarks={key: self.log.high_watermark},
            log_starts={key: self.log.log_start_offset},
        )

    async def checkpoint(self) -> None:
        """Write the checkpoints as a node does: it takes the offsets on the loop, and writes the files in a thread."""
        with self.directory.guard("checkpoint"):
            await self.disk.in_thread(self.begin_checkpoint())

    def close(self) -> None:
        self.partition.close()
        with self.directory.guard("checkpoint"):
            self.begin_checkpoint()()
        self.directory.close(clean=True)

    # Reading.

    def read(self, offset: int, upper_offset: int, max_bytes: int = EVERYTHING) -> list[DecodedBatch]:
        """One fetch: the whole batches in the response, each with its CRC checked."""
        found = self.partition.read(offset, max_bytes, upper_offset)
        with self.directory.guard("read"):
            return list(decode_all(found.read()))

    def read_all(self, offset: int, upper_offset: int, max_bytes: int = EVERYTHING) -> Iterator[DecodedBatch]:
        """Fetch after fetch up to the bound, as a consumer that catches up."""
        while offset < upper_offset:
            batches = self.read(offset, upper_offset, max_bytes)
            if not batches:
                return
            yield from batches
            if batches[-1].last_offset < offset:
                raise Violation("I8", f"a fetch from {offset} gave nothing but batches up to {batches[-1].last_offset}")
            offset = batches[-1].last_offset + 1

    def read_committed(self, offset: int, max_bytes: int = EVERYTHING) -> Iterator[int]:
        """The offsets that a consumer at read_committed returns."""
        bound = self.log.last_stable_offset
        while offset < bound:
            batches = self.read(offset, bound, max_bytes)
            if not batches:
                return
            last = batches[-1].last_offset
            aborted = sorted(self.partition.aborted_transactions(offset, last + 1), key=lambda txn: txn.first_offset)
            for record_offset in _committed(batches, [(txn.producer_id, txn.first_offset) for txn in aborted]):
                if record_offset >= offset:
                    yield record_offset
            offset = last + 1

    def look(self) -> Seen:
        """Read everything that clients and operators can see, with faults suspended."""
        with self.disk.calm():
            log = self.log
            producers = {
                producer.producer_id: SeenProducer(producer.epoch, producer.last_sequence, producer.txn_first_offset)
                for producer in log.producers.by_id.values()
            }
            return Seen(
                log.log_start_offset,
                log.end_offset,
                log.high_watermark,
                log.last_stable_offset,
                tuple(self.read_all(log.log_start_offset, log.end_offset)),
                dict(sorted(producers.items())),
                tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries),
            )


def _committed(batches: list[DecodedBatch], aborted: list[tuple[int, int]]) -> Iterator[int]:
    """A consumer's filter: a producer's records are dropped from its aborted transaction's start to its marker."""
    left_out: dict[int, None] = {}
    for batch in batches:
        while aborted and aborted[0][1] <= batch.last_offset:
            left_out[aborted.pop(0)[0]] = None
        if batch.is_control:
            left_out.pop(batch.producer_id, None)
        elif not (batch.is_transactional and batch.producer_id in left_out):
            yield from (record.offset for record in batch.records)
