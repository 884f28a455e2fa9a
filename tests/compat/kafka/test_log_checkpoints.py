"""The small files beside the logs: Kafka's are understood, and ours are Kafka's bytes."""

import json
from pathlib import Path

import pytest
from peers.broker import CLUSTER_ID
from peers.written import Written

from ottla.core.log import checkpoints, files

OFFSETS = (files.RECOVERY_POINTS, files.HIGH_WATERMARKS, files.LOG_STARTS, files.CLEANER_OFFSETS)


def partition_directories(data: Path) -> list[Path]:
    return sorted(path for path in data.iterdir() if path.is_dir())


def test_partition_metadata_is_kafkas(kafka_written: Written) -> None:
    seen = set()
    for directory in partition_directories(kafka_written.clean):
        data = (directory / files.PARTITION_METADATA).read_bytes()
        topic_id = checkpoints.decode_partition_metadata(data)
        assert checkpoints.encode_partition_metadata(topic_id) == data
        seen.add((directory.name.rpartition("-")[0], topic_id))
    assert len({topic_id for _, topic_id in seen}) == len(seen), "a topic has one id, whatever the partition"


def test_leader_epochs_are_kafkas(kafka_written: Written) -> None:
    """Among them empty files, and one whose first epoch was moved up by DeleteRecords."""
    for data_directory in (kafka_written.clean, kafka_written.killed):
        for directory in partition_directories(data_directory):
            data = (directory / files.LEADER_EPOCHS).read_bytes()
            assert checkpoints.encode_epochs(checkpoints.decode_epochs(data)) == data


@pytest.mark.parametrize("name", OFFSETS)
def test_offset_checkpoints_are_kafkas(kafka_written: Written, name: str) -> None:
    """Kafka writes the lines in no particular order."""
    data = (kafka_written.clean / name).read_bytes()
    offsets = checkpoints.decode_offsets(data)
    assert offsets
    assert sorted(checkpoints.encode_offsets(offsets).splitlines()) == sorted(data.splitlines())


def test_meta_properties_is_understood(kafka_written: Written) -> None:
    meta = checkpoints.MetaProperties.decode((kafka_written.clean / files.META_PROPERTIES).read_bytes())
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 1)
    assert meta.directory_id is not None
    assert checkpoints.MetaProperties.decode(meta.encode()) == meta


def test_clean_shutdown_mark_is_kafkas(kafka_written: Written) -> None:
    data = (kafka_written.clean / files.CLEAN_SHUTDOWN).read_bytes()
    assert checkpoints.encode_clean_shutdown(json.loads(data)["brokerEpoch"]) == data
    assert not (kafka_written.killed / files.CLEAN_SHUTDOWN).exists()


def test_every_file_name_is_known(kafka_written: Written) -> None:
    """A name that is not understood would be left behind for ever, or worse, left out."""
    suffixes = set()
    for data_directory in (kafka_written.clean, kafka_written.killed):
        for directory in partition_directories(data_directory):
            assert files.parse_directory(directory.name) is not None
            if directory.name.startswith(files.METADATA_TOPIC):
                continue
            for path in directory.iterdir():
                parsed = files.parse_file(path.name)
                if parsed is not None:
                    assert files.file_name(*parsed) == path.name
                    suffixes.add(parsed.suffix)
                else:
                    assert path.name in (files.PARTITION_METADATA, files.LEADER_EPOCHS)
    assert suffixes == {"", files.DELETED}
