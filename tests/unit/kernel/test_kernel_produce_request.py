"""Produce requests: which are taken, what is written and answered, and that both kernels say the same."""

import gc
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import implementation_named
from kernel_samples import NOW, T, batches, produce_rules

from ottla import kernel
from ottla.kernel import Codec, ProducePlace, ProduceRules, ProduceTopic, Record, TimestampType, build_batch
from ottla.wire.api import ApiKey
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import decode_response, encode_request

DEFAULTS = ProduceRules()
AMPLE = ProducePlace(100, 3, 50, 1 << 30, 1 << 20, 2**63 - 1, 2**31, {})
TOPICS = {"t": b"\1" * 16, "a topic of 16 by": b"a topic of 16 by"}
Partitions = list[tuple[int, bytes | None]]


def batch_of(count: int = 2, **options: Any) -> bytes:
    return bytes(build_batch([Record(number, T, b"k", b"value") for number in range(count)], **options))


def of_producer(producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    return batch_of(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def request_of(
    *topics: tuple[str, Partitions],
    version: int = 13,
    number: int = 7,
    acks: int = -1,
    client_id: str | None = "c",
    transactional_id: str | None = None,
) -> bytes:
    data = [
        TopicProduceData(
            name="" if version >= 13 else name,
            topic_id=TOPICS[name] if version >= 13 else bytes(16),
            partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions],
        )
        for name, partitions in topics
    ]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=9, topic_data=data)
    return b"".join(encode_request(request, version, number, client_id))


def one(batch: bytes | None, **options: Any) -> bytes:
    return request_of(("t", [(0, batch)]), **options)


class Taken:
    """What a kernel made of `sent`, with these places for the partitions of the topic `t`."""

    def __init__(
        self,
        sent: bytes,
        places: dict[int, ProducePlace] | None = None,
        *,
        chosen: Any = kernel,
        rules: ProduceRules = DEFAULTS,
        others: dict[int, ProducePlace] | None = None,
        position: int = 0,
        batches_max: int = 256,
        bytes_max: int = 1 << 20,
    ) -> None:
        self.data = memoryview(bytearray(sent))
        known = [
            ProduceTopic(rules, {0: AMPLE} if places is None else places, "t"),
            ProduceTopic(DEFAULTS, others or {}, "other"),
        ]
        by_name = {name.encode(): topic for name, topic in zip(TOPICS, known, strict=True)}
        by_id = dict(zip(TOPICS.values(), known, strict=True))
        self.end, self.answers, self.parts, self.asks = chosen.take_produce_requests(
            self.data, position, by_name, by_id, NOW, batches_max, bytes_max
        )

    @property
    def numbers(self) -> dict[tuple[str, int], list[int]]:
        return {
            (topic, index): [header.base_offset for header in headers] for topic, index, _, headers, _, _ in self.parts
        }

    def answered(self, version: int = 13) -> list[Any]:
        """Correlation id, and of each partition its index, base offset, log append time and log start offset."""
        found, left = [], self.answers
        while left:
            size = 4 + int.from_bytes(left[:4], "big")
            number, response = decode_response(ApiKey.PRODUCE, version, left[4:size])
            told = [
                (one.index, one.base_offset, one.log_append_time_ms, one.log_start_offset)
                for topic in response.responses
                for one in topic.partition_responses
            ]
            found.append((number, *told))
            left = left[size:]
        return found

    @property
    def values(self) -> tuple[Any, ...]:
        """All of it, to be compared."""
        parts = [(*part[:4], [bytes(batch) for batch in part[4]], part[5]) for part in self.parts]
        return self.end, self.answers, parts, self.asks, bytes(self.data)


