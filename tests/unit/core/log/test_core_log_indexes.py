"""Index entries as bytes, and the search in them."""

from bisect import bisect_right
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY_SIZE,
    AbortedTxn,
    BadIndex,
    count_at_most,
    decode_aborted,
    overlapping,
)

sorted_entries = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20).map(
    lambda pairs: list(zip(*(sorted(column) for column in zip(*pairs, strict=True)), strict=True)) if pairs else []
)


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
@given(entries=sorted_entries, value=st.integers(-1, 51), column=st.integers(0, 1))
def test_count_at_most_is_bisection(entry, entries, value, column) -> None:  # type: ignore[no-untyped-def]
    packed = b"".join(entry.pack(*fields) for fields in entries)
    assert count_at_most(packed, entry, column, value) == bisect_right([fields[column] for fields in entries], value)


def test_entries_have_kafkas_sizes() -> None:
    assert (OFFSET_ENTRY.size, TIME_ENTRY.size, TXN_ENTRY_SIZE) == (8, 12, 34)
    assert AbortedTxn(1, 2, 3, 4).encode() == pack(">hqqqq", 0, 1, 2, 3, 4)


txns = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(1, 9)), max_size=6)


@st.composite
def aborted_lists(draw: st.DrawFn) -> list[AbortedTxn]:
    last, found = -1, []
    for producer_id, back, step in draw(txns):
        last += step
        found.append(AbortedTxn(producer_id, max(last - back, 0), last, last + 1))
    return found


@given(aborted_lists())
def test_aborted_transactions_come_back_as_written(aborted: list[AbortedTxn]) -> None:
    assert decode_aborted(b"".join(txn.encode() for txn in aborted)) == aborted


@given(aborted_lists(), st.integers(0, 60), st.integers(0, 60))
def test_overlapping_are_those_with_an_offset_in_the_range(aborted: list[AbortedTxn], first: int, upper: int) -> None:
    found = list(overlapping(aborted, first, upper))
    for txn in aborted:
        touches = any(first <= offset < upper for offset in range(txn.first_offset, txn.last_offset + 1))
        if upper > first:
            assert (txn in found) == touches


@pytest.mark.parametrize("cut", range(1, TXN_ENTRY_SIZE))
def test_a_torn_transaction_index_is_refused(cut: int) -> None:
    data = AbortedTxn(1, 0, 3, 4).encode() + AbortedTxn(1, 5, 8, 9).encode()
    with pytest.raises(BadIndex):
        decode_aborted(data[:-cut])


def test_a_transaction_index_out_of_order_or_of_another_version_is_refused() -> None:
    with pytest.raises(BadIndex):
        decode_aborted(AbortedTxn(1, 5, 8, 9).encode() + AbortedTxn(1, 0, 8, 9).encode())
    with pytest.raises(BadIndex):
        decode_aborted(pack(">hqqqq", 1, 1, 2, 3, 4))
