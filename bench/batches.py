"""Batches and logs to measure with."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from ottla import kernel
from ottla.config import Config
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import BatchHeader, Codec, Record
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog

PRODUCER_ID = 4000
_BASE_OFFSET = Struct(">q")
_WORDS = [b"offset", b"leader", b"epoch", b"segment", b"index", b"batch", b"record", b"broker", b"quorum", b"topic"]


def batch_of(records: int, value_bytes: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch as an idempotent producer sends it: keys of 8 bytes, values that compress like text."""
    words = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    made = []
    for index in range(records):
        text = bytearray()
        while len(text) < value_bytes:
            text += b"%s=%d " % (words.choice(_WORDS), words.randrange(10_000))
        made.append(Record(index, now_ms + index // 16, b"key-%04d" % index, bytes(text[:value_bytes])))
    return kernel.build_batch(made, codec=codec, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)


def batch_filling(size: int, value_bytes: int, codec: Codec = Codec.NONE) -> bytes:
    """As many records as fit into `size` bytes, before compression, as `batch.size` counts them."""
    one, two = (len(batch_of(count, value_bytes)) for count in (1, 2))
    return batch_of(max(1, (size - one) // (two - one)), value_bytes, codec)


def sequenced(batch: bytes, count: int) -> list[bytearray]:
    """`count` copies of the batch with consecutive sequences."""
    header = kernel.read_header(batch)
    following = []
    for number in range(count):
        copy = bytearray(batch)
        _write_header(copy, header._replace(base_sequence=number * header.count))
        following.append(copy)
    return following


def unstamp(batches: list[bytearray]) -> None:
    """Restore appended batches to the form their producer sent."""
    for batch in batches:
        _BASE_OFFSET.pack_into(batch, 0, 0)


def run_of(batch: bytes, count: int, first_offset: int) -> bytearray:
    """`count` consecutive copies with a leader's offsets, for `append_replicated`."""
    header = kernel.read_header(batch)
    run = bytearray(batch * count)
    for number in range(count):
        kernel.stamp(run, number * len(batch), first_offset + number * header.count, 0)
    return run


def _write_header(batch: bytearray, header: BatchHeader) -> None:
    batch[: kernel.HEADER_SIZE] = kernel.pack_header(header)
    crc = kernel.batch_crc(batch, 0, len(batch))
    batch[: kernel.HEADER_SIZE] = kernel.pack_header(header._replace(crc=crc))


class Place:
    """A log directory on the real disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.disk = LocalDisk()
        self.held = LogDirectory(self.disk, path)

    def log(self, topic: str = "bench", partition: int = 0, config: Config | None = None) -> PartitionLog:
        return PartitionLog(self.held, topic, partition, config or Config.of(), SystemClock(), random.Random(1))

    def leave(self, *logs: PartitionLog, clean: bool) -> None:
        """Close it as a node does, or drop it as a crash would."""
        if clean:
            for log in logs:
                log.state.advance_high_watermark(log.state.end_offset)
                log.close()
            self.held.checkpoint(
                recovery_points={log.key: log.state.recovery_point for log in logs},
                high_watermarks={log.key: log.state.high_watermark for log in logs},
                log_starts={log.key: log.state.log_start_offset for log in logs},
            )
        else:
            for log in logs:
                log.here.close()
        self.held.close(clean=clean)
        self.disk.close()


@contextmanager
def placed(path: str, *, clean: bool = False) -> Iterator[Place]:
    """A directory that is closed when the block ends; the caller closes the logs opened in it."""
    place = Place(path)
    try:
        yield place
    finally:
        place.leave(clean=clean)
