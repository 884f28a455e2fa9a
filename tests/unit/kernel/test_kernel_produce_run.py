"""Runs of Produce requests: what belongs to one, what ends it, and that both kernels say the same."""

from struct import Struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import implementation_named
from kernel_samples import NOW, T, batches, produce_rules

from ottla import kernel
from ottla.kernel import Codec, ProduceRules, Record, Run, TimestampType, build_batch

KIND, REST = b"\0\0\0\x0d", b"the same in all"
PATTERN = KIND + REST
ENDS = bytes(3)
DEFAULTS = ProduceRules()
HEAD = Struct(">i4si")


def batch_of(count: int = 2, **options: Any) -> bytes:
    return bytes(build_batch([Record(number, T, b"k", b"value") for number in range(count)], **options))


def request_of(batch: bytes, number: int = 7, *, kind: bytes = KIND, rest: bytes = REST, ends: bytes = ENDS) -> bytes:
    length, left = b"", len(batch) + 1
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    body = rest + length + bytes([left]) + batch + ends
    return HEAD.pack(len(body) + 8, kind, number) + body


def run_of(data: bytes, rules: ProduceRules = DEFAULTS, position: int = 0) -> Run:
    return kernel.check_run(memoryview(bytearray(data)), position, PATTERN, rules, NOW, 100, 3)


def test_requests_that_are_alike_are_taken_together() -> None:
    sent = [batch_of(2), batch_of(300), batch_of(1)]
    data = b"".join(request_of(batch, number) for number, batch in enumerate(sent, start=4))
    run = run_of(b"???" + data + request_of(sent[0])[:-1], position=3)
    assert run.end == 3 + len(data)
    assert run.correlation_ids == [4, 5, 6]
    assert [bytes(batch) for batch in run.batches] == sent
    assert [(header.base_offset, header.leader_epoch) for header in run.headers] == [(100, 3), (102, 3), (402, 3)]
    assert (run.size, run.max_timestamp) == (sum(map(len, sent)), T)


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
    assert run_of(first + other + first).end == len(first)
    alone = run_of(other + first)
    assert alone == (0, 0, -1, [], [], [])


def test_what_must_be_compressed_anew_belongs_to_no_run() -> None:
    rules = ProduceRules(codec=Codec.LZ4)
    assert run_of(request_of(batch_of()), rules).headers == []
    assert len(run_of(request_of(batch_of(codec=Codec.LZ4)), rules).headers) == 1


def test_the_broker_s_time_is_written_into_every_batch() -> None:
    data = memoryview(bytearray(request_of(batch_of()) * 2))
    rules = ProduceRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    run = kernel.check_run(data, 0, PATTERN, rules, NOW, 100, 3)
    assert [header.append_time for header in run.headers] == [NOW, NOW]
    assert bytes(data) == request_of(batch_of()) * 2, "nothing is written before it is stamped"
    kernel.stamp_run(run.batches, run.headers)
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
    assert len(run_of(data).headers) == taken


def test_a_run_has_an_end() -> None:
    request = request_of(batch_of(1))
    assert run_of(request * 300).end == 256 * len(request)


@settings(max_examples=150)
@given(
    st.lists(batches(), max_size=4),
    st.binary(max_size=6),
    produce_rules,
    st.data(),
)
def test_both_kernels_take_the_same(
    found: list[bytearray], behind: bytes, rules: ProduceRules, data: st.DataObject
) -> None:
    sent = bytearray(b"".join(request_of(bytes(batch)) for batch in found) + behind)
    if sent and data.draw(st.booleans()):
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    answers = []
    for name in ("reference", "native"):
        own = bytearray(sent)
        chosen = implementation_named(name)
        run = chosen.check_run(memoryview(own), 0, PATTERN, rules, NOW, 100, 3)
        assert own == sent
        chosen.stamp_run(run.batches, run.headers)
        answers.append((run._replace(batches=[bytes(batch) for batch in run.batches]), own))
    assert answers[0] == answers[1]
