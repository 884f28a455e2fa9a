"""Everything Ottla does to a log, judged by Kafka's DumpLogSegments."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from peers.dump import DumpedRecord, FileDump, complaints, dump, readable_files
from peers.ours import OttlaNode, batches, running_ottla
from peers.scenario import CLEANABLE, HOUR_MS, HOURLY, SMALL
from peers.workload import Sender, interleaved_transactions
from peers.written import SETTINGS, segments

from ottla.config import Config
from ottla.core.log.snapshots import decode_snapshot
from ottla.kernel import Codec, ControlType, read_control, read_records
from ottla.storage.partition_log import PartitionLog


def write_plain(_node: OttlaNode, log: PartitionLog) -> None:
    """All codecs over many segments."""
    Sender().fill(log, 60, codecs=Codec)


def write_append_time(_node: OttlaNode, log: PartitionLog) -> None:
    Sender().fill(log, 20, codecs=(Codec.NONE, Codec.LZ4))


def write_recompressed(_node: OttlaNode, log: PartitionLog) -> None:
    Sender().fill(log, 20, codecs=(Codec.NONE, Codec.GZIP))


def write_idempotent(_node: OttlaNode, log: PartitionLog) -> None:
    first, second = Sender(1, seed=1), Sender(2, seed=2)
    for _ in range(4):
        first.fill(log, 3)
        second.fill(log, 2)


def write_transactions(_node: OttlaNode, log: PartitionLog) -> None:
    interleaved_transactions(log, 10, rounds=6)


def write_hourly(_node: OttlaNode, log: PartitionLog) -> None:
    """Segments rolled by time."""
    sender = Sender()
    for hours in (0, 0.4, 2, -1, 3, 0.2):
        sender.keyed(log, range(8), after_ms=int(hours * HOUR_MS))


def write_epochs(_node: OttlaNode, log: PartitionLog) -> None:
    """A log with several leaders, one of which wrote nothing."""
    for epoch in (0, 1, 4):
        log.assign_epoch(epoch)
        Sender(seed=epoch).fill(log, 5)
    log.assign_epoch(9)


def write_retained(node: OttlaNode, log: PartitionLog) -> None:
    """The front removed by size."""
    Sender().fill(log, 40)
    node.commit()
    assert node.retain() > 0


def write_trimmed(node: OttlaNode, log: PartitionLog) -> None:
    """The log start inside a segment, those before it removed."""
    Sender(3).fill(log, 40)
    node.commit()
    log.delete_records(133)
    assert node.retain() > 0


def write_truncated(_node: OttlaNode, log: PartitionLog) -> None:
    """Cut inside a transaction, then written on by the next leader."""
    interleaved_transactions(log, 20, rounds=4)
    log.truncate(101)
    log.assign_epoch(3)
    Sender(7).fill(log, 10)


def write_restarted(_node: OttlaNode, log: PartitionLog) -> None:
    """Emptied and begun anew in the middle of nowhere, as a follower does that was away too long."""
    Sender().fill(log, 10)
    log.restart(5_000_000_000)
    Sender().fill(log, 10)


def write_compacted(node: OttlaNode, log: PartitionLog) -> None:
    """Cleaned twice, with tombstones, transactions and an aborted one; the second pass sees the work of the first."""
    steady, wavering = Sender(31, transactional=True), Sender(32, transactional=True)
    plain = Sender()
    for number in range(2):
        for sender, keys in ((steady, range(8)), (wavering, range(4, 12))):
            sender.keyed(log, keys)
            sender.end(log, commit=sender is steady)
        plain.keyed(log, range(2, 6), tombstone=True)
        plain.keyed(log, range(6, 9))
        plain.keyed(log, range(40 + number, 42 + number), after_ms=3 * HOUR_MS)
        node.commit()
        assert any(cleaned.records_dropped for cleaned in node.clean())


class Case(NamedTuple):
    topic: str
    settings: dict[str, str]
    write: Callable[[OttlaNode, PartitionLog], None]


CASES = (
    Case("plain", SMALL, write_plain),
    Case("append-time", SMALL | {"message.timestamp.type": "LogAppendTime"}, write_append_time),
    Case("recompressed", SMALL | {"compression.type": "zstd"}, write_recompressed),
    Case("idempotent", SMALL, write_idempotent),
    Case("transactions", SMALL, write_transactions),
    Case("hourly", HOURLY, write_hourly),
    Case("epochs", SMALL, write_epochs),
    Case("retained", SMALL | {"retention.bytes": "10000"}, write_retained),
    Case("trimmed", SMALL, write_trimmed),
    Case("truncated", SMALL, write_truncated),
    Case("restarted", SMALL, write_restarted),
    Case("compacted", HOURLY | CLEANABLE | {"cleanup.policy": "compact"}, write_compacted),
)
BY_TOPIC = {case.topic: case for case in CASES}
CRASHED = ("plain", "idempotent", "transactions", "compacted")
COMPACTED = ("compacted",)


class Judged(NamedTuple):
    """What Ottla left, what it says is in it, and what Kafka's tool read there."""

    data: Path
    served: dict[str, list[DumpedRecord]]
    dumps: dict[Path, FileDump]


