"""Batches that are small and want to be large, and batches that are wrong: each gets Kafka's error, and nothing else
happens."""

from struct import pack_into

import pytest
from nodes.ottla_node import MIB, OttlaNode
from nodes.topics import Server
from nodes.wire import Wire, batch_of

from ottla.kernel import Codec, Record, batch_crc, build_batch
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.errors import Error

pytestmark = pytest.mark.usefixtures("honest")

BOMB_BYTES = 200 * MIB
T = 1_700_000_000_000


def bomb(codec: Codec) -> bytes:
    """One record of zeros, and little is left of them."""
    return build_batch([Record(0, T, None, bytes(BOMB_BYTES))], codec=codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name.lower())
def test_decompression_bomb_is_refused(node: OttlaNode, codec: Codec) -> None:
    """These compress zeros so well that the batch is of an allowed size."""
    batch = bomb(codec)
    assert len(batch) < MIB
    with Wire(node.bootstrap) as wire:
        answer = wire.produce("target", batch)
        assert answer.error_code in (Error.CORRUPT_MESSAGE, Error.INVALID_RECORD, Error.MESSAGE_TOO_LARGE)
        assert wire.produce("target", batch_of([b"v"])).error_code == 0, "the connection goes on"


def test_batch_over_the_limit_is_refused_before_it_is_opened(node: OttlaNode) -> None:
    with Wire(node.bootstrap) as wire:
        assert wire.produce("target", bomb(Codec.SNAPPY)).error_code == Error.MESSAGE_TOO_LARGE


def sealed(batch: bytearray) -> bytes:
    """With the checksum of what it holds now."""
    pack_into(">I", batch, 17, batch_crc(batch, 0, len(batch)))
    return bytes(batch)


def with_count(count: int) -> bytes:
    batch = bytearray(batch_of([b"v"], timestamp=T))
    pack_into(">i", batch, 23, count - 1)  # The last offset, relative to the first.
    pack_into(">i", batch, 57, count)
    return sealed(batch)


def with_magic(magic: int) -> bytes:
    batch = bytearray(batch_of([b"v"], timestamp=T))
    batch[16] = magic
    return sealed(batch)


def with_wrong_crc() -> bytes:
    batch = bytearray(batch_of([b"v"], timestamp=T))
    batch[-1] ^= 1
    return bytes(batch)


def with_garbage_inside(codec: Codec) -> bytes:
    batch = bytearray(batch_of([b"v" * 50], timestamp=T))
    batch[22] |= int(codec)
    return sealed(batch)


WRONG = {
    "no bytes": b"",
    "half a batch": batch_of([b"v"])[:30],
    "two batches": batch_of([b"v"]) * 2,
    "bytes after the batch": batch_of([b"v"]) + b"more",
    "no records": with_count(0),
    "two thousand million records": with_count(2**31 - 1),
    "negative count": with_count(-1),
    "magic 0": with_magic(0),
    "magic 3": with_magic(3),
    "checksum": with_wrong_crc(),
    **{f"{codec.name.lower()} of garbage": with_garbage_inside(codec) for codec in Codec if codec is not Codec.NONE},
}


NOT_YET = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER)
"""Of a topic that is being made."""
KNOWN_DIFFERENCES = {
    # Kafka takes the batch and drops what follows it: bytes that the sender believes written.
    "bytes after the batch": (Error.INVALID_RECORD, Error.NONE),
    # Kafka did not foresee it, so its clients may try again for ever.
    **{name: (Error.INVALID_RECORD, Error.UNKNOWN_SERVER_ERROR) for name in WRONG if "garbage" in name},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_batch_gets_the_error_that_kafka_gives(node: OttlaNode, kafka: Server, name: str) -> None:
    """And the connection goes on, and nothing of the batch was written."""
    with Wire(node.bootstrap) as wire:
        before = wire.produce("target", batch_of([b"v"])).base_offset
        code = Error(wire.produce("target", WRONG[name]).error_code)
        assert wire.produce("target", batch_of([b"v"])).base_offset == before + 1
    theirs = code_of_kafka(kafka, WRONG[name])
    assert (code, theirs) == KNOWN_DIFFERENCES.get(name, (theirs, theirs))
    assert code is not Error.NONE


def code_of_kafka(kafka: Server, batch: bytes) -> Error:
    with Wire(kafka.bootstrap) as wire:
        wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="target")]), 12)  # Which makes the topic.
        while (code := Error(wire.produce("target", batch).error_code)) in NOT_YET:
            pass
        return code
