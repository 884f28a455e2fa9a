"""The kernel's record batches beside Kafka's: what one writes, the other reads."""

from pathlib import Path

import pytest
from peers import scenario
from peers.client import Read
from peers.dump import dump
from peers.written import Written, segments

from ottla.kernel import (
    BatchHeader,
    Codec,
    ControlType,
    Record,
    build_batch,
    build_end_txn_marker,
    read_end_txn_marker,
    read_records,
    scan,
)

NAMES = [f"{topic}-{partition}" for topic, partition in scenario.NAMES]


def batches(directory: Path) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of a partition, with its header; nothing may be left over."""
    found = []
    for path in segments(directory):
        log = path.read_bytes()
        scanned = scan(log)
        assert scanned.fault is None
        assert scanned.consumed == len(log)
        position = 0
        for header in scanned.headers:
            found.append((header, log[position : position + header.size]))
            position += header.size
    return found


@pytest.mark.parametrize("name", NAMES)
def test_records_of_kafka_read_back(kafka_written: Written, name: str) -> None:
    """Offsets, timestamps, keys, values and headers as a consumer of Kafka gets them, whatever the codec."""
    truth = kafka_written.truth[name]
    records = [
        Read(*record)
        for header, batch in batches(kafka_written.clean / name)
        if not header.is_control
        for record in read_records(batch, header)
        if record.offset >= truth.log_start
    ]
    assert records == truth.records


def test_every_codec_was_met(kafka_written: Written) -> None:
    """Otherwise the tests above would prove less than they claim."""
    seen = {
        name: {header.codec for header, _ in batches(kafka_written.clean / name)}
        for name in NAMES
        if name.startswith(("codecs", "recompressed"))
    }
    assert seen["codecs-0"] == set(Codec)
    assert {name: codecs for name, codecs in seen.items() if name != "codecs-0"} == {
        "recompressed-gzip-0": {Codec.GZIP},
        "recompressed-snappy-0": {Codec.SNAPPY},
        "recompressed-lz4-0": {Codec.LZ4},
        "recompressed-zstd-0": {Codec.ZSTD},
        "recompressed-uncompressed-0": {Codec.NONE},
    }


def test_markers_are_kafkas_bytes(kafka_written: Written) -> None:
    """A marker of ours for the same transaction is the same batch to the last byte."""
    markers = [
        (header, batch) for header, batch in batches(kafka_written.clean / "transactions-0") if header.is_control
    ]
    assert {read_end_txn_marker(batch).control_type for _, batch in markers} == {ControlType.ABORT, ControlType.COMMIT}
    for header, batch in markers:
        marker = read_end_txn_marker(batch)
        ours = build_end_txn_marker(
            marker.control_type,
            marker.coordinator_epoch,
            timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert ours == batch


def test_uncompressed_batches_are_kafkas_bytes(kafka_written: Written) -> None:
    """The same records build the same batch as Kafka's own builder makes of them."""
    rebuilt = 0
    for header, batch in batches(kafka_written.clean / "recompressed-uncompressed-0"):
        ours = build_batch(
            read_records(batch, header),
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        assert ours == batch
        rebuilt += 1
    assert rebuilt > 0


@pytest.mark.parametrize("records_per_batch", [1, 3000])
def test_kafka_reads_every_codec_of_ours(kafka_jars: Path, tmp_path: Path, records_per_batch: int) -> None:
    """One record, and more than one block of any framing; compressible, with headers and nulls."""
    expected, log, offset = [], b"", 0
    for codec in Codec:
        records = [
            Record(
                offset + number,
                scenario.START_MS + number,
                None if number % 7 == 3 else b"key-%d" % (number % 50),
                None if number % 11 == 5 else b"value %d of %s " % (number, codec.name.encode()) * 6,
                (("trace", b"x"), ("none", None)) if number % 5 == 0 else (),
            )
            for number in range(records_per_batch)
        ]
        log += build_batch(records, codec=codec, leader_epoch=0)
        expected += records
        offset += records_per_batch
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(log)

    dumped = dump(kafka_jars, [path])[path]

    assert dumped.complaints == []
    assert [line["compresscodec"] for line in dumped.lines if "compresscodec" in line] == [
        codec.name.lower() for codec in Codec
    ]
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.header_keys) for record in dumped.records
    ] == [
        (
            record.offset,
            record.timestamp,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
            tuple(key for key, _ in record.headers),
        )
        for record in expected
    ]
