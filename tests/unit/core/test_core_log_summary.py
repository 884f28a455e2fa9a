"""The summary of a log's segments as bytes: what is not whole is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.summary import (
    BLOCK_SIZE,
    HEADER_SIZE,
    BadSummary,
    SummaryBlock,
    SummaryEntry,
    decode_header,
    encode_summary,
)


def entries(count: int) -> list[SummaryEntry]:
    return [SummaryEntry(10 * n, 1_000 + n, 5 * n, 5 * n, n - 1) for n in range(count)]


def decode(data: bytes) -> tuple[int, int, list[SummaryEntry]]:
    header = decode_header(data[:HEADER_SIZE], len(data))
    starts = (HEADER_SIZE + number * BLOCK_SIZE for number in range(header.blocks))
    found = [entry for start in starts for entry in SummaryBlock(data[start : start + BLOCK_SIZE])]
    assert len(found) == header.entries
    return header.end_offset, header.leader_epoch, found


@pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
def test_what_was_written_is_read(count: int) -> None:
    assert decode(encode_summary(77, 3, entries(count))) == (77, 3, entries(count))


@given(st.integers(0, len(encode_summary(77, 3, entries(120))) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    """A bound that is too low would hide records from who looks up by time."""
    data = bytearray(encode_summary(77, 3, entries(120)))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadSummary):
        decode(bytes(data))


@pytest.mark.parametrize("size", [0, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + BLOCK_SIZE])
def test_a_torn_file_is_refused(size: int) -> None:
    with pytest.raises(BadSummary):
        decode(encode_summary(77, 3, entries(120))[:size])
