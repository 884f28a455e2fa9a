"""Codecs that work in steps: the same messages, a bounded amount of work between two pauses, a bound on memory."""

import tracemalloc
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from wire_samples import MESSAGES, carried, filled, instances

from ottla.wire.api import ApiKey, request_class
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.codec import (
    DECODED_BYTES_MAX,
    Malformed,
    Unencodable,
    decode,
    decode_in_steps,
    encode,
    encode_in_steps,
)
from ottla.wire.frame import decode_request_in_steps, encode_request, encode_response, encode_response_in_steps
from ottla.wire.rows import Shared
from ottla.wire.schema import message_of

T = TypeVar("T")

ELEMENTS_PER_STEP = 128
VERSION = 7


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and how many pauses there were."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def decoded(cls: type[Any], version: int, data: bytes) -> Any:
    (message, position), _ = run(decode_in_steps(cls, version, data))
    assert position == len(data)
    return message


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_steps_write_and_read_what_the_others_do(cls: type[Any]) -> None:
    @settings(max_examples=3, database=None, suppress_health_check=list(HealthCheck))
    @given(instances(cls))
    def check(message: Any) -> None:
        for version in message_of(cls).versions:
            for sent in (carried(message, version), filled(cls, version)):
                data = encode(sent, version)
                parts, _ = run(encode_in_steps(sent, version))
                assert b"".join(parts) == data, version
                assert decoded(cls, version, data) == sent, version

    check()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_steps_refuse_what_the_others_do(cls: type[Any]) -> None:
    version = message_of(cls).versions[-1]
    data = encode(filled(cls, version), version)
    for cut in range(0, len(data), 1 + len(data) // 50):
        with pytest.raises(Malformed) as plain:
            decode(cls, version, data[:cut])
        with pytest.raises(Malformed) as stepwise:
            run(decode_in_steps(cls, version, data[:cut]))
        assert str(stepwise.value) == str(plain.value)


def asked(partitions: int, topics: int = 1) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=1, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[one] * partitions) for _ in range(topics)]
    )


@pytest.mark.parametrize(("partitions", "topics"), [(20_000, 1), (1, 20_000), (100, 200)])
def test_pauses_come_after_so_many_elements_however_they_are_nested(partitions: int, topics: int) -> None:
    request = asked(partitions, topics)
    (message, _), pauses = run(decode_in_steps(ListOffsetsRequest, VERSION, encode(request, VERSION)))
    assert message == request
    elements = topics + partitions * topics
    assert elements // ELEMENTS_PER_STEP <= pauses <= elements // ELEMENTS_PER_STEP + 1
    answer = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t", partitions=[ListOffsetsPartitionResponse(partition_index=1, error_code=0)] * partitions
            )
        ]
        * topics
    )
    parts, pauses = run(encode_in_steps(answer, VERSION))
    assert pauses >= elements // ELEMENTS_PER_STEP
    assert b"".join(parts) == encode(answer, VERSION)


def test_numbers_are_read_in_steps_too() -> None:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(100_000)))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    (message, _), pauses = run(decode_in_steps(AddPartitionsToTxnRequest, 3, encode(request, 3)))
    assert message == request
    assert pauses >= 20


def test_small_message_is_one_step() -> None:
    """Which tells the broker that a large frame holds few elements, such as a Produce with its records."""
    _, pauses = run(decode_in_steps(ListOffsetsRequest, VERSION, encode(asked(20), VERSION)))
    assert pauses == 0


def run_or_refuse(cls: type[Any], version: int, data: bytes) -> None:
    with suppress(Malformed):
        run(decode_in_steps(cls, version, data))


WIDE = [key for key in ApiKey if any(f.array for f in request_class(key).__structure__.fields)]


