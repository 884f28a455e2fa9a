"""The small decisions of the client: addresses, partitions, versions, frames, waits."""

import ast
from pathlib import Path
from random import Random

import pytest

from ottla import rpc
from ottla.client import core
from ottla.client.core.cluster import NO_NODE, Cluster
from ottla.client.core.names import TopicPartition
from ottla.client.core.partitioner import StickyPartition, partition_of_key
from ottla.kernel import murmur2
from ottla.rpc.addresses import Address
from ottla.rpc.errors import ADVICE, BadAnswer, Declined
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import Error


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


PURE_RPC = tuple(f"ottla.rpc.{name}" for name in ("addresses", "backoff", "chance", "errors", "frames", "versions"))


def test_core_imports_nothing_that_touches_the_world() -> None:
    """So that whatever it decides can be tried under any clock and any luck."""
    allowed = {"collections", "dataclasses", "enum", "ottla", "struct", "typing"}
    beyond = []
    shared = [Path(rpc.__file__).parent / f"{name.rpartition('.')[2]}.py" for name in PURE_RPC]
    for path in [*sorted(Path(core.__file__).parent.glob("*.py")), *shared]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            pure = ("ottla.client.core", "ottla.wire", "ottla.kernel", *PURE_RPC)
            beyond += [
                f"{path.name}: {name}"
                for name in names
                if name.split(".")[0] not in allowed or (name.startswith("ottla") and not name.startswith(pure))
            ]
    assert beyond == []
