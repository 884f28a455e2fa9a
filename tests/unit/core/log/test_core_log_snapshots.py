"""Producer snapshots: Kafka's bytes, and no wrong bit goes unnoticed."""

import pytest
from core_log_samples import NOW
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.producers import Producer, RememberedBatch
from ottla.core.log.snapshots import BadProducerSnapshot, decode_snapshot, encode_snapshot

int16, int32, int64 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)


@st.composite
def producers(draw: st.DrawFn) -> Producer:
    timestamp = draw(int64)
    producer = Producer(draw(int64), draw(int16), draw(int32), timestamp, draw(st.none() | int64))
    if draw(st.booleans()):
        producer.batches.append(RememberedBatch(draw(int32), draw(int64), draw(int32), timestamp))
    return producer


@given(st.lists(producers(), max_size=4))
def test_producers_come_back_as_written(known: list[Producer]) -> None:
    assert decode_snapshot(encode_snapshot(known)) == known


def test_of_the_remembered_batches_the_last_is_kept() -> None:
    """So Kafka does: after a restart only that one is still known to be a duplicate."""
    producer = Producer(1, 0, last_timestamp=NOW)
    producer.batches.extend([RememberedBatch(0, 0, 0, NOW), RememberedBatch(3, 3, 2, NOW)])
    (read,) = decode_snapshot(encode_snapshot([producer]))
    assert list(read.batches) == [RememberedBatch(3, 3, 2, NOW)]


def test_every_flipped_bit_is_noticed() -> None:
    """Otherwise a producer's sequence, or the first offset of its transaction, would be believed wrongly."""
    data = encode_snapshot([Producer(1, 2, 3, NOW, 5)])
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadProducerSnapshot):
            decode_snapshot(bytes(flipped))


def test_every_cut_is_noticed() -> None:
    data = encode_snapshot([Producer(1, 2, 3, NOW, 5)])
    for length in range(len(data)):
        with pytest.raises(BadProducerSnapshot):
            decode_snapshot(data[:length])
