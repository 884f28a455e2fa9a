"""The small decisions of the client: addresses, partitions, versions, frames, waits."""

import ast
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import core
from ottla.client.core.addresses import Address, parse_bootstrap
from ottla.client.core.backoff import Backoff
from ottla.client.core.cluster import NO_NODE, Cluster
from ottla.client.core.errors import ADVICE, BadAnswer, Declined, error_of
from ottla.client.core.frames import FrameReader
from ottla.client.core.names import TopicPartition
from ottla.client.core.partitioner import StickyPartition, partition_of_key
from ottla.client.core.versions import NoCommonVersion, Versions, ask_again_with, decode_api_versions
from ottla.kernel import murmur2
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import Error
from ottla.wire.frame import BadFrame, encode_response


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", [Address("h", 1)]),
        ("h", [Address("h", 9092)]),
        (" a:1 , b:2,a:1,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:7", [Address("::1", 7)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_as_people_write_them(text: str, expected: list[Address]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", ":1", "h:", "h:0", "h:65536", "h:x", "::1:9092", "h:²"])
def test_address_that_is_none_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|port|brackets"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("key", "hash_of_java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_java(key: bytes, hash_of_java: int) -> None:
    """Otherwise records of one key would lie in two partitions when two kinds of clients write."""
    assert murmur2(key) == hash_of_java & 0xFFFF_FFFF
    assert partition_of_key(key, 7) == (hash_of_java & 0x7FFF_FFFF) % 7


def test_records_without_key_stay_until_a_batch_is_full_then_move() -> None:
    sticky = StickyPartition(100, Random(1))
    first = [sticky.choose([0, 1, 2], 50) for _ in range(2)]
    assert first[0] == first[1]
    assert sticky.choose([0, 1, 2], 50) != first[0]


def test_records_without_key_leave_a_partition_that_lost_its_leader() -> None:
    sticky = StickyPartition(1_000, Random(1))
    first = sticky.choose([0, 1], 1)
    assert sticky.choose([1 - first], 1) == 1 - first


def test_records_without_key_are_spread_evenly() -> None:
    sticky = StickyPartition(100, Random(1))
    counts = [0, 0, 0]
    for _ in range(30_000):
        counts[sticky.choose([0, 1, 2], 10)] += 1
    assert min(counts) > 9_000


def test_waits_double_up_to_a_limit_and_are_spread() -> None:
    backoff, chance = Backoff(100, 1_000), Random(1)
    assert backoff.wait_ms(0, chance) == 0
    for failures, planned in [(1, 100), (2, 200), (4, 800), (5, 1_000), (60, 1_000)]:
        waits = {backoff.wait_ms(failures, chance) for _ in range(200)}
        assert planned * 8 // 10 <= min(waits) < planned < max(waits) <= planned * 12 // 10


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=8), st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader, seen = FrameReader(1_000), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += [bytes(frame) for frame in reader.feed(stream[start:end])]
    assert seen == frames


@pytest.mark.parametrize("size", [-1, 0, 3, 1_001, int.from_bytes(b"HTTP", "big")])
def test_size_that_no_frame_has_is_refused_before_its_bytes_come(size: int) -> None:
    with pytest.raises(BadFrame, match=str(size)):
        FrameReader(1_000).feed(size.to_bytes(4, "big", signed=True))


def _versions(first: int, last: int) -> Versions:
    keys = [ApiVersion(api_key=1, min_version=first, max_version=last)]
    return Versions(ApiVersionsResponse(error_code=0, api_keys=keys))


def test_newest_common_version_is_chosen() -> None:
    assert _versions(0, 99).choose(FetchRequest) == 18
    assert _versions(0, 11).choose(FetchRequest) == 11
    assert _versions(0, 99).choose(FetchRequest, at_most=12) == 12


@pytest.mark.parametrize(("first", "last"), [(0, 3), (19, 30)])
def test_no_common_version_says_both_ranges(first: int, last: int) -> None:
    with pytest.raises(NoCommonVersion) as none:
        _versions(first, last).choose(FetchRequest)
    assert (none.value.ours, none.value.theirs) == ((4, 18), (first, last))


def test_server_that_knows_only_an_older_api_versions_is_understood() -> None:
    """KIP-511: it answers in the form of version 0, whatever it was asked in."""
    told = ApiVersionsResponse(
        error_code=Error.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    frame = b"".join(encode_response(told, 0, 5))[4:]
    answer = decode_api_versions(4, frame)
    assert (answer.error_code, ask_again_with(answer)) == (Error.UNSUPPORTED_VERSION, 2)
    assert ask_again_with(ApiVersionsResponse(error_code=35, api_keys=[])) == 0


def test_answer_in_the_version_asked_is_understood() -> None:
    told = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=4, max_version=18)])
    assert decode_api_versions(4, b"".join(encode_response(told, 4, 5))[4:]) == told


