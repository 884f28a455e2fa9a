"""The primitive types of the protocol, as annotations for the fields of messages.

A type checker sees `int`, `str`, `bytes`...; the codec uses the `Primitive` in the annotation. `X | None` makes a field
nullable, `list[X]` an array, a class declared with `@struct` a nested structure.

Rule 1: `Records` decodes as a view of the input, and keeps the input alive: record data is never copied here.
Rule 2: every other type decodes as an independent value. `Bytes` are small and outlive the request (member metadata,
        assignments, tokens); a view of them would keep a whole receive buffer in memory.
"""

from dataclasses import dataclass
from typing import Annotated, Final

NO_UUID: Final = bytes(16)
"""The id that means "no id": sixteen zero bytes."""

STRING_MAX: Final = 0x7FFF
"""The largest size of a string in Kafka, in bytes of UTF-8. It also holds where a longer length could be encoded."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type. A type of fixed width has `code`, its letter in `struct`, and `size`; others have neither."""

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
