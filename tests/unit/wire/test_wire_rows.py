"""Arrays that are read column by column hold what they would hold if they were read one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.codec import Malformed, decode, encode
from ottla.wire.rows import ColumnarArray, column

VERSIONS = OffsetCommitRequest.__message__.versions  # type: ignore[attr-defined]


def partition(number: int, metadata: str | None = "") -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number, committed_offset=number << 33, committed_leader_epoch=-1, committed_metadata=metadata
    )


def commit(partitions: list[OffsetCommitRequestPartition]) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id="g", member_id="", topics=[OffsetCommitRequestTopic(partitions=partitions)])


def read(partitions: list[OffsetCommitRequestPartition], version: int) -> Any:
    return decode(OffsetCommitRequest, version, encode(commit(partitions), version)).topics[0].partitions


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", ["", None])
@pytest.mark.parametrize("count", [8, 255, 256, 257, 600])
def test_equal_elements_are_rows_whatever_their_number(version: int, metadata: str | None, count: int) -> None:
    given_ones = [partition(number, metadata) for number in range(count)]
    told = read(given_ones, version)
    assert isinstance(told, ColumnarArray)
    assert list(column(told, "partition_index")) == list(range(count))
    assert list(column(told, "committed_metadata")) == [metadata] * count
    assert len(told) == count
    assert told == given_ones
    assert (told[3], told[-2:]) == (given_ones[3], given_ones[-2:])


@given(st.lists(st.sampled_from(["", None, "m", "\N{SNOWMAN}" * 60]), max_size=20), st.sampled_from(VERSIONS))
def test_whatever_the_strings_are_what_was_written_is_read(metadata: list[str | None], version: int) -> None:
    """An element with a string moves those after it: the columns would be read from the wrong places."""
    written = [partition(number, text) for number, text in enumerate(metadata)]
    told = read(written, version)
    assert list(told) == written
    assert list(column(told, "committed_offset")) == [one.committed_offset for one in written]


@pytest.mark.parametrize("version", [7, 8])
def test_rows_that_are_cut_short_are_malformed(version: int) -> None:
    whole = encode(commit([partition(number) for number in range(20)]), version)
    for cut in range(1, 40):
        with pytest.raises(Malformed):
            decode(OffsetCommitRequest, version, whole[:-cut])


def test_tagged_fields_of_an_element_are_skipped() -> None:
    """A newer client may send some; they end the columns."""
    whole = encode(commit([partition(number) for number in range(8)]), 8)
    with_tag = whole[:-3] + b"\1\5\2xy" + whole[-2:]  # The last partition's; then come the topic's and the request's.
    told = decode(OffsetCommitRequest, 8, with_tag).topics[0].partitions
    assert not isinstance(told, ColumnarArray)
    assert told == [partition(number) for number in range(8)]


def test_rows_are_encoded_as_their_elements_in_every_version() -> None:
    """Their bytes are kept; those of one version are not another's."""
    rows: ColumnarArray[OffsetCommitResponsePartition] = ColumnarArray(
        OffsetCommitResponsePartition, 3, {"partition_index": (5, 6, 7), "error_code": (0, 3, 0)}
    )
    for _ in range(2):
        for version in VERSIONS:
            kept, plain = (
                OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=partitions)])
                for partitions in (rows, list(rows))
            )
            assert encode(kept, version) == encode(plain, version)