def _told(epoch: int, leader: int, topic_id: bytes = b"1" * 16) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=node) for node in (2, 1)],
        topics=[MetadataResponseTopic(error_code=0, name="t", topic_id=topic_id, partitions=[partition])],
    )


def test_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    """A broker that lags would otherwise send the client back to a deposed leader (KIP-320)."""
    cluster = Cluster()
    cluster.update(_told(5, 2), complete=False)
    cluster.update(_told(4, 1), complete=False)
    assert cluster.leader(TopicPartition("t", 0)) == 2
    cluster.update(_told(6, 1), complete=False)
    assert cluster.leader(TopicPartition("t", 0)) == 1


def test_topic_made_anew_starts_its_epochs_anew() -> None:
    cluster = Cluster()
    cluster.update(_told(5, 2), complete=False)
    cluster.update(_told(0, 1, b"2" * 16), complete=False)
    assert cluster.leader(TopicPartition("t", 0)) == 1
    assert cluster.name_of(b"2" * 16) == "t"
    assert cluster.name_of(b"1" * 16) is None


def test_leader_that_is_no_broker_of_the_cluster_is_none() -> None:
    cluster = Cluster()
    cluster.update(_told(5, 3), complete=False)
    assert cluster.leader(TopicPartition("t", 0)) == NO_NODE
    assert cluster.leader(TopicPartition("t", 1)) == NO_NODE
    assert cluster.leader(TopicPartition("u", 0)) == NO_NODE


def test_topic_that_all_topics_leave_out_is_gone() -> None:
    cluster = Cluster()
    cluster.update(_told(5, 2), complete=False)
    cluster.update(MetadataResponse(brokers=[], topics=[]), complete=False)
    assert list(cluster.topics) == ["t"]
    cluster.update(MetadataResponse(brokers=[], topics=[]), complete=True)
    assert cluster.topics == {}


def test_errors_name_the_broker_the_topic_and_what_to_do() -> None:
    error = Declined(Error.TOPIC_ALREADY_EXISTS, broker=Address("h", 1), subject="topic orders", text="Exists.")
    assert (
        str(error) == f"topic orders, broker h:1: Exists (TOPIC_ALREADY_EXISTS). {ADVICE[Error.TOPIC_ALREADY_EXISTS]}"
    )
    assert not error.retriable
    assert "TLS" in BadAnswer(Address("h", 1), "x").advice


def test_error_code_of_a_later_kafka_is_an_error_all_the_same() -> None:
    assert error_of(9_999) is Error.UNKNOWN_SERVER_ERROR
    assert error_of(3) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_core_imports_nothing_that_touches_the_world() -> None:
    """So that whatever it decides can be tried under any clock and any luck."""
    allowed = {"collections", "dataclasses", "enum", "ottla", "struct", "typing"}
    beyond = []
    for path in sorted(Path(core.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            pure = ("ottla.client.core", "ottla.wire", "ottla.kernel")
            beyond += [
                f"{path.name}: {name}"
                for name in names
                if name.split(".")[0] not in allowed or (name.startswith("ottla") and not name.startswith(pure))
            ]
    assert beyond == []
