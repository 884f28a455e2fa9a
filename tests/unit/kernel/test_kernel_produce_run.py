"""Runs of Produce requests: what belongs to one, what ends it, and that both kernels say the same."""

import gc
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import implementation_named
from kernel_samples import NOW, T, batches, produce_rules

from ottla import kernel
from ottla.kernel import (
    BatchHeader,
    Codec,
    Exchange,
    ProduceRules,
    Record,
    Room,
    Run,
    TimestampType,
    build_batch,
)
from ottla.wire.errors import Error, Refused

KIND, REST = b"\0\0\0\x0d", b"the same in all"
PATTERN = KIND + REST
ENDS = bytes(3)
DEFAULTS = ProduceRules()
AMPLE = Room(1 << 30, 1 << 20, 2**63 - 1, 2**31)
HEAD = Struct(">i4si")
CHANGES = Struct(">qqq")
ANSWER = b"size    and more" + bytes(CHANGES.size) + b"the end"
EXCHANGE = Exchange(PATTERN, ANSWER, 16)


def batch_of(count: int = 2, **options: Any) -> bytes:
    return bytes(build_batch([Record(number, T, b"k", b"value") for number in range(count)], **options))


def request_of(batch: bytes, number: int = 7, *, kind: bytes = KIND, rest: bytes = REST, ends: bytes = ENDS) -> bytes:
    length, left = b"", len(batch) + 1
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    body = rest + length + bytes([left]) + batch + ends
    return HEAD.pack(len(body) + 8, kind, number) + body


def answer(number: int, base_offset: int, append_time: int = -1) -> bytes:
    return b"size" + number.to_bytes(4, "big") + b"and more" + CHANGES.pack(base_offset, append_time, 50) + b"the end"


def begun(
    rules: ProduceRules = DEFAULTS,
    room: Room = AMPLE,
    *,
    chosen: Any = kernel,
    may_begin: Callable[[BatchHeader], bool] = lambda _: True,
) -> Run:
    return chosen.Run(rules, room, NOW, 100, 3, 50, may_begin)


def taken(run: Run, data: bytes, position: int = 0) -> int | None:
    """Where the requests end that the run takes."""
    answered = run.take(memoryview(bytearray(data)), position, EXCHANGE)
    return answered[0] if answered is not None else None


def numbers(run: Run) -> list[tuple[int, int]]:
    return [(header.base_offset, header.leader_epoch) for header in run.headers]


def test_requests_that_are_alike_are_taken_together() -> None:
    sent = [batch_of(2), batch_of(300), batch_of(1)]
    data = b"".join(request_of(batch, number) for number, batch in enumerate(sent, start=4))
    run = begun()
    arrived = memoryview(bytearray(b"???" + data + request_of(sent[0])[:-1]))
    assert run.take(arrived, 3, EXCHANGE) == (3 + len(data), answer(4, 100) + answer(5, 102) + answer(6, 402))
    assert numbers(run) == [(100, 3), (102, 3), (402, 3)]
    assert (run.size, run.next_offset) == (sum(map(len, sent)), 403)
    assert [bytes(batch[16:]) for batch in run.batches] == [batch[16:] for batch in sent]
    assert [kernel.read_header(batch) for batch in run.batches] == run.headers
    assert all(batch.obj is arrived.obj for batch in run.batches), "they were copied"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_run_takes_no_more_at_a_time_than_may_be_checked_at_once(codec: Codec) -> None:
    """A buffer full of small requests may unpack to gigabytes."""
    batch = bytes(build_batch([Record(number, T, b"k", bytes(100)) for number in range(100)], codec=codec))
    one = request_of(batch)
    run = begun(DEFAULTS._replace(at_once_max=25_000))
    ends = [taken(run, one * 10)]
    while (end := ends[-1]) is not None and end < 10 * len(one):
        ends.append(taken(run, one * 10, end))
    assert ends == [3 * len(one), 6 * len(one), 9 * len(one), 10 * len(one)]


def test_batch_that_takes_long_is_for_others_to_check() -> None:
    batch = bytes(build_batch([Record(number, T, b"k", bytes(100)) for number in range(100)], codec=Codec.GZIP))
    run = begun(DEFAULTS._replace(at_once_max=10_000))
    assert taken(run, request_of(batch)) is None
    small = request_of(batch_of(3))
    assert taken(run, small + request_of(batch)) == len(small)


