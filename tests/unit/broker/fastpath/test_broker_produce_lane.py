"""The short way of Produce requests: it gives the answers of the long one, and the log the same records."""

import errno
from collections.abc import Sequence
from dataclasses import fields
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest
from broker_produce_samples import GOOD, frame_for, frame_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_home import LEADER_EPOCH, OTHER, TOPIC, LaneHome

from ottla import kernel
from ottla.broker.fastpath.appends import Appends
from ottla.broker.fastpath.known_topics import KnownTopics
from ottla.broker.fastpath.produce_lane import ProduceLane
from ottla.broker.network.backlog import Backlog
from ottla.broker.network.dispatch import Call, answer
from ottla.broker.partitions.partition import Partition
from ottla.config import Config
from ottla.core.log.segment import Segment
from ottla.kernel import Codec, Record
from ottla.sim.machine.faults import Fault
from ottla.wire.api import ApiKey
from ottla.wire.errors import Error
from ottla.wire.frame import decode_request, decode_response

SIZE = Struct(">i")
TOO_LONG_RECORDS = min(120, kernel.AT_ONCE_MAX // 1_000)
"""Few enough to be checked at once by either kernel, even where they are compressed again."""
LONG_RECORDS = TOO_LONG_RECORDS - 10
LONG, TOO_LONG = (
    bytes(kernel.build_batch([Record(n, 1_000, None, bytes(100)) for n in range(count)]))
    for count in (LONG_RECORDS, TOO_LONG_RECORDS)
)
MAX_MESSAGE_BYTES = str(len(LONG))
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
    def __init__(self, *, partitions: int = 1, other_partitions: int = 0, **settings: str) -> None:
        # The other topic has other rules.
        other = {"message.timestamp.type": "LogAppendTime"}
        super().__init__(
            named(settings), partitions=partitions, other_partitions=other_partitions, other_settings=other
        )
        self.backlog = Backlog(self.clock)
        node: Any = self
        self.topics = KnownTopics(node)
        self.appends = Appends(self.topics, self.clock)
        self.client = Client(self)

    def the_long_way(self, frame: bytes) -> bytes | None:
        return self.answer(memoryview(bytearray(frame)))

    def all_the_long_way(self, frames: Sequence[bytes]) -> list[bytes]:
        """The answers, of those that have one."""
        return [answer for frame in frames if (answer := self.the_long_way(frame)) is not None]

    def any_way(self, frame: bytes) -> bytes | None:
        """As a connection does it."""
        return b"".join(self.together([frame])) or None

    def together(self, frames: Sequence[bytes]) -> list[bytes]:
        """As a connection does it with frames that arrive together; the answers in their order."""
        self.client.send(frames)
        self.appends.write()
        return self.client.heard()

    def answer(self, frame: memoryview) -> bytes | None:
        connection: Any = SimpleNamespace(peer="test", listener="PLAINTEXT", role="broker", close=lambda: None)
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
        self.lane = ProduceLane(home.topics, home.appends)
        self.peer = "test"
        self.is_closed = False
        self.long = 0
        """How many requests took the long way."""
        self._answers: list[bytes] = []

    def send(self, frames: Sequence[bytes]) -> None:
        home, data = self._home, memoryview(bytearray(b"".join(arrived(frame) for frame in frames)))
        position = 0
        while position < len(data):
            taken = self.lane.take(self, data, position)
            if taken is None:
                self.long += 1
                home.appends.write()
                start = position + SIZE.size
                position = start + SIZE.unpack_from(data, position)[0]
                frame = data[start:position]
                answered = home.answer(frame)
                self._answers += [answered] if answered is not None else []
                request = decode_request(frame)
                self.lane.learn(request.body, request.version)
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

    def close(self) -> None:
        self.is_closed = True


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
    settled, tried = Home(max_message_bytes=MAX_MESSAGE_BYTES), Home(max_message_bytes=MAX_MESSAGE_BYTES)
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
    settled, tried = (
        Home(max_message_bytes=MAX_MESSAGE_BYTES, **limits),
        Home(max_message_bytes=MAX_MESSAGE_BYTES, **limits),
    )
    for arrived in script:
        sent = [frame for frame, times in arrived for _ in range(times)]
        assert tried.together(sent) == settled.all_the_long_way(sent)
    assert_same_logs(tried, settled)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.sampled_from(range(len(NUMBERED))), min_size=1, max_size=8), max_size=5))
