"""Frames, headers and the look-up of messages by key and version."""

import sys
from subprocess import run
from typing import Any

import pytest

from ottla.wire.api import ApiKey, request_class, response_class
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.codec import Malformed
from ottla.wire.frame import (
    BadFrame,
    UnknownRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    split_frames,
)
from ottla.wire.schema import message_of


def frame(parts: list[Any]) -> bytes:
    """The contents of the one frame that parts make up."""
    (contents,), end = split_frames(b"".join(parts), 10_000)
    assert end == len(b"".join(parts))
    return bytes(contents)


def test_a_flexible_request_has_header_2_with_the_client_id_in_its_old_layout() -> None:
    sent = frame(encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3, 7, "me"))
    assert sent == b"\0\x12\0\3\0\0\0\7\0\2me\0" + b"\2a\2b\0"


def test_an_old_request_has_header_1() -> None:
    topics = [MetadataRequestTopic(name="t")]
    sent = frame(encode_request(MetadataRequest(topics=topics), 1, 7, None))
    assert sent == b"\0\3\0\1\0\0\0\7\xff\xff" + b"\0\0\0\1\0\1t"


def test_a_request_comes_back_from_its_frame() -> None:
    body = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    request = decode_request(frame(encode_request(body, 12, 99, "client")))
    assert request == (ApiKey.METADATA, 12, 99, "client", body)


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_comes_back_from_its_frame(version: int) -> None:
    body = MetadataResponse(throttle_time_ms=5, brokers=[], cluster_id="c", topics=[])
    assert decode_response(ApiKey.METADATA, version, frame(encode_response(body, version, 41))) == (41, body)


def test_responses_have_a_flexible_header_except_to_api_versions() -> None:
    """A client reads this answer before it knows whether the server has flexible versions."""
    answer = ApiVersionsResponse(error_code=0, api_keys=[])
    assert frame(encode_response(answer, 3, 1)) == b"\0\0\0\1" + b"\0\0\1\0\0\0\0\0"
    assert decode_response(ApiKey.API_VERSIONS, 3, frame(encode_response(answer, 3, 1))) == (1, answer)
    metadata = MetadataResponse(brokers=[], topics=[])
    assert frame(encode_response(metadata, 9, 1)).startswith(b"\0\0\0\1\0")


def test_record_data_reaches_the_frame_uncopied_and_counts_in_its_size() -> None:
    """Anything that has a length will do: it may be a part of a file, sent by the kernel."""

    class FileSlice:
        def __len__(self) -> int:
            return 70_000

    records: Any = FileSlice()
    topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    parts = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9, 1, None)
    assert records in parts
    assert parts[0][:4] == (sum(map(len, parts)) - 4).to_bytes(4, "big")
    assert len(parts) == 3, "what is small goes in one piece"


def test_frames_are_split_and_the_unfinished_one_is_left() -> None:
    data = b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\5de"
    assert split_frames(data, 5) == ([b"abc", b""], 11)
    assert split_frames(data + b"fgh", 5) == ([b"abc", b"", b"defgh"], 20)
    assert split_frames(b"\0\0\0", 5) == ([], 0)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\0\0\0\6", b"GET "])
def test_an_impossible_size_is_refused_before_the_frame_arrives(size: bytes) -> None:
    with pytest.raises(BadFrame, match="at most 5"):
        split_frames(b"\0\0\0\1x" + size, 5)


@pytest.mark.parametrize(("api_key", "version"), [(18, 5), (0, 2), (4, 0), (999, 0), (-1, 0), (3, -1)])
def test_an_unknown_request_still_tells_whom_to_answer(api_key: int, version: int) -> None:
    sent = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\1me"
    with pytest.raises(UnknownRequest) as raised:
        decode_request(sent)
    header = raised.value.header
    assert (header.request_api_key, header.request_api_version) == (api_key, version)
    assert (header.correlation_id, header.client_id) == (7, "m")


@pytest.mark.parametrize("size", range(8))
def test_a_header_cut_short_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match="RequestHeader"):
        decode_request(b"\0\x12\0\0\0\0\0\7"[:size])


def test_bytes_after_a_request_are_left_alone() -> None:
    """librdkafka ends Metadata v13 with three bytes of an older version, and Kafka takes it."""
    sent = frame(encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3, 7, "me"))
    assert decode_request(sent + b"\0\0") == decode_request(sent)


def test_bytes_after_a_response_are_malformed() -> None:
    with pytest.raises(Malformed, match="ends 1 bytes before"):
        decode_response(
            ApiKey.API_VERSIONS, 0, frame(encode_response(ApiVersionsResponse(error_code=0, api_keys=[]), 0, 1)) + b"\0"
        )


def test_every_key_leads_to_a_request_and_response_of_the_same_versions() -> None:
    for key in ApiKey:
        request, response = message_of(request_class(key)), message_of(response_class(key))
        assert request.api_key == response.api_key == key
        assert request.versions == response.versions
        assert request.listeners


def test_a_key_without_an_api_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="4"):
        request_class(4)


def test_an_api_is_imported_when_it_is_first_asked_for() -> None:
    """Opening the command must not cost the import of a hundred modules."""
    script = (
        "import sys, ottla.wire.frame as f; f.request_class(12); print(sorted(m for m in sys.modules if '.api.' in m))"
    )
    done = run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ottla.wire.api.heartbeat']"
