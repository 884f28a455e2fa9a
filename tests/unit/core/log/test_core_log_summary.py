"""The summary of a log's segments as bytes: what is not whole is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.summary import (
    BLOCK_SIZE,
    HEADER_SIZE,
    BadSummary,
    SummaryEntry,
    decode_summary,
    encode_summary,
)


def entries(count: int) -> list[SummaryEntry]:
    return [SummaryEntry(10 * n, 5 * n, 1_000 + n, 5 * n, n - 1) for n in range(count)]


@pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
def test_what_was_written_is_read(count: int) -> None:
    assert decode_summary(encode_summary(77, 3, entries(count))) == ((77, 3, 10 * count - 10, count), entries(count))


@given(st.integers(0, len(encode_summary(77, 3, entries(120))) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    """A bound that is too low would hide records from who looks up by time."""
    data = bytearray(encode_summary(77, 3, entries(120)))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadSummary):
        decode_summary(bytes(data))


@pytest.mark.parametrize("size", [0, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + BLOCK_SIZE])
def test_a_torn_file_is_refused(size: int) -> None:
    with pytest.raises(BadSummary):
        decode_summary(encode_summary(77, 3, entries(120))[:size])
