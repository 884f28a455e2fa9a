"""Encodes and decodes messages. A codec is compiled at the first use of a message in a version, and kept on its class.

Rule 1: for any bytes, decoding returns a message or raises `Malformed`, and allocates in proportion to the input.
Rule 2: a message that its version cannot carry raises `Unencodable`; only fields that Kafka declares ignorable are
        dropped.
Rule 3: unknown tagged fields are skipped, not kept. As in Kafka, their order is not checked and the last of several
        equal tags wins.
Rule 4: long messages can be processed in steps: a generator pauses between them, and returns the result.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from ottla.wire.decoder import compile_decoder, compile_stepwise_decoder
from ottla.wire.encoder import compile_encoder, compile_stepwise_encoder
from ottla.wire.runtime import InvalidField
from ottla.wire.schema import Message, message_of, structure_of
from ottla.wire.shapes import Structure
from ottla.wire.source import Compiled
from ottla.wire.types import Buffer

T = TypeVar("T")
Steps = Generator[None, None, T]

DECODED_BYTES_MAX: Final = 40 << 20
"""The limit of memory for the objects of a message decoded in steps, and for its response: enough for a hundred
thousand elements. Records do not count, because they are not copied."""
_JOINED_MAX: Final = 512
"""Longer buffers are not joined, because the same buffer may occur many times in a message."""
_BAD_BYTES: Final = (InvalidField, IndexError, UnicodeDecodeError, struct.error)
_BAD_VALUES: Final = (InvalidField, AttributeError, TypeError, UnicodeEncodeError, OverflowError, struct.error)


class Malformed(ValueError):
    """The bytes are not the expected message."""

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        self.message, self.version, self.field, self.reason = message, version, field, reason
        super().__init__(f"{message} v{version}: {field} {reason}" if field else f"{message} v{version} {reason}")


class Unencodable(ValueError):
    """The values of a message do not fit its version."""

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        self.message, self.version, self.field, self.reason = message, version, field, reason
        super().__init__(f"{message} v{version}: {field} {reason}" if field else f"{message} v{version} {reason}")


class UnsupportedVersion(ValueError):
    """The message does not exist in the requested version."""


def decode(cls: type[T], version: int, buffer: Buffer) -> T:
    """Decode the message that fills the buffer."""
    message, position = decode_from(cls, version, buffer)
    if position != len(buffer):
        raise Malformed(cls.__name__, version, "", f"ends {len(buffer) - position} bytes before the input does")
    return message


def decode_from(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> tuple[T, int]:
    """Decode the message at a position; returns it and the position after it."""
    try:
        decoder = cls.__decoders__[version]  # type: ignore[attr-defined]
    except (KeyError, AttributeError):
        decoder = _compile(cls, version, "__decoders__", compile_decoder)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        result: tuple[T, int] = decoder.run(view, position)
    except _BAD_BYTES as error:
        field = decoder.field_at(error.__traceback__)
        raise Malformed(cls.__name__, version, field, _reason(error)) from error
    return result


def decode_in_steps(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> Steps[tuple[T, int]]:
    """Like `decode_from`, in steps. Raises `Malformed` if the message would take more than `DECODED_BYTES_MAX`."""
    decoder = cls.__stepwise_decoders__.get(version)  # type: ignore[attr-defined]
    if decoder is None:
        decoder = _compile(cls, version, "__stepwise_decoders__", compile_stepwise_decoder)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        result: tuple[T, int] = yield from decoder.run(view, position, DECODED_BYTES_MAX)
    except _BAD_BYTES as error:
        field = decoder.field_at(error.__traceback__)
        raise Malformed(cls.__name__, version, field, _reason(error)) from error
    return result


def encode(message: object, version: int) -> bytes:
    """The bytes of a message. Every `Records` value must be a buffer."""
    parts = encode_parts(message, version)
    try:
        return b"".join(parts)
    except TypeError as error:
        raise Unencodable(type(message).__name__, version, "", f"holds a value of the wrong type: {error}") from error


def encode_parts(message: object, version: int) -> list[Any]:
    """The message as consecutive buffers.

    `Records` values are in the list unchanged: any object with a `len` may be sent later by other means.
    """
    cls = type(message)
    try:
        encoder = cls.__encoders__[version]  # type: ignore[attr-defined]
    except (KeyError, AttributeError):
        encoder = _compile(cls, version, "__encoders__", compile_encoder)
    try:
        parts: list[Any] = encoder.run(message)
    except _BAD_VALUES as error:
        field = encoder.field_at(error.__traceback__)
        raise Unencodable(cls.__name__, version, field, _reason(error)) from error
    return parts


def encode_in_steps(message: object, version: int) -> Steps[list[Any]]:
    """Like `encode_parts`, in steps; small buffers are joined."""
    cls = type(message)
    encoder = cls.__stepwise_encoders__.get(version)  # type: ignore[attr-defined]
    if encoder is None:
        encoder = _compile(cls, version, "__stepwise_encoders__", compile_stepwise_encoder)
    parts: list[Any] = []
    out: list[Any] = []
    try:
        for _ in encoder.run(message, out):
            _join(out, parts)
            yield
    except _BAD_VALUES as error:
        field = encoder.field_at(error.__traceback__)
        raise Unencodable(cls.__name__, version, field, _reason(error)) from error
    _join(out, parts)
    return parts


def _join(out: list[Any], parts: list[Any]) -> None:
    """Move buffers to `parts`, joining the small ones."""
    small: list[bytes] = []
    for part in out:
        if type(part) is bytes and len(part) <= _JOINED_MAX:
            small.append(part)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        parts.append(part)
    if small:
        parts.append(b"".join(small))
    out.clear()


def _compile(
    cls: type, version: int, kept_in: str, compiler: Callable[[Message, Structure, int], Compiled]
) -> Compiled:
    facts = message_of(cls)
    if version not in facts.versions:
        first, last = facts.versions[0], facts.versions[-1]
        raise UnsupportedVersion(f"{facts.name} has versions {first} to {last}, not {version}")
    compiled = compiler(facts, structure_of(cls), version)
    getattr(cls, kept_in)[version] = compiled
    return compiled


def _reason(error: Exception) -> str:
    match error:
        case InvalidField():
            return str(error)
        case IndexError():
            return "is cut short"
        case UnicodeDecodeError():
            return "is not valid UTF-8"
        case struct.error() if "buffer" in str(error):
            return "is cut short"
        case _:
            return f"holds a value that cannot be encoded: {error}"