def test_producers_with_ids_are_checked_as_if_one_by_one(script: list[list[int]]) -> None:
    """Batches that follow each other, come again, leave out one, or are of another epoch or producer."""
    settled, tried = Home(), Home()
    opening = [frame_of()] * 3
    for arrived in [opening, *([frame_of(NUMBERED[which]) for which in chosen] for chosen in script)]:
        assert tried.together(arrived) == settled.all_the_long_way(arrived)
    assert_same_logs(tried, settled)


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
            expected[who] += settled.all_the_long_way(frames)
        tried.appends.write()
        assert {who: client.heard() for who, client in enumerate(clients)} == expected
    assert_same_logs(tried, settled)


def test_what_several_clients_sent_in_one_round_is_written_at_once() -> None:
    home = Home()
    clients = [Client(home) for _ in range(4)]
    for client in clients:
        client.send([frame_of()] * 3)
        home.appends.write()
    before = home.led.log.state.end_offset
    for number, client in enumerate(clients):
        client.heard()
        client.send([frame_of(NUMBERED[7] if number == 2 else GOOD)])
    assert home.led.log.state.end_offset == before
    home.disk.faults = [Fault(errno.EIO, ("write",), nth=2, lasting=True)]
    home.appends.write()
    assert home.led.log.state.end_offset == before + 4 * 2
    assert [len(client.heard()) for client in clients] == [1, 1, 1, 1]


def test_a_partition_that_fails_is_told_beside_those_that_do_not() -> None:
    home = Home(partitions=3)
    sent = [frame_for([(TOPIC, [(n, GOOD) for n in which])], correlation_id=len(which)) for which in ([0], [0, 1, 2])]
    home.together([sent[1]])
    home.disk.faults = [Fault(errno.EIO, ("write",), nth=2, lasting=True)]
    home.client.send([*sent, frame_of(index=0, acks=0), frame_of(index=1, acks=0)])
    home.appends.write()
    one, all_three = home.client.heard()
    told = [decode_response(ApiKey.PRODUCE, 13, answer[SIZE.size :]) for answer in (one, all_three)]
    assert [number for number, _ in told] == [1, 3]
    errors = [[one.error_code for one in answer.responses[0].partition_responses] for _, answer in told]
    assert errors == [[Error.NONE], [Error.NONE, Error.KAFKA_STORAGE_ERROR, Error.KAFKA_STORAGE_ERROR]]
    assert home.client.is_closed  # There is no other way to tell that records are lost.


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
    for place, partition in tried.partitions.items():
        assert_same_log(partition, settled.partitions[place])


def assert_same_log(tried: Partition, settled: Partition) -> None:
    one, other = tried.log, settled.log
    assert (one.state.end_offset, tried.high_watermark) == (other.state.end_offset, settled.high_watermark)
    assert [segment.base_offset for segment in one.state.segments] == [s.base_offset for s in other.state.segments]
    for segment, same in zip(one.state.segments, other.state.segments, strict=True):
        assert segment == same or vars_of(segment) == vars_of(same)
        assert one.here.of(segment).log.read(0, segment.size) == other.here.of(same).log.read(0, same.size)
    ours, theirs = one.state.producers, other.state.producers
    assert ours.end_offset == theirs.end_offset
    assert ours.by_id == theirs.by_id


