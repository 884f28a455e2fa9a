"""The short way of Produce requests: it gives the answers of the long one, and the log the same records."""

import errno
from collections.abc import Sequence
from dataclasses import fields
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest
from broker_produce_samples import GOOD, frame_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_home import TOPIC, LaneHome

from ottla import kernel
from ottla.broker.appends import Appends
from ottla.broker.dispatch import Call, answer
from ottla.broker.produce_lane import ProduceLanes
from ottla.config import Config
from ottla.core.log.segment import Segment
from ottla.kernel import Codec, Record
from ottla.sim.faults import Fault
from ottla.wire.errors import Error
from ottla.wire.frame import decode_request

SIZE = Struct(">i")
LONG = bytes(kernel.build_batch([Record(n, 1_000, None, bytes(100)) for n in range(200)]))
TOO_LONG = bytes(kernel.build_batch([Record(n, 1_000, None, bytes(100)) for n in range(500)]))
BROKEN = GOOD[:-1] + b"\xff"
NOT_FROM_A_CLIENT = b"\0\0\0\0\0\0\0\7" + GOOD[8:]
OF_A_TRANSACTION = [
    bytes(kernel.build_batch([Record(0, 1_000, None, b"value")], transactional=True, **producer))
    for producer in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0})
]
NO_PRODUCER = bytes(kernel.build_batch([Record(0, 1_000, None, b"value")], producer_id=-2))
ZSTD = bytes(kernel.build_batch([Record(0, 1_000, None, b"value")], codec=Codec.ZSTD))
NUMBERED = [
    bytes(kernel.build_batch([Record(0, 1_000, None, b"value"), Record(1, 1_000, None, b"")], **producer))
    for producer in (
        [{"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence} for sequence in (0, 2, 4, 6, 8)]
        + [{"producer_id": 5, "producer_epoch": 1, "base_sequence": sequence} for sequence in (0, 2)]
        + [{"producer_id": 6, "producer_epoch": 0, "base_sequence": sequence} for sequence in (0, 2, 2**31 - 2)]
    )
]


def named(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


class Home(LaneHome):
    def __init__(self, **settings: str) -> None:
        super().__init__(named(settings))
        self.appends = Appends()
        self.client = Client(self)

    def the_long_way(self, frame: bytes) -> bytes | None:
        return self.answer(memoryview(bytearray(frame)))

    def any_way(self, frame: bytes) -> bytes | None:
        """As a connection does it."""
        return b"".join(self.together([frame])) or None

    def together(self, frames: Sequence[bytes]) -> list[bytes]:
        """As a connection does it with frames that arrive together; the answers in their order."""
        self.client.send(frames)
        self.appends.write()
        return self.client.heard()

    def answer(self, frame: memoryview) -> bytes | None:
        connection: Any = SimpleNamespace(peer="test", close=lambda: None)
        request = decode_request(frame)
        node: Any = self
        call = Call(node, connection, request.api_key, request.version, request.correlation_id, request.client_id)
        result = answer(request.body, call)
        assert result is None or isinstance(result, list)
        return b"".join(result) if result is not None else None  # type: ignore[arg-type]


class Client:
    """What a connection does with what one client sends."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.lanes = ProduceLanes(home, home.appends)  # type: ignore[arg-type]
        self._answers: list[bytes] = []

    def send(self, frames: Sequence[bytes]) -> None:
        home, data = self._home, memoryview(bytearray(b"".join(arrived(frame) for frame in frames)))
        position = 0
        while position < len(data):
            taken = self.lanes.take(self, data, position)
            if taken is None:
                home.appends.write()
                start = position + SIZE.size
                position = start + SIZE.unpack_from(data, position)[0]
                frame = data[start:position]
                self._answers.append(home.answer(frame) or b"")
                request = decode_request(frame)
                self.lanes.learn(frame, request.body, request.version)
            else:
                position = taken

    def heard(self) -> list[bytes]:
        answers, self._answers = self._answers, []
        return answers

    def answered(self, answers: bytes) -> None:
        self._answers += split(answers)
        self._home.short += len(split(answers))

    def broken(self, error: Exception) -> None:
        raise error


def arrived(frame: bytes) -> memoryview:
    return memoryview(bytearray(SIZE.pack(len(frame)) + frame))


def split(answers: bytes) -> list[bytes]:
    found = []
    while answers:
        size = SIZE.size + SIZE.unpack_from(answers)[0]
        found.append(answers[:size])
        answers = answers[size:]
    return found


frames = st.builds(
    frame_of,
    st.sampled_from(
        [GOOD, GOOD, LONG, TOO_LONG, BROKEN, NOT_FROM_A_CLIENT, *OF_A_TRANSACTION, NO_PRODUCER, ZSTD, b"", None]
    ),
    version=st.sampled_from([6, 8, 9, 12, 13]),
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
    assert_same_logs(tried, settled)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.tuples(frames, st.integers(1, 5)), min_size=1, max_size=4), max_size=5), st.data())
def test_what_arrives_together_is_answered_as_if_one_by_one(
    script: list[list[tuple[bytes, int]]], data: st.DataObject
) -> None:
    limits = data.draw(
        st.sampled_from(
            [
                {},
                {"segment_bytes": "1048576"},
                {"segment_index_bytes": "60"},
                {"message_timestamp_type": "LogAppendTime"},
                {"compression_type": "lz4"},
                {"min_insync_replicas": "2"},
                {"cleanup_policy": "compact"},
            ]
        )
    )
    settled, tried = Home(max_message_bytes="30000", **limits), Home(max_message_bytes="30000", **limits)
    for arrived in script:
        sent = [frame for frame, times in arrived for _ in range(times)]
        assert tried.together(sent) == [settled.the_long_way(frame) or b"" for frame in sent]
    assert_same_logs(tried, settled)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.sampled_from(range(len(NUMBERED))), min_size=1, max_size=8), max_size=5))
def test_producers_with_ids_are_checked_as_if_one_by_one(script: list[list[int]]) -> None:
    """Batches that follow each other, come again, leave out one, or are of another epoch or producer."""
    settled, tried = Home(), Home()
    opening = [frame_of()] * 3
    for arrived in [opening, *([frame_of(NUMBERED[which]) for which in chosen] for chosen in script)]:
        assert tried.together(arrived) == [settled.the_long_way(frame) or b"" for frame in arrived]
    assert_same_logs(tried, settled)
    assert tried.led.log.log.producers.by_id.keys() == settled.led.log.log.producers.by_id.keys()


rounds = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-1, len(NUMBERED) - 1), max_size=3)), max_size=6),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(rounds, st.sampled_from([{}, {"segment_bytes": "1048576"}, {"segment_index_bytes": "60"}]))
def test_what_several_clients_sent_in_one_round_is_answered_as_if_one_by_one(
    script: list[list[tuple[int, list[int]]]], limits: dict[str, str]
) -> None:
    """Batches of no producer and of producers with ids, who may change their connection within a round."""
    settled, tried = Home(**limits), Home(**limits)
    clients = [Client(tried) for _ in range(3)]
    opening = [[(who, [-1, -1, -1])] for who in range(3)]
    for sent in [*opening, *script]:
        expected: dict[int, list[bytes]] = {who: [] for who in range(3)}
        for who, chosen in sent:
            frames = [frame_of(NUMBERED[one] if one >= 0 else LONG) for one in chosen]
            clients[who].send(frames)
            expected[who] += [settled.the_long_way(frame) or b"" for frame in frames]
        tried.appends.write()
        assert {who: client.heard() for who, client in enumerate(clients)} == expected
    assert_same_logs(tried, settled)
    ours, theirs = tried.led.log.log.producers, settled.led.log.log.producers
    assert ours.end_offset == theirs.end_offset
    assert ours.by_id.keys() == theirs.by_id.keys()
    assert all(list(ours.by_id[one].batches) == list(theirs.by_id[one].batches) for one in ours.by_id)


def test_what_several_clients_sent_in_one_round_is_written_at_once() -> None:
    home = Home()
    clients = [Client(home) for _ in range(4)]
    for client in clients:
        client.send([frame_of()] * 3)
        home.appends.write()
    before = home.led.log.log.end_offset
    for number, client in enumerate(clients):
        client.heard()
        client.send([frame_of(NUMBERED[7] if number == 2 else GOOD)])
    assert home.led.log.log.end_offset == before
    home.disk.faults = [Fault(errno.EIO, ("write",), nth=2, lasting=True)]
    home.appends.write()
    assert home.led.log.log.end_offset == before + 4 * 2
    assert [len(client.heard()) for client in clients] == [1, 1, 1, 1]


def test_a_disk_that_fails_is_told_to_all_that_were_taken_together() -> None:
    home = Home()
    home.together([frame_of()] * 3)
    home.disk.faults = [Fault(errno.EIO, ("write",), nth=1, lasting=True)]
    home.short = 0
    answers = home.together([frame_of(correlation_id=number) for number in range(3)])
    assert home.short == 3
    assert [SIZE.unpack_from(answer, 4)[0] for answer in answers] == [0, 1, 2]
    assert all(Error.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in answer for answer in answers)


def assert_same_logs(tried: Home, settled: Home) -> None:
    one, other = tried.led.log, settled.led.log
    assert (one.log.end_offset, tried.led.high_watermark) == (other.log.end_offset, settled.led.high_watermark)
    assert [segment.base_offset for segment in one.log.segments] == [s.base_offset for s in other.log.segments]
    for segment, same in zip(one.log.segments, other.log.segments, strict=True):
        assert segment == same or vars_of(segment) == vars_of(same)
        assert one.here.of(segment).log.read(0, segment.size) == other.here.of(same).log.read(0, same.size)


def vars_of(segment: Segment) -> dict[str, object]:
    return {figure.name: getattr(segment, figure.name) for figure in fields(segment)}


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
    home.led.log.reconfigure(Config.of({"flush.messages": "1"}))
    assert home.client.lanes.take(home.client, arrived(frame_of()), 0) is None
    assert home.led.log.log.end_offset == 3 * 2


def test_with_too_few_replicas_in_sync_requests_go_the_long_way_as_before() -> None:
    """Those that want all of them are refused, others are not; and none joins another's run."""
    home = Home()
    kinds = [frame_of(acks=-1), frame_of(acks=1)]
    for frame in kinds * 3:
        home.any_way(frame)
    assert home.short > 0
    home.led.log.reconfigure(Config.of({"min.insync.replicas": "2"}))
    taken, end_offset = home.short, home.led.log.log.end_offset
    answers = home.together([kinds[1], kinds[0], kinds[1]])
    assert (home.short, home.led.log.log.end_offset) == (taken, end_offset + 2 * 2)
    refused = b"".join([bytes(4), Error.NOT_ENOUGH_REPLICAS.to_bytes(2, "big")])  # Behind the partition's number.
    assert [refused in answer for answer in answers] == [False, True, False]


def test_another_partition_or_client_is_another_request() -> None:
    home = Home()
    for _ in range(3):
        home.any_way(frame_of())
    assert home.short == 1
    for _ in range(2):
        home.any_way(frame_of(index=1))
        assert home.short == 1  # It is refused, which takes the long way.
    home.any_way(frame_of(client_id="d"))
    assert home.short == 1
    home.any_way(frame_of(client_id="d"))
    assert home.short == 2
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
    assert home.client.lanes.take(home.client, arrived(frame_of()[:-3] + end), 0) is None
    assert home.led.log.log.end_offset == 3 * 2