def test_requests_that_have_arrived_are_taken_together() -> None:
    sent = [batch_of(2), batch_of(300), batch_of(1)]
    data = b"".join(one(batch, number=number) for number, batch in enumerate(sent, start=4))
    taken = Taken(b"???" + data + one(sent[0])[:-1], position=3)
    assert taken.end == 3 + len(data)
    assert taken.answered() == [(4, (0, 100, -1, 50)), (5, (0, 102, -1, 50)), (6, (0, 402, -1, 50))]
    ((topic, index, place, headers, written, producers),) = taken.parts
    assert (topic, index, producers) == ("t", 0, [])
    size = sum(map(len, sent))
    left = (AMPLE.bytes_left - size, AMPLE.batches_left - 3)
    assert place == AMPLE._replace(next_offset=403, bytes_left=left[0], batches_left=left[1])
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(100, 3), (102, 3), (402, 3)]
    assert [bytes(batch[16:]) for batch in written] == [batch[16:] for batch in sent]
    assert [kernel.read_header(batch) for batch in written] == headers
    assert all(batch.obj is taken.data.obj for batch in written), "they were copied"


@pytest.mark.parametrize("version", range(3, 14))
def test_all_partitions_of_a_request_are_taken(version: int) -> None:
    topics: list[tuple[str, Partitions]] = [
        ("a topic of 16 by", [(1, batch_of(3))]),
        ("t", [(7, batch_of(1)), (2, batch_of(2))]),
    ]
    places = {7: AMPLE, 2: AMPLE._replace(next_offset=7, log_start_offset=1)}
    taken = Taken(request_of(*topics, version=version) * 2, places, others={1: AMPLE})
    assert taken.numbers == {("other", 1): [100, 103], ("t", 7): [100, 101], ("t", 2): [7, 9]}
    start, own = (50, 1) if version >= 5 else (-1, -1)
    first = (7, (1, 100, -1, start), (7, 100, -1, start), (2, 7, -1, own))
    assert taken.answered(version)[0] == first
    assert len(taken.answered(version)) == 2


def test_a_topic_by_name_and_by_id_has_the_same_places() -> None:
    """Otherwise two batches would get the same offsets."""
    taken = Taken(one(batch_of(), version=12) + one(batch_of(), version=13))
    assert taken.numbers == {("t", 0): [100, 102]}


def test_without_acks_there_is_no_answer() -> None:
    taken = Taken(one(batch_of(), acks=0) + one(batch_of(), number=9))
    assert taken.answered() == [(9, (0, 102, -1, 50))]


def test_a_place_that_is_missing_is_asked_for() -> None:
    sent = request_of(("t", [(0, batch_of()), (1, of_producer(5, 4, epoch=2)), (2, batch_of())]))
    taken = Taken(sent, {0: AMPLE})
    assert taken.asks == [("t", 1, 5, 2, 4), ("t", 2, -1, -1, -1)]
    assert (taken.end, taken.answers, taken.parts, bytes(taken.data)) == (0, b"", [], sent)
    first = one(batch_of())
    assert (Taken(first + sent).end, Taken(first + sent).asks) == (len(first), [])


def test_the_sequence_of_a_producer_is_asked_for_once() -> None:
    sent = one(of_producer(5, 2)) + one(of_producer(5, 4))
    assert Taken(sent).asks == [("t", 0, 5, 0, 2)]
    known = {5: (0, 2)}
    taken = Taken(sent, {0: AMPLE._replace(sequences=known)})
    assert (taken.end, taken.parts[0][5], known) == (len(sent), [(5, 0, 6)], {5: (0, 2)})


@pytest.mark.parametrize(
    ("sent", "fit"),
    [
        ([(5, 0), (5, 2), (6, 9), (5, 4)], 4),
        ([(5, 0), (5, 0)], 1),
        ([(5, 0), (5, 4)], 1),
        ([(5, 1)], 0),
        ([(7, 2**31 - 2), (7, 0)], 2),
        ([(8, 2**31 - 1), (8, 1)], 2),
    ],
)
def test_sequences_follow_each_other(sent: list[tuple[int, int]], fit: int) -> None:
    place = AMPLE._replace(sequences={5: (0, 0), 6: (0, 9), 7: (0, 2**31 - 2), 8: (0, 2**31 - 1)})
    taken = Taken(b"".join(one(of_producer(*each)) for each in sent), {0: place})
    assert len(taken.numbers.get(("t", 0), [])) == fit
    assert taken.asks == []
    assert Taken(one(of_producer(5, 0, epoch=1)), {0: place}).end == 0


