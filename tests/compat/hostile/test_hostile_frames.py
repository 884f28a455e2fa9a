"""Bytes that no client should send. Each gets Kafka's error or a closed connection and one line in the log."""

import random
from struct import pack

import pytest
from nodes.ottla_node import OttlaNode, wait_until
from nodes.wire import PRODUCE_VERSION, Wire, batch_of, produce_request

from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response, encode_request

pytestmark = pytest.mark.usefixtures("honest")

API_VERSIONS, METADATA, PRODUCE, SHARE_FETCH = 18, 3, 0, 78
MANY = 2**31 - 1


def header(api_key: int, version: int, *, flexible: bool = False) -> bytes:
    """A request header with correlation id 7 and client id "x"."""
    return pack(">hhih1s", api_key, version, 7, 1, b"x") + (b"\x00" if flexible else b"")


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def lines_about(node: OttlaNode, wire: Wire) -> list[str]:
    host, port = wire.socket.getsockname()
    return [line for line in node.warnings() if f"peer={host}:{port} " in line]


def assert_cut_off(node: OttlaNode, wire: Wire) -> None:
    """The connection ends, and the log says once why; where it is one of very many, it may only be counted."""
    counted = sums_of_refusals(node)
    assert wire.is_closed_by_peer()
    wait_until(
        lambda: bool(lines_about(node, wire)) or sums_of_refusals(node) > counted,
        "the log says why the connection ended",
    )
    assert len(lines_about(node, wire)) <= 1, lines_about(node, wire)


def sums_of_refusals(node: OttlaNode) -> int:
    return sum("connection.more_refused" in line for line in node.warnings())


PRODUCE_FRAME = b"".join(encode_request(produce_request("target", batch_of([b"v"] * 3)), PRODUCE_VERSION, 1, "c"))

CUT_OFF = {
    "negative length": pack(">i", -1),
    "length of two gigabytes": pack(">i", MANY) + b"x" * 100,
    "length over the limit": pack(">i", 104_857_601),
    "empty frame": framed(b""),
    "frame shorter than a header": framed(b"\x00\x03\x00"),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100a5010000a10303") + bytes(150),
    "client id longer than the frame": framed(pack(">hhih", METADATA, 1, 7, 30_000) + b"x"),
    "array of two thousand million topics": framed(header(METADATA, 1) + pack(">i", MANY)),
    "compact array of four thousand million topics": framed(header(METADATA, 9, flexible=True) + varint(2**32 - 1)),
    "compact string of four gigabytes": framed(
        header(METADATA, 9, flexible=True) + varint(2) + varint(2**32 - 1) + b"x"
    ),
    "varint that does not end": framed(header(METADATA, 9, flexible=True) + b"\xff" * 20),
    "array of minus two": framed(header(METADATA, 1) + pack(">i", -2)),
    "tagged fields without end": framed(
        header(METADATA, 9, flexible=True) + varint(1) + b"\x00\x00\x00" + varint(2**32 - 1)
    ),
    "name that is not UTF-8": framed(header(METADATA, 1) + pack(">ih2s", 1, 2, b"\xff\xfe")),
    "api that does not exist": framed(header(9_999, 0)),
    "negative api": framed(header(-1, 0)),
    "version that does not exist": framed(header(METADATA, 99)),
    "negative version": framed(header(METADATA, -1)),
    "produce before version 3": framed(header(PRODUCE, 2) + bytes(10)),
    "api that is not served": framed(header(SHARE_FETCH, 1, flexible=True) + bytes(20)),
    "records longer than the frame": framed(
        header(PRODUCE, 3) + pack(">hhii", -1, -1, 1000, 1) + pack(">h6sii", 6, b"target", 1, 0) + pack(">i", MANY)
    ),
}


@pytest.mark.parametrize("sent", CUT_OFF.values(), ids=CUT_OFF.keys())
def test_what_is_no_request_ends_the_connection(node: OttlaNode, sent: bytes) -> None:
    with Wire(node.bootstrap) as wire:
        wire.socket.sendall(sent)
        assert_cut_off(node, wire)


@pytest.mark.parametrize("size", [-1, MANY])
def test_length_that_arrives_in_pieces_is_checked_too(node: OttlaNode, size: int) -> None:
    with Wire(node.bootstrap) as wire:
        first = pack(">i", size)
        ask_and_send(wire, first[:3])
        wire.socket.sendall(first[3:])
        assert_cut_off(node, wire)


def ask_and_send(wire: Wire, rest: bytes) -> None:
    """A request and a piece of the next; once it is answered, the piece has arrived too."""
    request = MetadataRequest(topics=[])
    wire.socket.sendall(b"".join(encode_request(request, 1, 1, None)) + rest)
    wire.receive(request, 1)


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_unknown_version_of_api_versions_is_answered_with_those_there_are(node: OttlaNode, version: int) -> None:
    """KIP-511: a client newer than the broker must be able to find out."""
    with Wire(node.bootstrap) as wire:
        wire.socket.sendall(framed(header(API_VERSIONS, version, flexible=True) + b"\x02a\x02b\x00"))
        correlation_id, answer = decode_response(API_VERSIONS, 0, wire.receive_frame())
        assert (correlation_id, answer.error_code) == (7, Error.UNSUPPORTED_VERSION)
        assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(API_VERSIONS, 0, 4)]
        request = ApiVersionsRequest(client_software_name="a", client_software_version="b")
        assert wire.call(request, 3).error_code == 0, "the connection goes on"


def test_answers_before_the_bad_frame_arrive(node: OttlaNode) -> None:
    with Wire(node.bootstrap) as wire:
        ask_and_send(wire, pack(">i", -1))
        assert_cut_off(node, wire)


def test_request_cut_anywhere_ends_the_connection(node: OttlaNode) -> None:
    """The frame says that it is whole, what is in it is not."""
    body = PRODUCE_FRAME[4:]
    for length in range(0, len(body) - 1, 7):
        with Wire(node.bootstrap) as wire:
            wire.socket.sendall(framed(body[:length]))
            assert wire.is_closed_by_peer(), length


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_harm_nobody(node: OttlaNode, seed: int) -> None:
    """Whatever it means now, it is answered or the connection ends; the node goes on."""
    chance = random.Random(seed)
    for _ in range(60):
        body = bytearray(PRODUCE_FRAME[4:])
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        with Wire(node.bootstrap) as wire:
            wire.socket.settimeout(5)
            wire.socket.sendall(framed(bytes(body)))
            # A request with acks=0 has no answer; the one after it has.
            wire.send(MetadataRequest(topics=[]), 1)
            try:
                wire.receive_frame()
            except ConnectionError:
                continue


@pytest.mark.parametrize("seed", range(3))
def test_garbage_harms_nobody(node: OttlaNode, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        api_key, version = chance.randint(0, 80), chance.randint(0, 18)
        body = header(api_key, version) + chance.randbytes(chance.randint(0, 200))
        with Wire(node.bootstrap) as wire:
            wire.socket.sendall(framed(body))
            wire.send(MetadataRequest(topics=[]), 1)
            try:
                wire.receive_frame()
            except ConnectionError:
                continue
