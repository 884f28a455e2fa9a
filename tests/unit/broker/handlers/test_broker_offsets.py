"""ListOffsets: which timestamps below zero mean something, and since when."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.offsets import MAX_TIMESTAMP, SPECIAL_SINCE, list_offsets
from ottla.broker.network.backlog import Backlog
from ottla.broker.network.dispatch import Call
from ottla.io.clock import SystemClock
from ottla.storage.segment_files import TimeFound
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.codec import decode, encode
from ottla.wire.errors import Error, Refused

FIRST_VERSION, LAST_VERSION = 1, 11


class NoPartitions:
    """A node that has nothing: who is answered so was at least understood."""

    def partition(self, _topic: str, _index: int) -> Any:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, "none")


class OnePartition:
    """A node with a partition of seven records in epoch 3."""

    def partition(self, _topic: str, _index: int) -> Any:
        return SimpleNamespace(
            check_epoch=lambda _asked: None, high_watermark=7, leader_epoch=3, log=SimpleNamespace(state=None)
        )


def answer_of(node: Any, timestamp: int, version: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    connection: Any = SimpleNamespace(peer="test")
    node.backlog = Backlog(SystemClock())
    response = asyncio.run(list_offsets(request, Call(node, connection, 2, version, 1, None)))
    [topic] = decode(ListOffsetsResponse, version, encode(response, version)).topics
    [partition] = topic.partitions
    return partition


def error_of(timestamp: int, version: int) -> int:
    return answer_of(NoPartitions(), timestamp, version).error_code


@pytest.mark.parametrize(("special", "since"), SPECIAL_SINCE.items())
def test_special_timestamp_is_understood_since_its_version(special: int, since: int) -> None:
    assert error_of(special, since) == Error.UNKNOWN_TOPIC_OR_PARTITION
    if since > FIRST_VERSION:
        assert error_of(special, since - 1) == Error.UNSUPPORTED_VERSION


def test_timestamp_below_zero_that_means_nothing_is_refused() -> None:
    assert error_of(-99, LAST_VERSION) == Error.UNSUPPORTED_VERSION
    assert error_of(0, 1) == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(FIRST_VERSION, LAST_VERSION + 1))
def test_answer_fits_its_version(version: int) -> None:
    """The leader's epoch is told since version 4; librdkafka 2.0 asks in version 2."""
    answer = answer_of(OnePartition(), -1, version)
    assert (answer.error_code, answer.offset) == (Error.NONE, 7)
    assert answer.leader_epoch == (3 if version >= 4 else -1)


class Unlearned:
    """A node with a log of many segments whose times nobody has read yet."""

    def __init__(self) -> None:
        self.learned = False

    @property
    def must_learn_times(self) -> bool:
        return not self.learned

    async def learn_times(self) -> None:
        self.learned = True

    def find_time(self, timestamp: int) -> TimeFound:
        assert self.learned, "this would read every segment on the event loop"
        return TimeFound(5, timestamp, 3)

    def find_max_timestamp(self) -> TimeFound:
        return self.find_time(77)

    def partition(self, _topic: str, _index: int) -> Any:
        return SimpleNamespace(
            check_epoch=lambda _asked: None, high_watermark=7, leader_epoch=3, log=self, last_stable_offset=7
        )

    @property
    def state(self) -> None:
        """Nothing here asks for it."""


@pytest.mark.parametrize(("timestamp", "expected"), [(11, (5, 11)), (MAX_TIMESTAMP, (5, 77))])
def test_times_are_learned_before_they_are_looked_up(timestamp: int, expected: tuple[int, int]) -> None:
    """In a thread, while the connection goes on; the other questions need no times and are answered at once."""
    node = Unlearned()
    assert answer_of(node, -1, LAST_VERSION).offset == 7
    assert not node.learned
    answer = answer_of(node, timestamp, LAST_VERSION)
    assert (answer.offset, answer.timestamp) == expected
    assert node.learned
