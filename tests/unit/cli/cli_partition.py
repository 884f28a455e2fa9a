"""A small partition on disk with one of everything, for the tests of `ottla log`."""

from dataclasses import dataclass
from pathlib import Path

from ottla.core.log.checkpoints import EpochStart, encode_epochs, encode_partition_metadata
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY, AbortedTxn
from ottla.core.log.producers import Producer
from ottla.core.log.snapshots import encode_snapshot
from ottla.kernel import Codec, ControlType, Record, build_batch, build_end_txn_marker

START = 1_700_000_000_000
FIRST = "00000000000000000000"
SECOND = "00000000000000000006"


@dataclass(frozen=True)
class Sample:
    """Offsets 0-2 plain, 3-4 in an aborted transaction, 5 its marker; then a segment with 6-7 of a newer leader."""

    path: Path
    positions: tuple[int, int, int]
    """Of the batches of the first segment."""

    def file(self, name: str) -> Path:
        return self.path / name


def records(first: int, count: int) -> list[Record]:
    headers = (("trace", b"\xff\x00"), ("none", None))
    return [
        Record(offset, START + offset, f"key-{offset}".encode(), f"value-{offset}".encode(), headers)
        for offset in range(first, first + count)
    ]


def write_sample(path: Path) -> Sample:
    path.mkdir()
    plain = build_batch(records(0, 3), leader_epoch=0)
    aborted = build_batch(
        records(3, 2),
        codec=Codec.ZSTD,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=0,
        transactional=True,
    )
    marker = build_end_txn_marker(
        ControlType.ABORT, 4, timestamp=START + 5, producer_id=7, producer_epoch=1, base_offset=5, leader_epoch=0
    )
    later = build_batch([Record(6, START + 6, None, b"\xfe\xff"), Record(7, START + 7, b"k", None)], leader_epoch=1)
    positions = (0, len(plain), len(plain) + len(aborted))
    sample = Sample(path, positions)
    sample.file(f"{FIRST}.log").write_bytes(plain + aborted + marker)
    sample.file(f"{FIRST}.index").write_bytes(OFFSET_ENTRY.pack(4, positions[1]) + OFFSET_ENTRY.pack(5, positions[2]))
    sample.file(f"{FIRST}.timeindex").write_bytes(TIME_ENTRY.pack(START + 2, 2) + TIME_ENTRY.pack(START + 5, 5))
    sample.file(f"{FIRST}.txnindex").write_bytes(AbortedTxn(7, 3, 5, 6).encode())
    sample.file(f"{SECOND}.log").write_bytes(later)
    sample.file(f"{SECOND}.index").write_bytes(bytes(8 * 100))
    sample.file(f"{SECOND}.timeindex").write_bytes(bytes(12 * 100))
    sample.file(f"{SECOND}.snapshot").write_bytes(encode_snapshot([Producer(7, 1, 4, START + 5)]))
    sample.file("leader-epoch-checkpoint").write_bytes(encode_epochs([EpochStart(0, 0), EpochStart(1, 6)]))
    sample.file("partition.metadata").write_bytes(encode_partition_metadata(bytes([5] * 16)))
    return sample
