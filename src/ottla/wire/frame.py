"""Frames: a size in four bytes, a header, a message.

Rule 1: the header's version follows from the message's: a flexible message has a flexible header.
Rule 2: except the response to ApiVersions, whose header never changes: a client reads it before it knows the server's
        versions.
Rule 3: the client id keeps its old layout in flexible headers, so that api key, version, correlation id and client id
        of any request can be read, even of an unknown one.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

from ottla.wire.api import ApiKey, request_class, response_class
from ottla.wire.codec import Malformed, Steps, decode_from, decode_in_steps, encode_in_steps, encode_parts
from ottla.wire.headers import RequestHeader, ResponseHeader
from ottla.wire.schema import Message, message_of, structure_of
from ottla.wire.shapes import Structure
from ottla.wire.types import Buffer

_SIZE: Final = Struct(">i")
_FIRST_OF_HEADER: Final = Struct(">hhi")
_HEADER_TO_CLIENT_ID: Final = Struct(">hhih")
_PLAIN_REQUEST_HEADER: Final = 1
_COPIED_MAX: Final = 4096  # Up to this size copying is cheaper than another buffer in the frame.


class Request(NamedTuple):
    """A received request. `body` is an instance of the API's request class."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class BadFrame(ValueError):
    """A frame has an impossible size: the peer does not speak this protocol, or exceeds the limit."""


class UnknownRequest(ValueError):
    """A request of an unknown API or version; its header could be read."""

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        super().__init__(f"no request has api key {header.request_api_key} and version {header.request_api_version}")


def split_frames(buffer: Buffer, limit: int) -> tuple[list[memoryview], int]:
    """The whole frames at the start of a buffer, without their sizes, and the position after the last of them.

    Raises BadFrame for a size below zero or over the limit, as soon as the size can be read.
    """
    view = memoryview(buffer)
    frames, position, end = [], 0, len(view)
    while end - position >= _SIZE.size:
        (size,) = _SIZE.unpack_from(view, position)
        if not 0 <= size <= limit:
            raise BadFrame(f"a frame of {size} bytes; at most {limit} are accepted")
        start = position + _SIZE.size
        if size > end - start:
            break
        position = start + size
        frames.append(view[start:position])
    return frames, position


def request_header_version(message: Message, version: int) -> int:
    return 2 if message.is_flexible(version) else 1


def response_header_version(message: Message, version: int) -> int:
    return 1 if message.is_flexible(version) and message.api_key != ApiKey.API_VERSIONS else 0


def decode_request(frame: Buffer) -> Request:
    """Decode the request in a frame. Raises `Malformed`, or `UnknownRequest` if there is no such API or version."""
    how, version, correlation_id, client_id, position = _decode_plain_header(frame) or _decode_header(frame)
    # Bytes after the body are ignored, as in Kafka: librdkafka ends Metadata v13 with three bytes of an older version.
    body, _ = decode_from(how.cls, version, frame, position)
    return tuple.__new__(Request, (how.api_key, version, correlation_id, client_id, body))


def decode_request_in_steps(frame: Buffer) -> Steps[Request]:
    """Like `decode_request`, in steps, for a large frame; see `codec.decode_in_steps`."""
    how, version, correlation_id, client_id, position = _decode_plain_header(frame) or _decode_header(frame)
    body, _ = yield from decode_in_steps(how.cls, version, frame, position)
    return Request(how.api_key, version, correlation_id, client_id, body)


def _decode_header(frame: Buffer) -> "tuple[_Known, int, int, str | None, int]":
    if len(frame) < _FIRST_OF_HEADER.size:
        raise Malformed("RequestHeader", _PLAIN_REQUEST_HEADER, "", "is cut short")
    api_key, version, _ = _FIRST_OF_HEADER.unpack_from(frame)
    known = _known(api_key, version)
    if known is None:
        raise UnknownRequest(decode_from(RequestHeader, _PLAIN_REQUEST_HEADER, frame)[0])
    header, position = decode_from(RequestHeader, known.header_version, frame)
    return known, version, header.correlation_id, header.client_id, position