@pytest.mark.parametrize("key", WIDE, ids=lambda key: key.name)
def test_memory_is_bounded_whatever_is_repeated(key: ApiKey) -> None:
    """Eight megabytes of the smallest elements would take a gigabyte: such a request is no request."""
    cls = request_class(key)
    version = message_of(cls).versions[-1]
    for f in cls.__structure__.fields:
        if not f.array or not f.in_version(version) or f.tag is not None:
            continue
        message = filled(cls, version)
        setattr(message, f.name, getattr(message, f.name) * 400_000)
        data = encode(message, version)[: 8 << 20]
        run_or_refuse(cls, version, encode(filled(cls, version), version))  # Compiles the decoder, which allocates too.
        tracemalloc.start()
        try:
            run_or_refuse(cls, version, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < DECODED_BYTES_MAX * 5 // 4, f.name


def test_bound_on_memory_names_the_field() -> None:
    names = MetadataRequest(topics=[MetadataRequestTopic(name="")] * 1_000_000)
    with pytest.raises(Malformed, match="MetadataRequest v9: topics has more elements than there is memory for"):
        run(decode_in_steps(MetadataRequest, 9, encode(names, 9)))


def test_hundred_thousand_partitions_are_a_request() -> None:
    """Kafka answers them in 37 ms."""
    (message, _), _ = run(decode_in_steps(ListOffsetsRequest, VERSION, encode(asked(100_000), VERSION)))
    assert len(message.topics[0].partitions) == 100_000


def test_wide_characters_count_by_what_they_take() -> None:
    """One character beyond the first 65,536 makes every other of the string four bytes wide."""
    names = [MetadataRequestTopic(name="x" * 30_000 + "🦦")] * 400
    with pytest.raises(Malformed):
        run(decode_in_steps(MetadataRequest, 9, encode(MetadataRequest(topics=names), 9)))
    narrow = [MetadataRequestTopic(name="x" * 30_000)] * 400
    run(decode_in_steps(MetadataRequest, 9, encode(MetadataRequest(topics=narrow), 9)))


@pytest.mark.parametrize("count", [257, 100_000])
def test_more_tagged_fields_than_any_message_has_are_refused(count: int) -> None:
    """Unknown ones are skipped one by one, before anybody can pause."""
    head = bytearray()
    value = count
    while value >= 0x80:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    head.append(value)
    data = b"\1" + b"\0\0\0" + bytes(head) + b"\x64\0" * count  # No topics, three flags, tags.
    with pytest.raises(Malformed, match=f"are {count}; at most 256 are read"):
        decode(MetadataRequest, 9, data)
    with pytest.raises(Malformed, match=f"are {count}; at most 256 are read"):
        run(decode_in_steps(MetadataRequest, 9, data))


def test_frames_are_those_of_the_other_codec() -> None:
    request = asked(1_000)
    frame = b"".join(encode_request(request, VERSION, 7, "c"))[4:]
    told, _ = run(decode_request_in_steps(frame))
    assert (told.api_key, told.version, told.correlation_id, told.client_id) == (ApiKey.LIST_OFFSETS, VERSION, 7, "c")
    assert told.body == request
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[])])
    parts, _ = run(encode_response_in_steps(answer, VERSION, 7))
    assert b"".join(parts) == b"".join(encode_response(answer, VERSION, 7))


def test_value_that_cannot_be_encoded_names_its_field() -> None:
    wrong = ListOffsetsPartitionResponse(partition_index="x", error_code=0)  # type: ignore[arg-type]
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[wrong])])
    with pytest.raises(Unencodable, match=r"topics\[\].partitions\[\].partition_index"):
        run(encode_in_steps(answer, VERSION))


def test_shared_array_is_encoded_once_and_stands_many_times() -> None:
    """Ten thousand descriptions of one broker take the memory of one."""
    settings_ = [
        DescribeConfigsResourceResult(
            name=f"a.setting.{number}", value="x" * 20, read_only=False, is_sensitive=False, synonyms=[]
        )
        for number in range(300)
    ]
    shared = Shared(settings_)

    def answer(configs: Any) -> DescribeConfigsResponse:
        one = DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=4, resource_name="1", configs=configs
        )
        return DescribeConfigsResponse(throttle_time_ms=0, results=[one] * 50)

    plain = encode(answer(settings_), 4)
    parts, _ = run(encode_in_steps(answer(shared), 4))
    assert b"".join(parts) == plain == encode(answer(shared), 4)
    large = [part for part in parts if len(part) > 1_000]
    assert len(large) == 50
    assert len({id(part) for part in large}) == 1
    assert shared == settings_
    assert (shared[0], len(shared), list(shared[:2])) == (settings_[0], 300, settings_[:2])


def test_bytes_of_a_shared_array_are_those_of_its_version() -> None:
    shared = Shared(
        [
            DescribeConfigsResourceResult(
                name="a", value="b", read_only=False, is_sensitive=False, synonyms=[], config_type=3
            )
        ]
    )
    for _ in range(2):
        for version in message_of(DescribeConfigsResponse).versions:
            answers = [
                DescribeConfigsResponse(
                    throttle_time_ms=0,
                    results=[
                        DescribeConfigsResult(
                            error_code=0, error_message=None, resource_type=2, resource_name="t", configs=configs
                        )
                    ],
                )
                for configs in (shared, list(shared))
            ]
            assert encode(answers[0], version) == encode(answers[1], version)
