"""Names of files and directories: Kafka's, and read back as they were meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log import files
from ottla.core.log.files import (
    PartitionDirectory,
    SegmentFile,
    directory_name,
    doomed_directory_name,
    file_name,
    parse_directory,
    parse_file,
)

UNIQUE = "0123456789abcdef0123456789abcdef"
kinds = st.sampled_from([*files.SEGMENT_KINDS, files.SNAPSHOT])
suffixes = st.sampled_from(["", files.CLEANED, files.SWAP, files.DELETED])
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)


@given(st.integers(0, 2**63 - 1), kinds, suffixes)
def test_a_file_name_is_read_back(base_offset: int, kind: str, suffix: str) -> None:
    assert parse_file(file_name(base_offset, kind, suffix)) == SegmentFile(base_offset, kind, suffix)


def test_names_are_kafkas() -> None:
    assert file_name(42, files.LOG) == "00000000000000000042.log"
    assert file_name(42, files.TIME_INDEX, files.SWAP) == "00000000000000000042.timeindex.swap"
    assert directory_name("my-topic", 3) == "my-topic-3"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "42.log",
        "00000000000000000042",
        "00000000000000000042.logs",
        "00000000000000000042.log.swap.deleted",
        "x00000000000000000042.log",
        "00000000000000000042.log\n",
        "\u0660" * 20 + ".log",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    """A file that is only similar is not ours to remove."""
    assert parse_file(name) is None


@given(topics, st.integers(0, 2**31 - 1))
def test_a_partition_directory_is_read_back(topic: str, partition: int) -> None:
    assert parse_directory(directory_name(topic, partition)) == PartitionDirectory(topic, partition, "")


@given(topics, st.integers(0, 2**31 - 1), st.sampled_from(["delete", "future", "stray"]))
def test_a_doomed_directory_fits_the_file_system_and_tells_its_fate(topic: str, partition: int, fate: str) -> None:
    """A topic's name may be so long that with the suffix no file system takes it."""
    name = doomed_directory_name(topic, partition, UNIQUE, fate)
    assert len(name) <= 255
    parsed = parse_directory(name)
    assert parsed is not None
    assert topic.startswith(parsed.topic)
    assert (parsed.partition, parsed.fate) == (partition, fate)


@pytest.mark.parametrize(
    "name",
    ["", "topic", "topic-", "-0", "topic-x", "top/ic-0", "topic-0.deadbeef-delete", "topic-\u0663", "lost+found"],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert parse_directory(name) is None