def test_a_run_goes_on_with_what_others_sent() -> None:
    first, second = request_of(batch_of(2), 1), request_of(batch_of(3), 2, rest=b"other")
    run = begun()
    assert run.take(memoryview(bytearray(first)), 0, EXCHANGE) == (len(first), answer(1, 100))
    other = Exchange(KIND + b"other", b"#" + ANSWER, EXCHANGE.changes_at + 1)
    assert run.take(memoryview(bytearray(second)), 0, EXCHANGE) is None
    end, answers = run.take(memoryview(bytearray(second)), 0, other) or (0, b"")
    assert (end, len(answers), answers[4:8]) == (len(second), len(ANSWER) + 1, b"\0\0\0\2")
    assert numbers(run) == [(100, 3), (102, 3)]


@pytest.mark.parametrize(
    ("room", "fit"),
    [
        ({}, 3),
        ({"batches": 2}, 2),
        ({"batches": 0}, 0),
        ({"bytes": 3 * len(batch_of())}, 3),
        ({"bytes": 3 * len(batch_of()) - 1}, 2),
        ({"latest_timestamp": T}, 3),
        ({"latest_timestamp": T - 1}, 0),
        ({"last_offset": 105}, 3),
        ({"last_offset": 104}, 2),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_run_ends_where_there_is_no_more_room(room: dict[str, int], fit: int, at_once: bool) -> None:
    run, request = begun(room=AMPLE._replace(**room)), request_of(batch_of())
    if at_once:
        assert taken(run, 4 * request if fit < 3 else 3 * request) == (fit * len(request) or None)
    else:
        assert [taken(run, request) for _ in range(3)] == fit * [len(request)] + (3 - fit) * [None]
    assert (len(run.headers), len(run.batches), run.next_offset) == (fit, fit, 100 + 2 * fit)


@pytest.mark.parametrize(
    "other",
    [
        request_of(batch_of(), kind=b"\0\0\0\x0c"),
        request_of(batch_of(), rest=b"the same in alL"),
        request_of(batch_of(), ends=b"\0\0"),
        request_of(batch_of(), ends=b"\0\0\1"),
        request_of(batch_of(), ends=bytes(4)),
        request_of(b""),
        request_of(batch_of()[:-1]),
        request_of(batch_of()[:-1] + b"\xff"),
        request_of(batch_of() * 2),
        request_of(b"\0\0\0\0\0\0\0\1" + batch_of()[8:]),
        request_of(batch_of(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)),
        request_of(batch_of(control=True)),
        HEAD.pack(-1, KIND, 1) + REST,
        HEAD.pack(8 + len(REST), KIND, 1) + REST,
        HEAD.pack(13 + len(REST), KIND, 1) + REST + b"\xff\xff\xff\xff\xff",
        b"\0\0",
    ],
)
def test_anything_else_ends_the_run_before_it(other: bytes) -> None:
    first = request_of(batch_of())
    assert taken(begun(), first + other + first) == len(first)
    alone = begun()
    assert taken(alone, other + first) is None
    assert (alone.headers, alone.batches, alone.size, alone.next_offset) == ([], [], 0, 100)


def test_what_must_be_compressed_anew_belongs_to_no_run() -> None:
    rules = ProduceRules(codec=Codec.LZ4)
    assert taken(begun(rules), request_of(batch_of())) is None
    assert taken(begun(rules), request_of(batch_of(codec=Codec.LZ4))) is not None


def test_the_broker_s_time_is_written_into_every_batch() -> None:
    run, data = begun(ProduceRules(timestamp_type=TimestampType.LOG_APPEND_TIME)), request_of(batch_of()) * 2
    end, answers = run.take(memoryview(bytearray(data)), 0, EXCHANGE) or (0, b"")
    assert (end, answers) == (len(data), answer(7, 100, NOW) + answer(7, 102, NOW))
    for batch, header in zip(run.batches, run.headers, strict=True):
        assert kernel.read_header(batch) == header
        assert kernel.crc_ok(batch, 0, header.size)
        assert kernel.scan(batch).headers[0].max_timestamp == NOW


@pytest.mark.parametrize(
    ("producers", "taken"),
    [
        ([(5, 0, 0), (5, 0, 2), (5, 0, 4)], 3),
        ([(5, 0, 0), (5, 0, 0)], 1),
        ([(5, 0, 0), (5, 0, 4)], 1),
        ([(5, 0, 0), (5, 1, 2)], 1),
        ([(5, 0, 0), (6, 0, 2)], 1),
        ([(5, 0, 0), (-1, -1, -1)], 1),
        ([(-1, -1, -1), (5, 0, 0)], 1),
        ([(5, 0, 2**31 - 2), (5, 0, 0)], 2),
        ([(5, 0, 2**31 - 1), (5, 0, 1)], 2),
    ],
)
def test_sequences_follow_each_other(producers: list[tuple[int, int, int]], taken: int) -> None:
    data = b"".join(
        request_of(batch_of(producer_id=number, producer_epoch=epoch, base_sequence=sequence))
        for number, epoch, sequence in producers
    )
    run = begun()
    run.take(memoryview(bytearray(data)), 0, EXCHANGE)
    assert len(run.headers) == taken


def numbered(producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    return request_of(batch_of(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def test_a_producer_is_asked_for_once_in_a_run() -> None:
    asked: list[tuple[int, int]] = []

    def may_begin(first: BatchHeader) -> bool:
        asked.append((first.producer_id, first.base_offset))
        return first.producer_id != 9

    run = begun(may_begin=may_begin)
    requests = [numbered(5, 0), numbered(9, 0), numbered(6, 7), numbered(5, 2), request_of(batch_of())]
    assert [taken(run, request) is not None for request in requests] == [True, False, True, True, True]
    assert asked == [(5, 100), (9, 102), (6, 102)]
    assert [taken(run, again) for again in (numbered(5, 2), numbered(5, 6), numbered(5, 4, epoch=1))] == 3 * [None]
    assert len(run.headers) == 4


def test_why_a_producer_may_not_begin_is_told_and_nothing_has_changed() -> None:
    def may_begin(_: BatchHeader) -> bool:
        raise Refused(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, "no")

    run, data = begun(may_begin=may_begin), bytearray(numbered(5, 0))
    with pytest.raises(Refused):
        run.take(memoryview(data), 0, EXCHANGE)
    assert (run.headers, run.batches, run.next_offset, bytes(data)) == ([], [], 100, numbered(5, 0))


def test_a_run_has_an_end() -> None:
    request = request_of(batch_of(1))
    assert taken(begun(), request * 300) == 256 * len(request)


@pytest.mark.parametrize(("size", "changes_at"), [(0, 0), (31, 8), (40, 7), (40, 17), (40, 2**63)])
def test_an_answer_without_a_place_for_what_changes_is_refused(size: int, changes_at: int) -> None:
    run = begun()
    with pytest.raises(ValueError, match=f"no place at {changes_at} of the answer"):
        run.take(memoryview(bytearray(request_of(batch_of()))), 0, Exchange(PATTERN, bytes(size), changes_at))
    assert run.headers == []


def test_nothing_is_kept_of_a_run_that_is_over() -> None:
    """A broker takes billions of them."""
    before, request = 400 * b"?", request_of(batch_of())
    arrived = memoryview(bytearray(before + request))

    def take_many() -> int:
        for _ in range(500):
            arrived[:] = before + request
            assert begun().take(arrived, len(before), EXCHANGE) is not None
        gc.collect()
        return sys.getallocatedblocks()

    take_many()
    settled = take_many()
    assert take_many() < settled + 250


@settings(max_examples=150)
@given(
    st.lists(batches(), max_size=4),
    st.binary(max_size=6),
    produce_rules,
    st.integers(0, 2000),
    st.data(),
)
def test_both_kernels_take_the_same(
    found: list[bytearray], behind: bytes, rules: ProduceRules, data_bytes: int, data: st.DataObject
) -> None:
    sent = bytearray(b"".join(request_of(bytes(batch)) for batch in found) + behind)
    if sent and data.draw(st.booleans()):
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(sent)))
    outcomes = []
    for name in ("reference", "native"):
        own = memoryview(bytearray(sent))
        run = begun(rules, Room(data_bytes, 5, T + 5, 130), chosen=implementation_named(name))
        answers = [run.take(own[:cut], 0, EXCHANGE), run.take(own, 0, EXCHANGE), run.take(own, cut, EXCHANGE)]
        written = [bytes(batch) for batch in run.batches]
        outcomes.append((answers, written, run.headers, run.size, run.next_offset, bytes(own)))
    assert outcomes[0] == outcomes[1]
