"""The checkers' own reading of record batches."""

import pytest

from ottla import kernel
from ottla.sim.records import (
    CODECS,
    CONTROL,
    TRANSACTIONAL,
    BadBatch,
    DecodedRecord,
    decode,
    decode_all,
    encode,
    encode_marker,
)

RECORDS = [
    DecodedRecord(0, 1_000, b"key", b"value"),
    DecodedRecord(1, 990, None, b"", (("name", b"x"), ("empty", None))),
    DecodedRecord(2, 1_070_000, b"", None),
    DecodedRecord(3, 1_000, b"k" * 300, b"v" * 5_000),
]


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_encoded_is_decoded(codec):
    data = encode(RECORDS, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9, attributes=TRANSACTIONAL)
    [batch] = decode_all(data + data[:-1])
    assert list(batch.records) == RECORDS
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_offset) == (5, 1, 9, 3)
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.max_timestamp == 1_070_000


@pytest.mark.parametrize("codec", CODECS)
def test_the_kernel_reads_it_the_same_way(codec):
    """Two readings of the format, written apart, agree."""
    header = kernel.read_header(encode(RECORDS, codec=codec))
    assert (header.codec, header.last_offset_delta, header.count) == (codec, 3, 4)


def test_a_marker_says_how_the_transaction_ended():
    for commit in (True, False):
        batch = decode(encode_marker(commit, 7, 2, 5, 1_000))
        assert batch.is_commit is commit
        assert batch.attributes == TRANSACTIONAL | CONTROL


def test_every_flipped_bit_under_the_crc_is_noticed():
    data = encode(RECORDS[:2])
    for bit in range(8 * 17, 8 * len(data)):  # from the CRC itself to the end
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBatch):
            decode(bytes(spoiled))


def test_a_length_that_cannot_be_is_refused():
    data = bytearray(encode(RECORDS[:1]))
    data[8:12] = (3).to_bytes(4, "big")
    with pytest.raises(BadBatch, match="claims 3 bytes"):
        list(decode_all(bytes(data)))