def _decode_plain_header(frame: Buffer) -> "tuple[_Known, int, int, str, int] | None":
    """Decode a `RequestHeader` in its most common form by hand, because every request has one. None: use the codec.

    Returns the decoder of the body, its version, correlation id, client id, and where the body begins.
    """
    size = len(frame)
    if size <= _HEADER_TO_CLIENT_ID.size:
        return None
    api_key, version, correlation_id, length = _HEADER_TO_CLIENT_ID.unpack_from(frame)
    known = _known_requests.get((api_key, version))
    end = _HEADER_TO_CLIENT_ID.size + length
    if known is None or length < 0 or end >= size:
        return None
    if known.header_version > _PLAIN_REQUEST_HEADER:
        if frame[end]:
            return None  # It has tagged fields.
        body_at = end + 1
    else:
        body_at = end
    try:
        client_id = str(frame[_HEADER_TO_CLIENT_ID.size : end], "utf-8")
    except UnicodeDecodeError:
        return None
    return known, version, correlation_id, client_id, body_at


class _Known(NamedTuple):
    api_key: ApiKey
    cls: type[Any]
    header_version: int


_known_requests: dict[tuple[int, int], _Known] = {}
"""Codecs of the requests met so far. Unknown ones are not kept, because a client may send anything."""


def _known(api_key: int, version: int) -> _Known | None:
    """The codec of a request; None if there is no such API or version."""
    known = _known_requests.get((api_key, version))
    if known is not None:
        return known
    try:
        cls = request_class(api_key)
        facts = message_of(cls)
    except ValueError:
        return None
    if version not in facts.versions:
        return None
    known = _Known(ApiKey(api_key), cls, request_header_version(facts, version))
    _known_requests[api_key, version] = known
    return known


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """Correlation id and body of the response to a request of this API and version."""
    cls = response_class(api_key)
    header, position = decode_from(ResponseHeader, response_header_version(message_of(cls), version), frame)
    body, end = decode_from(cls, version, frame, position)
    if end != len(frame):
        raise Malformed(cls.__name__, version, "", f"ends {len(frame) - end} bytes before its frame does")
    return header.correlation_id, body


def encode_request(body: object, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """The buffers of a whole frame; see `codec.encode_parts`."""
    facts = message_of(type(body))
    assert facts.api_key is not None, f"{facts.name} is no request"
    header = RequestHeader(
        request_api_key=facts.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _joined(b"".join(encode_parts(header, request_header_version(facts, version))), body, version)


def encode_response(body: object, version: int, correlation_id: int) -> list[Any]:
    """The buffers of a whole frame; see `codec.encode_parts`."""
    cls = type(body)
    how = _known_answers.get((cls, version)) or _known_answer(cls, version)
    if how.holds_records:
        return _joined(how.header.pack(correlation_id), body, version)
    message = b"".join(encode_parts(body, version))
    return [how.size_and_header.pack(how.header.size + len(message), correlation_id) + message]


def encode_response_in_steps(body: object, version: int, correlation_id: int) -> Steps[list[Any]]:
    """Like `encode_response`, in steps, for a large body; see `codec.encode_in_steps`."""
    cls = type(body)
    how = _known_answers.get((cls, version)) or _known_answer(cls, version)
    parts = yield from encode_in_steps(body, version)
    return [how.size_and_header.pack(how.header.size + sum(map(len, parts)), correlation_id), *parts]


class _KnownAnswer(NamedTuple):
    """A `ResponseHeader` encoded by hand, because every response has one."""

    header: Struct
    size_and_header: Struct
    holds_records: bool
    """Whether the parts may contain large buffers, or objects that are not buffers."""


_known_answers: dict[tuple[type, int], _KnownAnswer] = {}
"""Codecs of the responses sent so far."""


def _known_answer(cls: type, version: int) -> _KnownAnswer:
    codes = "i" if response_header_version(message_of(cls), version) == 0 else "ix"
    known = _KnownAnswer(Struct(f">{codes}"), Struct(f">i{codes}"), _holds_records(structure_of(cls)))
    _known_answers[cls, version] = known
    return known


def _holds_records(structure: Structure) -> bool:
    return any(
        (f.primitive is not None and f.primitive.name == "records")
        or (f.structure is not None and _holds_records(f.structure))
        for f in structure.fields
    )


def _joined(header: bytes, body: object, version: int) -> list[Any]:
    """A frame of few buffers: the small ones are joined, records stay separate."""
    parts = encode_parts(body, version)
    frame: list[Any] = []
    small = [_SIZE.pack(len(header) + sum(map(len, parts))), header]
    for part in parts:
        if type(part) is bytes and len(part) <= _COPIED_MAX:
            small.append(part)
        elif len(part):
            frame += b"".join(small), part
            small = []
    if small:
        frame.append(b"".join(small))
    return frame