def configs(topic: str) -> Config:
    return Config.of(BY_TOPIC[topic].settings, broker=SETTINGS)


def served(log: PartitionLog) -> list[DumpedRecord]:
    """All records and markers of the log's files, in the form of the tool."""
    records = []
    for header, batch in batches(log, log.state.end_offset):
        marker = None
        if header.is_control and header.count:
            marker = ControlType(read_control(batch)[0]).name
        for record in read_records(batch, header):
            data = not header.is_control
            records.append(
                DumpedRecord(
                    record.offset,
                    record.timestamp,
                    record.key.decode() if data and record.key is not None else None,
                    record.value.decode() if data and record.value is not None else None,
                    tuple(key for key, _ in record.headers),
                    marker,
                )
            )
    return records


def write_all(node: OttlaNode) -> None:
    for case in CASES:
        log = node.store.create(case.topic, 0, uuid.uuid4().bytes, configs(case.topic))
        log.assign_epoch(0)
        case.write(node, log)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def judged(request: pytest.FixtureRequest, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Written and stopped; or written, killed, torn at the end, recovered and stopped."""
    data = tmp_path_factory.mktemp(request.param) / "data"
    node = OttlaNode(data, configs)
    write_all(node)
    if request.param == "killed":
        node.kill()
        for topic in CRASHED:
            path = segments(data / f"{topic}-0")[-1]
            path.write_bytes(path.read_bytes() + path.read_bytes()[:70])
        node = OttlaNode(data, configs)
    assert node.store.offline == {}
    node.commit()
    served_by_name = {log.name: served(log) for log in node.store.logs.values()}
    node.stop()
    files = [path for case in CASES for path in readable_files(data / f"{case.topic}-0")]
    return Judged(data, served_by_name, dump(kafka_jars, files))


@pytest.fixture(params=[case.topic for case in CASES])
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.param}-0"


def test_nothing_is_wrong(judged: Judged, kafka_jars: Path) -> None:
    plain = [judged.data / f"{case.topic}-0" for case in CASES if case.topic not in COMPACTED]
    assert complaints(kafka_jars, plain) == []
    assert complaints(kafka_jars, [judged.data / f"{topic}-0" for topic in COMPACTED], compacted=True) == []


def test_tool_reads_what_ottla_serves(judged: Judged, name: str) -> None:
    """The log starts where the first segment does for the tool, and at the log start offset for a consumer."""
    expected = judged.served[name]
    assert expected
    read = [
        record
        for path in segments(judged.data / name)
        for record in judged.dumps[path].records
        if record.offset >= expected[0].offset
    ]
    assert read == expected


def test_every_long_log_has_indexes(judged: Judged, name: str) -> None:
    """An index without entries is never wrong; these must have some."""
    logs = segments(judged.data / name)
    if sum(path.stat().st_size for path in logs) > 10 * 512:
        assert any(judged.dumps[path.with_suffix(".index")].lines for path in logs)
    assert any(judged.dumps[path.with_suffix(".timeindex")].lines for path in logs)


def test_aborted_transactions_are_those_of_the_markers(judged: Judged) -> None:
    """The tool's reading of the transaction indexes against its reading of the log."""
    for name in ("transactions-0", "truncated-0"):
        indexed = [
            int(line["lastOffset"])
            for path in segments(judged.data / name)
            if path.with_suffix(".txnindex") in judged.dumps
            for line in judged.dumps[path.with_suffix(".txnindex")].lines
        ]
        aborts = [record.offset for record in judged.served[name] if record.marker == "ABORT"]
        assert indexed == aborts
        assert aborts


def test_producers_are_read_from_the_last_snapshot(judged: Judged) -> None:
    """As many as wrote, with the sequences and the open transaction that Ottla knows."""
    for name, open_transactions in (("idempotent-0", 0), ("transactions-0", 1)):
        path = max((judged.data / name).glob("*.snapshot"))
        ours = {producer.producer_id: producer for producer in decode_snapshot(path.read_bytes())}
        lines = judged.dumps[path].lines
        assert {int(line["producerId"]) for line in lines} == set(ours)
        for line in lines:
            producer = ours[int(line["producerId"])]
            assert int(line["lastSequence"]) == producer.last_sequence
            assert int(line["lastOffset"]) == producer.last_data_offset
        assert sum(line["currentTxnFirstOffset"] != "OptionalLong.empty" for line in lines) == open_transactions


def test_recovered_node_opens_clean(judged: Judged, tmp_path: Path) -> None:
    """After the stop nothing is left to recover: the same records at once."""
    shutil.copytree(judged.data, tmp_path / "data")
    with running_ottla(tmp_path / "data", configs) as node:
        assert {log.name: served(log) for log in node.store.logs.values()} == judged.served
