"""ListOffsets: which timestamps below zero mean something, and since when."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch import Call
from ottla.broker.handlers.offsets import SPECIAL_SINCE, list_offsets
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.errors import Error, Refused


class NoPartitions:
    """A node that has nothing: who is answered so was at least understood."""

    def partition(self, _topic: str, _index: int) -> Any:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, "none")


def error_of(timestamp: int, version: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    node: Any = NoPartitions()
    connection: Any = SimpleNamespace(peer="test")
    [topic] = list_offsets(request, Call(node, connection, 2, version, 1, None)).topics
    return topic.partitions[0].error_code


@pytest.mark.parametrize(("special", "since"), SPECIAL_SINCE.items())
def test_special_timestamp_is_understood_since_its_version(special: int, since: int) -> None:
    assert error_of(special, since) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(special, since - 1) == Error.UNSUPPORTED_VERSION


def test_timestamp_below_zero_that_means_nothing_is_refused() -> None:
    assert error_of(-99, 11) == Error.UNSUPPORTED_VERSION
    assert error_of(0, 1) == Error.UNKNOWN_TOPIC_OR_PARTITION
