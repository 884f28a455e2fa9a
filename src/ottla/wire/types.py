"""The primitive types of the protocol, as annotations for the fields of messages.

A type checker sees `int`, `str`, `bytes`...; the codec sees the `Primitive` that rides along. `X | None` makes a field
nullable, `list[X]` an array, a class made by `@struct` a nested structure.

Rule 1: `Records` decodes as a view of the input, which it keeps alive: record data is never copied here.
Rule 2: everything else decodes as a value of its own. `Bytes` are small and outlive the request (member metadata,
        assignments, tokens), and a view of them would pin a whole receive buffer.
"""

from dataclasses import dataclass
from typing import Annotated, Final

NO_UUID: Final = bytes(16)
"""The id of nothing: sixteen zero bytes."""

STRING_MAX: Final = 0x7FFF
"""Kafka's limit of a string in bytes of UTF-8, whatever the width of its length on the wire."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Primitive:
    """`code` is the letter of `struct` for a type of fixed width, `size` its width; others have neither."""

    name: str
    zero: object
    code: str = ""
    size: int = 0


Bool = Annotated[bool, Primitive("bool", False, "?", 1)]
Int8 = Annotated[int, Primitive("int8", 0, "b", 1)]
Int16 = Annotated[int, Primitive("int16", 0, "h", 2)]
UInt16 = Annotated[int, Primitive("uint16", 0, "H", 2)]
Int32 = Annotated[int, Primitive("int32", 0, "i", 4)]
UInt32 = Annotated[int, Primitive("uint32", 0, "I", 4)]
Int64 = Annotated[int, Primitive("int64", 0, "q", 8)]
Float64 = Annotated[float, Primitive("float64", 0.0, "d", 8)]
Uuid = Annotated[bytes, Primitive("uuid", NO_UUID, "16s", 16)]  # See uuids.py for the text form.
String = Annotated[str, Primitive("string", "")]
Bytes = Annotated[bytes, Primitive("bytes", b"")]
Records = Annotated[Buffer, Primitive("records", b"")]
