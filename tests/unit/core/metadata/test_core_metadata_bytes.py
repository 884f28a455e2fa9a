"""Snapshots, records and the quorum's state as bytes: whole or refused."""

from itertools import pairwise

import pytest
from core_metadata_samples import Cluster, numbered, state, topic

from ottla.core.metadata.control import (
    BadQuorumState,
    QuorumState,
    Voter,
    decode_quorum_state,
    encode_quorum_state,
)
from ottla.core.metadata.features import UnsupportedCluster, bootstrap_records, check_supported
from ottla.core.metadata.framing import RECORD_CLASSES, BadMetadataRecord, decode_record, encode_record
from ottla.core.metadata.image import Image
from ottla.core.metadata.snapshot import BadMetadataSnapshot, SnapshotId, decode_snapshot, encode_snapshot, records_of
from ottla.kernel import scan
from ottla.wire.records.metadata import FeatureLevelRecord, NoOpRecord, PartitionRecord, RegisterBrokerRecord

VOTERS = (Voter(1, numbered(1, 1), (("CONTROLLER", "127.0.0.1", 9093),)),)


def _snapshot() -> tuple[Image, bytes]:
    cluster = Cluster()
    cluster.create(topic("t", 2_000, configs={"retention.ms": "5"}))
    contents = list(records_of(cluster.image))
    batches = encode_snapshot(contents, level=30, epoch=4, now_ms=99, last_log_timestamp=88, voters=VOTERS)
    return cluster.image, b"".join(batches)


def test_snapshot_gives_back_image_and_voters() -> None:
    image, data = _snapshot()
    snapshot = decode_snapshot(data)
    assert (snapshot.last_log_timestamp, snapshot.voters) == (88, VOTERS)
    again = Image()
    for record in snapshot.records:
        again.replay(record)
    assert state(again) == state(image)


def test_snapshot_is_one_run_of_offsets_in_batches_of_bounded_size() -> None:
    headers = scan(_snapshot()[1]).headers
    assert headers[0].base_offset == 0
    assert all(after.base_offset == before.next_offset for before, after in pairwise(headers))
    assert max(header.count for header in headers) <= 1024
    assert {header.leader_epoch for header in headers} == {4}
    assert [headers[0].is_control, headers[-1].is_control] == [True, True]


def test_cut_snapshot_is_refused_wherever_it_is_cut() -> None:
    """Also between two batches, where only the missing footer tells."""
    data = _snapshot()[1]
    ends, end = [], 0
    for header in scan(data).headers:
        end += header.size
        ends.append(end)
    for size in [0, 1, 70, *ends[:-1], len(data) - 1]:
        with pytest.raises(BadMetadataSnapshot):
            decode_snapshot(data[:size])


def test_flipped_bit_in_a_snapshot_is_found() -> None:
    data = _snapshot()[1]
    for at in range(61, len(data), len(data) // 97):
        damaged = bytearray(data)
        damaged[at] ^= 4
        try:
            decode_snapshot(bytes(damaged))
        except BadMetadataSnapshot:
            continue
        # Only a base offset or an epoch lies outside the checksums.
        header_starts = [sum(one.size for one in scan(data).headers[:index]) for index in range(9)]
        assert any(start <= at < start + 17 for start in header_starts)


def test_records_after_the_footer_are_refused() -> None:
    data = _snapshot()[1]
    with pytest.raises(BadMetadataSnapshot):
        decode_snapshot(data + data)


def test_snapshot_names() -> None:
    assert SnapshotId(42, 7).file_name == "00000000000000000042-0000000007.checkpoint"
    assert SnapshotId.parse("00000000000000000042-0000000007.checkpoint") == (42, 7)
    for other in (
        "00000000000000000042-0000000007.checkpoint.part",
        "bootstrap.checkpoint",
        "00000000000000000042.log",
    ):
        assert SnapshotId.parse(other) is None


# Records.


def test_record_is_framed_as_kafka_does() -> None:
    """The bytes of a record that Kafka wrote."""
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_record(record, 30) == bytes([1, 12, 0, 17]) + b"metadata.version" + bytes([0, 30, 0])
    assert encode_record(NoOpRecord(), 30) == bytes([1, 20, 0, 0])
    assert len(RECORD_CLASSES) == 26


@pytest.mark.parametrize(
    "value", [None, b"", b"\x01", b"\x02\x0c\x00", b"\x01\x63\x00\x00", b"\x01\x0c\x09\x00", b"\x80" * 9]
)
def test_bytes_that_are_no_record_are_refused(value: bytes | None) -> None:
    with pytest.raises(BadMetadataRecord):
        decode_record(value)


@pytest.mark.parametrize(("level", "versions"), [(7, (0, 1)), (14, (0, 2)), (17, (1, 3)), (23, (2, 3)), (30, (2, 4))])
def test_record_has_the_version_that_the_cluster_understands(level: int, versions: tuple[int, int]) -> None:
    partition = PartitionRecord(
        partition_id=0, topic_id=bytes(16), replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[]
    )
    broker = RegisterBrokerRecord(
        broker_id=1, incarnation_id=bytes(16), broker_epoch=1, end_points=[], features=[], rack=None
    )
    assert (encode_record(partition, level)[2], encode_record(broker, level)[2]) == versions


# The quorum's memory.


@pytest.mark.parametrize("static", [None, VOTERS])
def test_quorum_state_is_remembered(static: tuple[Voter, ...] | None) -> None:
    told = QuorumState(5, leader_id=1, voted_id=-1)
    assert decode_quorum_state(encode_quorum_state(told, static)) == told


def test_quorum_state_is_written_as_kafka_writes_it() -> None:
    static = encode_quorum_state(QuorumState(1, leader_id=1), VOTERS)
    assert static == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert encode_quorum_state(QuorumState(1, leader_id=1), None) == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"data_version":2,"leaderEpoch":1}', b'{"data_version":1}']
)
def test_quorum_state_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BadQuorumState):
        decode_quorum_state(data)


@pytest.mark.parametrize(("name", "level"), [("metadata.version", 31), ("metadata.version", 6), ("new.version", 1)])
def test_cluster_of_another_release_is_not_opened(name: str, level: int) -> None:
    image = Image()
    for record in [*bootstrap_records(), FeatureLevelRecord(name=name, feature_level=level)]:
        image.replay(record)
    with pytest.raises(UnsupportedCluster):
        check_supported(image)