def vars_of(segment: Segment) -> dict[str, object]:
    return {figure.name: getattr(segment, figure.name) for figure in fields(segment)}


batches = st.sampled_from([GOOD, GOOD, GOOD, LONG, BROKEN, *OF_A_TRANSACTION[:1], ZSTD, None, *NUMBERED])
partitions = st.lists(st.tuples(st.sampled_from([0, 0, 1, 2, 3]), batches), max_size=5)
wide_frames = st.builds(
    frame_for,
    st.lists(st.tuples(st.sampled_from([TOPIC, OTHER]), partitions), max_size=3),
    version=st.integers(3, 13),
    correlation_id=st.integers(0, 2**31 - 1),
    acks=st.sampled_from([-1, -1, 1, 0, 5]),
    client_id=st.sampled_from([None, "", "c", "a client"]),
)
LIMITS = [{}, {"segment_bytes": "1048576"}, {"segment_index_bytes": "60"}, {"min_insync_replicas": "2"}]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.lists(wide_frames, max_size=3)), max_size=4), max_size=4),
    st.sampled_from(LIMITS),
)
def test_requests_for_many_partitions_are_answered_as_if_one_by_one(
    script: list[list[tuple[int, list[bytes]]]], limits: dict[str, str]
) -> None:
    """Several topics and partitions, some twice, in any version, from clients that name topics by name and by id."""
    settled, tried = (Home(partitions=3, other_partitions=2, **limits) for _ in range(2))
    clients = [Client(tried) for _ in range(3)]
    opening = [frame_for([(TOPIC, [(n, GOOD) for n in range(3)]), (OTHER, [(0, GOOD), (1, GOOD)])])] * 2
    for sent in [[(0, opening)], *script]:
        expected: dict[int, list[bytes]] = {who: [] for who in range(3)}
        for who, frames in sent:
            clients[who].send(frames)
            expected[who] += settled.all_the_long_way(frames)
        tried.appends.write()
        assert {who: client.heard() for who, client in enumerate(clients)} == expected
    assert_same_logs(tried, settled)


def test_a_request_for_many_partitions_takes_the_short_way() -> None:
    """Each is written with one call of the system in a round, and none before."""
    home = Home(partitions=60, other_partitions=2)
    frame = frame_for([(TOPIC, [(n, GOOD) for n in range(60)]), (OTHER, [(0, LONG), (1, GOOD)])])
    home.together([frame])
    home.short = 0
    home.client.send([frame] * 3)
    assert home.client.long == 1
    assert {partition.log.state.end_offset for partition in home.partitions.values()} == {2, LONG_RECORDS}
    home.disk.faults = [Fault(errno.EIO, ("write",), nth=63, lasting=True)]
    home.appends.write()
    assert home.short == 3
    assert {partition.log.state.end_offset for partition in home.partitions.values()} == {4 * 2, 4 * LONG_RECORDS}


def test_a_request_is_taken_as_a_whole_or_not_at_all() -> None:
    """The refusal of one partition must not hold back what others got, nor have the others get it twice."""
    home = Home(partitions=2)
    home.together([frame_for([(TOPIC, [(0, GOOD), (1, GOOD)])])])
    (answer,) = home.together([frame_for([(TOPIC, [(0, GOOD), (1, BROKEN)])])])
    assert Error.CORRUPT_MESSAGE.to_bytes(2, "big") in answer
    assert (home.client.long, home.short) == (2, 0)
    assert [home.partitions[TOPIC, n].log.state.end_offset for n in range(2)] == [4, 2]


@pytest.mark.parametrize("version", range(3, 14))
def test_the_second_request_for_a_topic_takes_the_short_way(version: int) -> None:
    home = Home()
    for number, records in enumerate([GOOD, LONG, GOOD, LONG]):
        assert home.any_way(frame_of(records, version=version, correlation_id=number)) is not None
    assert home.short == 3
    assert home.led.log.state.end_offset == 2 * 2 + 2 * LONG_RECORDS


