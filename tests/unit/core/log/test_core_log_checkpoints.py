"""The small text files: they come back as they were written, and nothing else passes for one."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.checkpoints import (
    BadCheckpoint,
    EpochStart,
    MetaProperties,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
)

offsets = st.integers(0, 2**63 - 1)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)

ONE = bytes(15) + b"\x01"


@given(st.dictionaries(st.tuples(topics, st.integers(0, 2**31 - 1)), offsets, max_size=5))
def test_offsets_come_back_as_written(known: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(known)) == known


def test_offsets_are_written_as_kafka_writes_them() -> None:
    assert encode_offsets({("b", 1): 7, ("a", 0): 5}) == b"0\n2\na 0 5\nb 1 7\n"
    assert encode_offsets({}) == b"0\n0\n"


@given(st.lists(st.tuples(st.integers(0, 9), offsets), max_size=5))
def test_epochs_come_back_as_written(steps: list[tuple[int, int]]) -> None:
    epochs = [EpochStart(number * 10 + epoch, start) for number, (epoch, start) in enumerate(steps)]
    epochs = [entry for n, entry in enumerate(epochs) if all(e.start_offset <= entry.start_offset for e in epochs[:n])]
    assert decode_epochs(encode_epochs(epochs)) == epochs


MALFORMED_ROWS = [
    b"",
    b"0",
    b"0\n",
    b"0\n0",
    b"1\n0\n",
    b"x\n0\n",
    b"0\nx\n",
    b"0\n-1\n",
    b"0\n1\n",
    b"0\n0\nt 0 1\n",
    b"0\n1\nt 0 1\nt 1 1\n",
    b"0\n1\nt 0 1",
    b"0\n1\nt 0\n",
    b"0\n1\nt 0 1 2\n",
    b"0\n1\nt x 1\n",
    b"0\n1\nt 0 x\n",
    b"0\n1\nt 0 1.5\n",
    b"0\n1\nt 0 --1\n",
    b"0\n1\nt 0 \xd9\xa3\n",
    b"0\n1\nt 0 " + b"9" * 5000 + b"\n",
    b"\xff\xfe",
    bytes(40),
]


@pytest.mark.parametrize("text", MALFORMED_ROWS)
def test_malformed_offsets_are_refused(text: bytes) -> None:
    """A half-written checkpoint must not be taken for one that knows fewer partitions."""
    with pytest.raises(BadCheckpoint):
        decode_offsets(text)


@pytest.mark.parametrize("length", range(len(b"0\n2\na 0 5\nb 1 7\n")))
def test_a_checkpoint_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(BadCheckpoint):
        decode_offsets(b"0\n2\na 0 5\nb 1 7\n"[:length])


@pytest.mark.parametrize(
    "text",
    [
        b"0\n1\n5\n",
        b"0\n1\n5 x\n",
        b"0\n1\n5 6 7\n",
        b"0\n2\n5 10\n5 11\n",
        b"0\n2\n5 10\n4 11\n",
        b"0\n2\n5 10\n6 9\n",
    ],
)
def test_epochs_that_do_not_grow_together_are_refused(text: bytes) -> None:
    """Truncation follows these entries: a wrong one would cut off committed records."""
    with pytest.raises(BadCheckpoint):
        decode_epochs(text)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_checkpoint_or_bad_checkpoint(data: bytes) -> None:
    for decode in (decode_offsets, decode_epochs, decode_partition_metadata, MetaProperties.decode):
        with contextlib.suppress(BadCheckpoint):
            decode(data)


@given(st.binary(min_size=16, max_size=16))
def test_an_id_comes_back_as_written(value: bytes) -> None:
    assert decode_partition_metadata(encode_partition_metadata(value)) == value


def test_an_id_is_written_as_kafka_writes_it() -> None:
    assert encode_partition_metadata(ONE) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "A", "A" * 21, "A" * 23, "A" * 21 + "/", "A" * 21 + "=", "é" * 22])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(BadCheckpoint):
        decode_partition_metadata(f"version: 0\ntopic_id: {text}".encode())


@pytest.mark.parametrize("text", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\n", b"version: 0"])
def test_malformed_partition_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        decode_partition_metadata(text)


@given(st.from_regex(r"[A-Za-z0-9_-]{22}", fullmatch=True), st.integers(0, 2**31 - 1), st.none() | st.just(ONE))
def test_meta_properties_come_back_as_written(cluster_id: str, node_id: int, directory_id: bytes | None) -> None:
    meta = MetaProperties(cluster_id, node_id, directory_id)
    assert MetaProperties.decode(meta.encode()) == meta


def test_meta_properties_of_kafka_are_understood() -> None:
    """java.util.Properties escapes, comments, dates and blanks; an old broker wrote broker.id."""
    text = b"#\n#Sun Nov 15 2026\ncluster.id=a\\=b\\:c\nbroker.id = 3\nversion=0\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    assert MetaProperties.decode(text) == MetaProperties("a=b:c", 3, ONE)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version=2\ncluster.id=c\nnode.id=1\n",
        b"version=1\ncluster.id=c\n",
        b"version=1\nnode.id=1\n",
        b"version=1\ncluster.id=c\nnode.id=one\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
        b"version=1\ncluster.id=\\u12\nnode.id=1\n",
    ],
)
def test_malformed_meta_properties_are_refused(text: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        MetaProperties.decode(text)


def test_the_shutdown_marker_is_what_kafka_parses() -> None:
    assert encode_clean_shutdown(5) == b'{"version":0,"brokerEpoch":5}'
