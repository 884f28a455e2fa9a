"""Addresses, back-off, frames and versions: what every connection to a broker begins with."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.rpc.addresses import Address, parse_bootstrap
from ottla.rpc.backoff import Backoff
from ottla.rpc.errors import error_of
from ottla.rpc.frames import FrameReader
from ottla.rpc.versions import NoCommonVersion, Versions, ask_again_with, decode_api_versions
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.errors import Error
from ottla.wire.frame import BadFrame, encode_response


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", [Address("h", 1)]),
        ("h", [Address("h", 9092)]),
        (" a:1 , b:2,a:1,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:7", [Address("::1", 7)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_addresses_as_people_write_them(text: str, expected: list[Address]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", ":1", "h:", "h:0", "h:65536", "h:x", "::1:9092", "h:²"])
def test_address_that_is_none_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|port|brackets"):
        parse_bootstrap(text)


def test_waits_double_up_to_a_limit_and_are_spread() -> None:
    backoff, chance = Backoff(100, 1_000), Random(1)
    assert backoff.wait_ms(0, chance) == 0
    for failures, planned in [(1, 100), (2, 200), (4, 800), (5, 1_000), (60, 1_000)]:
        waits = {backoff.wait_ms(failures, chance) for _ in range(200)}
        assert planned * 8 // 10 <= min(waits) < planned < max(waits) <= planned * 12 // 10


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=8), st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader, seen = FrameReader(1_000), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += [bytes(frame) for frame in reader.feed(stream[start:end])]
    assert seen == frames


@pytest.mark.parametrize("size", [-1, 0, 3, 1_001, int.from_bytes(b"HTTP", "big")])
def test_size_that_no_frame_has_is_refused_before_its_bytes_come(size: int) -> None:
    with pytest.raises(BadFrame, match=str(size)):
        FrameReader(1_000).feed(size.to_bytes(4, "big", signed=True))


def _versions(first: int, last: int) -> Versions:
    keys = [ApiVersion(api_key=1, min_version=first, max_version=last)]
    return Versions(ApiVersionsResponse(error_code=0, api_keys=keys))


def test_newest_common_version_is_chosen() -> None:
    assert _versions(0, 99).choose(FetchRequest) == 18
    assert _versions(0, 11).choose(FetchRequest) == 11
    assert _versions(0, 99).choose(FetchRequest, at_most=12) == 12


@pytest.mark.parametrize(("first", "last"), [(0, 3), (19, 30)])
def test_no_common_version_says_both_ranges(first: int, last: int) -> None:
    with pytest.raises(NoCommonVersion) as none:
        _versions(first, last).choose(FetchRequest)
    assert (none.value.ours, none.value.theirs) == ((4, 18), (first, last))


def test_server_that_knows_only_an_older_api_versions_is_understood() -> None:
    """KIP-511: it answers in the form of version 0, whatever it was asked in."""
    told = ApiVersionsResponse(
        error_code=Error.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    frame = b"".join(encode_response(told, 0, 5))[4:]
    answer = decode_api_versions(4, frame)
    assert (answer.error_code, ask_again_with(answer)) == (Error.UNSUPPORTED_VERSION, 2)
    assert ask_again_with(ApiVersionsResponse(error_code=35, api_keys=[])) == 0


def test_answer_in_the_version_asked_is_understood() -> None:
    told = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=4, max_version=18)])
    assert decode_api_versions(4, b"".join(encode_response(told, 4, 5))[4:]) == told


def test_error_code_of_a_later_kafka_is_an_error_all_the_same() -> None:
    assert error_of(9_999) is Error.UNKNOWN_SERVER_ERROR
    assert error_of(3) is Error.UNKNOWN_TOPIC_OR_PARTITION