@pytest.mark.parametrize(
    ("room", "fit"),
    [
        ({}, 3),
        ({"batches_left": 2}, 2),
        ({"batches_left": 0}, 0),
        ({"bytes_left": 3 * len(batch_of())}, 3),
        ({"bytes_left": 3 * len(batch_of()) - 1}, 2),
        ({"latest_timestamp": T}, 3),
        ({"latest_timestamp": T - 1}, 0),
        ({"offset_max": 105}, 3),
        ({"offset_max": 104}, 2),
        ({"next_offset": 2**63 - 1, "offset_max": 2**63 - 1}, 0),
    ],
)
def test_a_place_has_an_end(room: dict[str, int], fit: int) -> None:
    """A request that does not fit leaves its other partitions as they are."""
    request = request_of(("t", [(1, batch_of()), (0, batch_of())]))
    taken = Taken(3 * request, {0: AMPLE._replace(**room), 1: AMPLE})
    assert taken.end == fit * len(request)
    assert [len(headers) for _, _, _, headers, _, _ in taken.parts] == ([fit, fit] if fit else [])
    assert bytes(taken.data[taken.end :]) == (3 - fit) * request


@pytest.mark.parametrize(
    "other",
    [
        one(None),
        one(b""),
        one(batch_of()[:-1]),
        one(batch_of()[:-1] + b"\xff"),
        one(batch_of() * 2),
        one(b"\0\0\0\0\0\0\0\1" + batch_of()[8:]),
        one(batch_of(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)),
        one(batch_of(control=True)),
        one(batch_of(codec=Codec.ZSTD), version=6),
        one(batch_of(), acks=2),
        one(batch_of(), transactional_id="x"),
        one(batch_of(), transactional_id=""),
        request_of(),
        request_of(("t", [])),
        request_of(("t", [(0, batch_of()), (0, batch_of())])),
        request_of(("t", [(0, batch_of())]), ("t", [(0, batch_of())])),
        request_of(("t", [(number, batch_of(1)) for number in range(257)])),
        one(batch_of())[:-1] + b"\1",
        one(batch_of()).replace(b"\0\0\0\x0d", b"\0\1\0\x0d", 1),
        one(batch_of()).replace(b"\0\0\0\x0d", b"\0\0\0\x0e", 1),
        one(batch_of()).replace(b"\0\1c\0", b"\0\1\xff\0", 1),
        one(batch_of()).replace(b"\0\1c\0", b"\0\1c\1", 1),
        one(batch_of()).replace(TOPICS["t"], b"\2" * 16),
        b"\xff\xff\xff\xff" + one(batch_of())[4:],
        b"\0\0",
    ],
)
def test_anything_else_ends_what_is_taken(other: bytes) -> None:
    first, place = one(batch_of()), AMPLE._replace(sequences={1: (0, 0)})
    places = dict.fromkeys(range(300), place)
    assert Taken(first + other + first, places).end == len(first)
    alone = Taken(other + first, places)
    assert (alone.end, alone.answers, alone.parts, alone.asks) == (0, b"", [], [])
    assert bytes(alone.data) == other + first


def test_bytes_after_the_end_of_a_request_are_for_the_codec() -> None:
    sent = one(batch_of())
    longer = (len(sent) - 3).to_bytes(4, "big") + sent[4:] + b"\0"
    assert Taken(longer).end == 0


def test_what_must_be_compressed_anew_is_not_taken() -> None:
    rules = ProduceRules(codec=Codec.LZ4)
    assert Taken(one(batch_of()), rules=rules).end == 0
    assert Taken(one(batch_of(codec=Codec.LZ4)), rules=rules).end > 0