def test_a_request_that_wants_no_answer_takes_the_short_way() -> None:
    home = Home()
    assert home.together([frame_of(acks=0)] * 4) == []
    assert home.client.long == 1
    assert home.led.log.state.end_offset == 4 * 2


@pytest.mark.parametrize(
    "changed",
    [{"acks": 5}, {"topic": "__consumer_offsets", "version": 12}, {"records": None}, {"records": OF_A_TRANSACTION[0]}],
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
    home.led.reconfigure(Config.of({"flush.messages": "1"}))
    assert home.client.lane.take(home.client, arrived(frame_of()), 0) is None
    assert home.led.log.state.end_offset == 3 * 2


def test_with_too_few_replicas_in_sync_requests_go_the_long_way_as_before() -> None:
    """Those that want all of them are refused, others are not; and none joins another's run."""
    home = Home()
    kinds = [frame_of(acks=-1), frame_of(acks=1)]
    for frame in kinds * 3:
        home.any_way(frame)
    assert home.short > 0
    home.led.reconfigure(Config.of({"min.insync.replicas": "2"}))
    taken, end_offset = home.short, home.led.log.state.end_offset
    answers = home.together([kinds[1], kinds[0], kinds[1]])
    assert (home.short, home.led.log.state.end_offset) == (taken, end_offset + 2 * 2)
    refused = b"".join([bytes(4), Error.NOT_ENOUGH_REPLICAS.to_bytes(2, "big")])  # Behind the partition's number.
    assert [refused in answer for answer in answers] == [False, True, False]


def test_a_partition_that_is_not_there_goes_the_long_way() -> None:
    home = Home()
    home.together([frame_of(), frame_of(index=1), frame_of(), frame_of(client_id="d")])
    assert (home.client.long, home.short) == (2, 2)
    assert home.led.log.state.end_offset == 2 * 3


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_was_made_anew_is_another_one(version: int) -> None:
    home = Home(other_partitions=1)
    sent = frame_of(topic=OTHER, version=version)
    home.together([sent] * 2)
    assert home.short == 1
    home.partitions[OTHER, 0].remove()
    (refused,) = home.together([sent])
    error = Error.UNKNOWN_TOPIC_ID if version >= 13 else Error.UNKNOWN_TOPIC_OR_PARTITION
    assert error.to_bytes(2, "big") in refused
    old = home.partitions[OTHER, 0]
    anew = home.partitions[OTHER, 0] = Partition(old.log, b"another id  (16)", isr=(1,), replicas=(1,))
    anew.lead(LEADER_EPOCH + 1)
    end_offset = old.log.state.end_offset
    home.together([frame_of(topic=OTHER, version=12)] * 2)
    assert old.log.state.end_offset == end_offset + 2 * 2


def test_a_batch_is_checked_by_the_rules_that_the_topic_has_now() -> None:
    home = Home()
    home.together([frame_of()] * 2)
    home.led.log.reconfigure(Config.of({"max.message.bytes": "10"}))
    (answer,) = home.together([frame_of()])
    assert Error.MESSAGE_TOO_LARGE.to_bytes(2, "big") in answer
    assert home.led.log.state.end_offset == 2 * 2


def test_a_request_with_bytes_after_its_end_goes_the_long_way() -> None:
    home = Home()
    for _ in range(4):
        home.any_way(frame_of() + b"\0")
    assert home.short == 0


@pytest.mark.parametrize("end", [b"\0\0\1", b"\0\1\0", b"\1\0\0", b"\0\0\1\x63\0", b"\0\0"])
def test_tagged_fields_go_the_long_way(end: bytes) -> None:
    home = Home()
    for _ in range(3):
        home.any_way(frame_of())
    assert home.client.lane.take(home.client, arrived(frame_of()[:-3] + end), 0) is None
    assert home.led.log.state.end_offset == 3 * 2
