"""The short way of Produce requests: it gives the answers of the long one, and the log the same records."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import kernel
from ottla.broker.dispatch import Call, answer
from ottla.broker.partition import Partition
from ottla.broker.produce_lane import ProduceLanes
from ottla.config import Config
from ottla.kernel import Record
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error, Refused
from ottla.wire.frame import decode_request, encode_request

TOPIC, TOPIC_ID, LEADER_EPOCH = "t", b"\x01" * 16, 3
GOOD = bytes(kernel.build_batch([Record(0, 1_000, None, b"value"), Record(1, 1_001, b"key", b"more")]))
LONG = bytes(kernel.build_batch([Record(n, 1_000, None, bytes(100)) for n in range(200)]))
TOO_LONG = bytes(kernel.build_batch([Record(n, 1_000, None, bytes(100)) for n in range(500)]))
BROKEN = GOOD[:-1] + b"\xff"
NOT_FROM_A_CLIENT = b"\0\0\0\0\0\0\0\7" + GOOD[8:]


def config(**settings: str) -> Config:
    return Config.of({name.replace("_", "."): value for name, value in settings.items()})


class Home:
    """As much of a node as Produce needs: one topic of one partition, which can go away."""

    def __init__(self, **settings: str) -> None:
        clock = SimClock()
        disk = SimDisk(clock, Random(1))
        disk.make_directory("/data")
        log = PartitionLog(LogDirectory(disk, "/data"), TOPIC, 0, config(**settings), clock, Random(1))
        self.led = Partition(log, TOPIC_ID, LEADER_EPOCH, isr=(1,))
        self.led.lead(LEADER_EPOCH)
        self.is_there = True
        self.lanes = ProduceLanes(self)  # type: ignore[arg-type]
        self.short = 0
        """How many requests took the short way."""

    def topic_name(self, topic_id: bytes) -> str | None:
        return TOPIC if self.is_there and topic_id == TOPIC_ID else None

    def partition(self, topic: str | None, index: int, _topic_id: bytes = b"") -> Partition:
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, "no topic has this id")
        if (topic, index, self.is_there) != (TOPIC, 0, True):
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{index}")
        return self.led

    def the_long_way(self, frame: bytes) -> bytes | None:
        return self._answer(memoryview(bytearray(frame)))

    def any_way(self, frame: bytes) -> bytes | None:
        """As a connection does it."""
        view = memoryview(bytearray(frame))
        known = self.lanes.take(view)
        if known is not None:
            self.short += 1
            return known
        answered = self._answer(view)
        request = decode_request(view)
        self.lanes.learn(view, request.body, request.version)
        return answered

    def _answer(self, frame: memoryview) -> bytes | None:
        connection: Any = SimpleNamespace(peer="test", close=lambda: None)
        request = decode_request(frame)
        node: Any = self
        call = Call(node, connection, request.api_key, request.version, request.correlation_id, request.client_id)
        result = answer(request.body, call)
        assert result is None or isinstance(result, list)
        return b"".join(result) if result is not None else None  # type: ignore[arg-type]


def frame_of(
    records: bytes | None = GOOD,
    *,
    version: int = 13,
    correlation_id: int = 7,
    acks: int = -1,
    topic: str = TOPIC,
    index: int = 0,
    client_id: str = "c",
) -> bytes:
    partition = PartitionProduceData(index=index, records=records)
    data = TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=[partition])
    if version >= 13:
        data.name = ""
    else:
        data.topic_id = bytes(16)
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return b"".join(encode_request(request, version, correlation_id, client_id))[4:]


frames = st.builds(
    frame_of,
    st.sampled_from([GOOD, GOOD, LONG, TOO_LONG, BROKEN, NOT_FROM_A_CLIENT, b"", None]),
    version=st.sampled_from([8, 9, 12, 13]),
    correlation_id=st.integers(0, 2**31 - 1),
    acks=st.sampled_from([-1, -1, 1, 0, 5]),
    topic=st.sampled_from([TOPIC, "u", "__consumer_offsets"]),
    index=st.sampled_from([0, 0, 0, 1]),
)
steps = st.tuples(frames, st.integers(1, 4), st.binary(max_size=2), st.booleans())


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=8))
def test_both_ways_give_the_same_answers_and_records(script: list[tuple[bytes, int, bytes, bool]]) -> None:
    """Requests in any order, some again and again, some with bytes after their end; the topic goes and comes back."""
    settled, tried = Home(max_message_bytes="30000"), Home(max_message_bytes="30000")
    for frame, times, behind, is_there in script:
        settled.is_there = tried.is_there = is_there
        for _ in range(times):
            assert tried.any_way(frame + behind) == settled.the_long_way(frame + behind)
    assert tried.led.log.log.end_offset == settled.led.log.log.end_offset
    assert tried.led.high_watermark == settled.led.high_watermark


@pytest.mark.parametrize("version", [9, 12, 13])
def test_the_third_request_of_a_kind_takes_the_short_way(version: int) -> None:
    home = Home()
    for number, records in enumerate([GOOD, LONG, GOOD, LONG]):
        assert home.any_way(frame_of(records, version=version, correlation_id=number)) is not None
    assert home.short == 2
    assert home.led.log.log.end_offset == 2 * 2 + 2 * 200


@pytest.mark.parametrize(
    "changed",
    [{"version": 8}, {"acks": 0}, {"acks": 5}, {"topic": "__consumer_offsets", "version": 12}, {"records": None}],
)
def test_what_is_out_of_the_ordinary_goes_the_long_way(changed: dict[str, Any]) -> None:
    home = Home()
    for _ in range(4):
        home.any_way(frame_of(**changed))
    assert home.short == 0


def test_records_that_are_synced_first_go_the_long_way() -> None:
    home = Home()
    for _ in range(3):
        home.any_way(frame_of())
    home.led.log.reconfigure(config(flush_messages="1"))
    assert home.lanes.take(memoryview(bytearray(frame_of()))) is None
    assert home.led.log.log.end_offset == 3 * 2


def test_another_partition_or_client_is_another_request() -> None:
    home = Home()
    for _ in range(3):
        home.any_way(frame_of())
    assert home.short == 1
    for other in (frame_of(index=1), frame_of(client_id="d")):
        before = home.short
        home.any_way(other)
        assert home.short == before
        home.any_way(other)
        assert home.short == before + 1
    assert home.led.log.log.end_offset == 2 * (3 + 2)


def test_bytes_after_the_end_of_a_request_open_no_lane() -> None:
    home = Home()
    for _ in range(4):
        home.any_way(frame_of() + b"\0")
    assert home.short == 0


@pytest.mark.parametrize("end", [b"\0\0\1", b"\0\1\0", b"\1\0\0", b"\0\0\1\x63\0", b"\0\0"])
def test_tagged_fields_go_the_long_way(end: bytes) -> None:
    home = Home()
    for _ in range(3):
        home.any_way(frame_of())
    assert home.lanes.take(memoryview(bytearray(frame_of()[:-3] + end))) is None
    assert home.led.log.log.end_offset == 3 * 2