def test_the_broker_s_time_is_written_into_every_batch() -> None:
    taken = Taken(one(batch_of()) * 2, rules=ProduceRules(timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert taken.answered() == [(7, (0, 100, NOW, 50)), (7, (0, 102, NOW, 50))]
    for batch, header in zip(taken.parts[0][4], taken.parts[0][3], strict=True):
        assert kernel.read_header(batch) == header
        assert kernel.crc_ok(batch, 0, header.size)
        assert kernel.scan(batch).headers[0].max_timestamp == NOW


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_no_more_is_taken_at_a_time_than_may_be_checked_at_once(codec: Codec) -> None:
    """A buffer full of small requests may unpack to gigabytes."""
    batch = bytes(build_batch([Record(number, T, b"k", bytes(100)) for number in range(100)], codec=codec))
    request = one(batch)
    assert Taken(request * 10, bytes_max=25_000).end == 3 * len(request)
    wide = request_of(("t", [(number, batch) for number in range(4)]))
    places = dict.fromkeys(range(4), AMPLE)
    assert Taken(wide, places, bytes_max=25_000).end == 0
    assert Taken(wide, places, bytes_max=35_000).end == len(wide)


def test_batch_that_takes_long_is_for_others_to_check() -> None:
    batch = bytes(build_batch([Record(number, T, b"k", bytes(100)) for number in range(100)], codec=Codec.GZIP))
    small, rules = one(batch_of(3)), DEFAULTS._replace(at_once_max=10_000)
    assert Taken(one(batch), rules=rules).end == 0
    assert Taken(small + one(batch), rules=rules).end == len(small)


def test_so_many_batches_are_taken_at_a_time() -> None:
    request = request_of(("t", [(0, batch_of(1)), (1, batch_of(1))]))
    assert Taken(request * 9, {0: AMPLE, 1: AMPLE}, batches_max=5).end == 3 * len(request)


def test_nothing_is_kept_of_requests_that_were_taken() -> None:
    """A broker takes billions of them."""
    before, request = 400 * b"?", one(batch_of()) + one(of_producer(5, 0))

    def take_many() -> int:
        for _ in range(500):
            taken = Taken(before + request, {0: AMPLE._replace(sequences={5: (0, 0)})}, position=len(before))
            assert taken.end == len(before + request)
        gc.collect()
        return sys.getallocatedblocks()

    take_many()
    settled = take_many()
    assert take_many() < settled + 250


requests = st.builds(
    request_of,
    st.tuples(st.just("t"), st.lists(st.tuples(st.integers(0, 3), batches().map(bytes)), min_size=1, max_size=3)),
    version=st.integers(3, 13),
    number=st.integers(-(2**31), 2**31 - 1),
    acks=st.sampled_from([-1, 0, 1]),
    client_id=st.sampled_from([None, "", "client"]),
)


@settings(max_examples=300)
@given(st.lists(requests, max_size=4), st.binary(max_size=6), produce_rules, st.integers(0, 2000), st.data())
def test_both_kernels_take_the_same(
    found: list[bytes], behind: bytes, rules: ProduceRules, room: int, data: st.DataObject
) -> None:
    sent = bytearray(b"".join(found) + behind)
    if sent and data.draw(st.booleans()):
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    sequences = data.draw(st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 2), st.integers(0, 5))))
    place = ProducePlace(100, 3, 50, room, 5, T + 5, 130, sequences)
    limits = {"batches_max": data.draw(st.integers(1, 5)), "bytes_max": data.draw(st.integers(0, 3000))}
    cut = data.draw(st.integers(0, len(sent)))
    for part in (bytes(sent), bytes(sent[:cut])):
        both = [
            Taken(part, {0: place, 1: place, 2: place}, chosen=implementation_named(name), rules=rules, **limits).values
            for name in ("reference", "native")
        ]
        assert both[0] == both[1]
