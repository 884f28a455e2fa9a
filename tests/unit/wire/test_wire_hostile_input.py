"""Whatever arrives, decoding gives a message or `Malformed`, and takes memory in proportion to the input."""

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import MESSAGE_VERSIONS, MESSAGES, filled

from ottla.wire.api import ApiKey, request_class
from ottla.wire.codec import Malformed, decode, encode
from ottla.wire.frame import UnknownRequest, decode_request
from ottla.wire.schema import message_of

BYTES_PER_BYTE = 150
"""A structure of a few bytes becomes a Python object: the factor is large, but a factor."""


def decodes(cls: type[Any], version: int, data: bytes) -> bool:
    """Any error but Malformed fails the test that asks."""
    try:
        decode(cls, version, data)
    except Malformed:
        return False
    return True


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_no_part_of_a_message_passes_for_the_whole(cls: type[Any]) -> None:
    for version in message_of(cls).versions:
        data = encode(filled(cls, version), version)
        assert decodes(cls, version, data), version
        assert [size for size in range(len(data)) if decodes(cls, version, data[:size])] == [], version
        assert not decodes(cls, version, data + b"\0"), version


def damaged(data: bytes) -> Iterator[bytes]:
    """A message overwritten, place by place, by what makes the worst lengths and counts."""
    for position in range(0, len(data), 1 + len(data) // 80):
        for worst in (b"\x00", b"\x7f", b"\x80", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80" * 12):
            yield data[:position] + worst + data[position + len(worst) :]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_damage_anywhere_gives_a_message_or_malformed(cls: type[Any]) -> None:
    for version in {message_of(cls).versions[0], message_of(cls).versions[-1]}:
        for data in damaged(encode(filled(cls, version), version)):
            decodes(cls, version, data)


def test_damage_never_makes_the_decoder_allocate() -> None:
    """Counts of billions are refused before a list is made."""
    cases = [(cls, message_of(cls).versions[-1]) for cls in MESSAGES]
    inputs = [(cls, version, encode(filled(cls, version), version)) for cls, version in cases]
    longest = max(len(data) for _, _, data in inputs)
    randomness = random.Random(1)
    chosen = [(cls, version, randomness.choices(list(damaged(data)), k=10)) for cls, version, data in inputs if data]
    for cls, version, data in inputs:
        decodes(cls, version, data)  # Compiled now, whatever other tests have run: compiling allocates too.
    tracemalloc.start()
    try:
        for cls, version, variants in chosen:
            for data in variants:
                decodes(cls, version, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + BYTES_PER_BYTE * longest


@pytest.mark.parametrize(
    ("api_key", "version", "head", "element"),
    [
        pytest.param(ApiKey.PRODUCE, 9, b"\0" + bytes(6), b"\1\1\0", id="topics of a Produce"),
        pytest.param(ApiKey.METADATA, 12, b"", bytes(16) + b"\0\0", id="topics of a Metadata"),
        pytest.param(ApiKey.DELETE_GROUPS, 2, b"", b"\1", id="empty strings"),
        pytest.param(ApiKey.LIST_GROUPS, 5, b"", b"\1", id="more empty strings"),
    ],
)
def test_many_small_elements_take_memory_in_proportion(
    api_key: ApiKey, version: int, head: bytes, element: bytes
) -> None:
    count = 20_000
    data = head + bytes([(count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14]) + element * count
    cls = request_class(api_key)
    with pytest.raises(Malformed):
        decode(cls, version, data[:-1])  # Compiled before the measurement; and one element less is noticed.
    tracemalloc.start()
    try:
        decodes(cls, version, data + bytes(8))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count < peak < BYTES_PER_BYTE * len(data)


@settings(max_examples=300, database=None)
@given(st.sampled_from(MESSAGE_VERSIONS), st.binary(max_size=120))
def test_random_bytes_give_a_message_or_malformed(case: tuple[type[Any], int], data: bytes) -> None:
    decodes(*case, data)


@settings(max_examples=300, database=None)
@given(st.sampled_from(list(ApiKey)), st.integers(-1, 20), st.binary(max_size=60))
def test_random_frames_give_a_request_or_a_typed_error(api_key: ApiKey, version: int, rest: bytes) -> None:
    frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest
    try:
        request = decode_request(frame)
    except (Malformed, UnknownRequest):
        return
    assert request.api_key is api_key
