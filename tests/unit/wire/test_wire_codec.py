"""The layout of single types, byte by byte, and what the codec refuses."""

import linecache
import traceback
from typing import Any

import pytest

from ottla.wire.codec import (
    Malformed,
    Unencodable,
    UnsupportedVersion,
    decode,
    decode_from,
    encode,
    encode_parts,
)
from ottla.wire.schema import field, message, struct
from ottla.wire.types import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
)


@message(versions=(0, 1), flexible=1)
class Fixed:
    """Every type of fixed width."""

    bool_: Bool
    int8: Int8
    int16: Int16
    uint16: UInt16
    int32: Int32
    uint32: UInt32
    int64: Int64
    float64: Float64
    uuid: Uuid


@struct
class Pair:
    left: Int8
    right: String


@message(versions=(0, 1), flexible=1)
class Sized:
    """Everything with a length."""

    text: String
    data: Bytes
    records: Records | None
    numbers: list[Int16]
    ids: list[Uuid]
    texts: list[String]
    pairs: list[Pair] | None
    pair: Pair | None


@message(versions=(0, 3), flexible=2)
class Versioned:
    """Fields that come and go."""

    old: Int32 = field(until=1, default=-1)
    new: String = field(since=1, default="", ignorable=True)
    maybe: String | None = field(nullable_since=1)
    pairs: list[Pair] = field(since=3, default=[])


@struct
class Leader:
    node: Int32 = field(default=-1)


@message(versions=(0, 1), flexible=0)
class Tagged:
    """Tagged fields of each kind."""

    number: Int32 = field(tag=1, default=7)
    text: String | None = field(tag=0, default=None)
    leader: Leader | None = field(tag=2, default=None, nullable=False)
    nullable_pair: Pair | None = field(tag=3)
    names: list[String] = field(since=1, tag=4, default=[])


FIXED: dict[str, Any] = {
    "bool_": True,
    "int8": -1,
    "int16": -2,
    "uint16": 65535,
    "int32": -3,
    "uint32": 2**32 - 1,
    "int64": -4,
    "float64": 1.5,
    "uuid": b"u" * 16,
}
SIZED: dict[str, Any] = {
    "text": "é",
    "data": b"d",
    "records": b"r",
    "numbers": [1, -1],
    "ids": [b"i" * 16],
    "texts": ["a", ""],
    "pairs": None,
    "pair": None,
}


def tagged(**values: Any) -> Tagged:
    return Tagged(**{"nullable_pair": Pair(left=0, right=""), **values})


def test_fixed_types_are_big_endian() -> None:
    data = (
        b"\1\xff\xff\xfe\xff\xff\xff\xff\xff\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfc"
        b"\x3f\xf8\0\0\0\0\0\0" + b"u" * 16
    )
    assert encode(Fixed(**FIXED), 0) == data
    assert encode(Fixed(**FIXED), 1) == data + b"\0"
    assert decode(Fixed, 0, data) == Fixed(**FIXED)


def test_lengths_are_plain_before_and_compact_in_flexible_versions() -> None:
    plain = b"\0\2\xc3\xa9\0\0\0\1d\0\0\0\1r\0\0\0\2\0\1\xff\xff\0\0\0\1" + b"i" * 16
    plain += b"\0\0\0\2\0\1a\0\0\xff\xff\xff\xff\xff"
    compact = b"\3\xc3\xa9\2d\2r\3\0\1\xff\xff\2" + b"i" * 16 + b"\3\2a\1\0\xff\0"
    assert encode(Sized(**SIZED), 0) == plain
    assert encode(Sized(**SIZED), 1) == compact
    assert decode(Sized, 0, plain) == decode(Sized, 1, compact) == Sized(**SIZED)


def test_structures_have_tags_of_their_own_and_a_byte_that_tells_null() -> None:
    sent = Sized(**{**SIZED, "pairs": [Pair(left=1, right="x")], "pair": Pair(left=2, right="")})
    assert encode(sent, 0).endswith(b"\0\0\0\1\1\0\1x\1\2\0\0")
    assert encode(sent, 1).endswith(b"\2\1\2x\0\1\2\1\0\0")
    assert decode(Sized, 1, encode(sent, 1)) == sent


@pytest.mark.parametrize("size", [126, 127, 128, 16382, 16383, 16384, 2**21 - 2, 2**21 - 1, 2**21])
def test_varints_of_every_width(size: int) -> None:
    data = encode(Sized(**{**SIZED, "records": bytes(size)}), 1)
    length, head = size + 1, b""
    while length > 127:
        head, length = head + bytes([length & 127 | 128]), length >> 7
    assert data[5 : 5 + len(head) + 1] == head + bytes([length])
    records = decode(Sized, 1, data).records
    assert records is not None
    assert len(records) == size


def test_long_arrays_of_numbers_keep_their_order() -> None:
    numbers = list(range(-500, 500))
    for version in (0, 1):
        assert decode(Sized, version, encode(Sized(**{**SIZED, "numbers": numbers}), version)).numbers == numbers


def test_records_are_a_view_of_the_input_and_bytes_are_not() -> None:
    """A consumer of the records must not pay for a copy; member metadata must not pin the receive buffer."""
    buffer = bytearray(encode(Sized(**SIZED), 1))
    received = decode(Sized, 1, buffer)
    buffer[buffer.index(b"r")] = ord("R")
    buffer[buffer.index(b"d")] = ord("D")
    assert isinstance(received.records, memoryview)
    assert received.records == b"R"
    assert received.data == b"d"


def test_records_are_not_copied_by_encoding() -> None:
    records = memoryview(b"r" * 300)
    assert any(part is records for part in encode_parts(Sized(**{**SIZED, "records": records}), 1))


def test_a_field_the_version_does_not_carry_has_its_default() -> None:
    received = decode(Versioned, 0, b"\0\0\0\5\0\1m")
    assert received == Versioned(old=5, new="", maybe="m", pairs=[])
    assert decode(Versioned, 2, b"\2n\0\0") == Versioned(old=-1, new="n", maybe=None, pairs=[])


def test_defaults_are_not_shared_between_messages() -> None:
    first, second = Versioned(maybe=None), Versioned(maybe=None)
    first.pairs.append(Pair(left=1, right=""))
    assert second.pairs == []
    assert decode(Versioned, 2, b"\1\0\0").pairs is not decode(Versioned, 2, b"\1\0\0").pairs


@pytest.mark.parametrize(
    ("sent", "version", "field_name"),
    [
        (Versioned(maybe="", old=0), 2, "old"),
        (Versioned(maybe="", pairs=[Pair(left=1, right="")]), 2, "pairs"),
    ],
)
def test_a_value_the_version_cannot_carry_is_refused(sent: Versioned, version: int, field_name: str) -> None:
    """Dropping it in silence would change what the message means."""
    with pytest.raises(Unencodable, match="cannot carry") as raised:
        encode(sent, version)
    assert raised.value.field == field_name


def test_an_ignorable_value_is_dropped() -> None:
    assert encode(Versioned(old=1, new="dropped", maybe=""), 0) == b"\0\0\0\1\0\0"


@pytest.mark.parametrize(
    ("change", "field_name"),
    [
        ({"text": None}, "text"),
        ({"text": b"bytes"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "x" * 32768}, "text"),
        ({"data": None}, "data"),
        ({"numbers": None}, "numbers"),
        ({"numbers": [40_000]}, "numbers"),
        ({"numbers": ["1"]}, "numbers"),
        ({"ids": [b"short"]}, "ids"),
        ({"texts": ["a", None]}, "texts[]"),
        ({"pairs": [None]}, "pairs[]."),
        ({"pairs": [Pair(left=1, right=None)]}, "pairs[].right"),  # type: ignore[arg-type]
        ({"pair": Pair(left=128, right="")}, "pair.left"),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], field_name: str, version: int
) -> None:
    with pytest.raises(Unencodable) as raised:
        encode(Sized(**{**SIZED, **change}), version)
    assert field_name in raised.value.field
    assert (raised.value.message, raised.value.version) == ("Sized", version)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("value", [None, "text", 2**80])
def test_fixed_types_refuse_what_is_not_theirs(name: str, value: object) -> None:
    if (name, value) == ("float64", 2**80):
        return
    with pytest.raises(Unencodable) as raised:
        encode(Fixed(**{**FIXED, name: value}), 0)
    assert name in raised.value.field


def test_a_string_may_have_32767_bytes() -> None:
    for version in (0, 1):
        sent = Sized(**{**SIZED, "text": "x" * 32767})
        assert decode(Sized, version, encode(sent, version)) == sent


def test_a_value_of_the_wrong_type_that_has_a_length_is_refused() -> None:
    with pytest.raises(Unencodable, match="wrong type"):
        encode(Sized(**{**SIZED, "data": "text"}), 0)


@pytest.mark.parametrize(
    ("version", "data", "field_name", "reason"),
    [
        (0, b"\0\5abc", "text", "has a length of 5 with 3 bytes left"),
        (0, b"\xff\xff", "text", "is null"),
        (0, b"\xff\xfe", "text", "has a length of -2"),
        (0, b"\0\1\xff", "text", "is not valid UTF-8"),
        (0, b"\0", "text", "is cut short"),
        (0, b"\0\0\x7f\xff\xff\xff", "data", "has a length of 2147483647 with 0 bytes left"),
        (0, b"\0\0\xff\xff\xff\xff", "data", "is null"),
        (0, b"\0\0\0\0\0\0\xff\xff\xff\xfe", "records", "has a length of -2"),
        (0, b"\0\0" + b"\0\0\0\0" * 2 + b"\0\0\0\2\0\1", "numbers", "has a count of 2 with 2 bytes left"),
        (0, b"\0\0" + b"\0\0\0\0" * 2 + b"\xff\xff\xff\xff", "numbers", "is null"),
        (0, b"\0\0" + b"\0\0\0\0" * 4 + b"\0\0\0\2\0\1a", "texts", "has a count of 2 with 3 bytes left"),
        (0, b"\0\0" + b"\0\0\0\0" * 5 + b"\xff\xff\xff\xfe", "pairs", "has a count of -2"),
        (1, b"\0", "text", "is null"),
        (1, b"\4ab", "text", "has a length of 3 with 2 bytes left"),
        (1, b"\x81\x80\x02" + b"x" * 32768, "text", "a string may have 32767"),
        (1, b"\xff\xff\xff\xff\x1f", "text", "does not fit 32 bits"),
        (1, b"\x80\x80\x80\x80\x80\1", "text", "does not fit 32 bits"),
        (1, b"\1\1\1\xff\xff\xff\xff\x0f", "numbers", "has a count of 4294967294 with 0 bytes left"),
        (1, b"\1\1\1\1\1\3\1", "texts", "has a count of 2 with 1 bytes left"),
        (1, b"\1\1\1\1\1\1\3" + bytes(5), "pairs", "has a count of 2 with 5 bytes left"),
        (1, b"\1\1\1\1\1\1\0\xff", "<tagged fields>", "is cut short"),
        (1, b"\1\1\1\1\1\1\0\xff\2\0\0", "<tagged fields>", "has a count of 2 with 2 bytes left"),
        (1, b"\1\1\1\1\1\1\0\xff\1\0\5abc", "<tagged fields>", "has a length of 5 with 3 bytes left"),
        (1, b"\1\1\1\1\1\1\0\xff\0rest", "", "ends 4 bytes before"),
    ],
)
def test_malformed_input_is_refused_with_field_and_reason(
    version: int, data: bytes, field_name: str, reason: str
) -> None:
    with pytest.raises(Malformed) as raised:
        decode(Sized, version, data)
    error = raised.value
    assert (error.message, error.version, error.field) == ("Sized", version, field_name)
    assert reason in error.reason
    assert str(error).startswith(f"Sized v{version}")


def test_tagged_fields_travel_in_order_and_only_when_they_say_something() -> None:
    assert encode(tagged(), 0) == b"\0"
    assert encode(tagged(number=8, text="t"), 0) == b"\2\0\2\2t\1\4\0\0\0\x08"
    assert encode(tagged(leader=Leader(node=3)), 0) == b"\1\2\5\0\0\0\3\0"
    assert encode(tagged(leader=Leader()), 0) == b"\0"
    assert encode(tagged(names=["a"]), 1) == b"\1\4\3\2\2a"


def test_null_in_a_tagged_structure_is_a_varint() -> None:
    """Kafka marks null by a varint here, by a signed byte elsewhere."""
    assert encode(tagged(nullable_pair=None), 0) == b"\1\3\1\0"
    assert encode(tagged(nullable_pair=Pair(left=5, right="")), 0) == b"\1\3\4\1\5\1\0"
    assert decode(Tagged, 0, b"\1\3\1\0").nullable_pair is None
    assert decode(Tagged, 0, b"\0").nullable_pair == Pair(left=0, right="")
    assert decode(Tagged, 0, b"\1\3\4\1\5\1\0").nullable_pair == Pair(left=5, right="")


def test_unknown_tagged_fields_are_skipped() -> None:
    assert decode(Tagged, 0, b"\3\1\4\0\0\0\x08\x09\2??\xff\xff\3\0") == tagged(number=8)
    assert decode(Fixed, 1, encode(Fixed(**FIXED), 0) + b"\1\x85\1\1?") == Fixed(**FIXED)


def test_more_tagged_fields_than_one_byte_counts() -> None:
    unknown = b"".join(bytes([tag, 0]) for tag in range(5, 127)) * 2
    count = len(unknown) // 2
    head = bytes([count & 127 | 128, count >> 7])
    assert decode(Tagged, 0, head + unknown) == tagged()
    assert decode(Fixed, 1, encode(Fixed(**FIXED), 0) + head + unknown) == Fixed(**FIXED)


@pytest.mark.parametrize(
    ("data", "field_name"),
    [
        (b"\1\1\5\0\0\0\x08\0", "number"),  # A byte more than the field has.
        (b"\1\1\3\0\0\0\x08", "number"),  # A byte less.
        (b"\1\0\1\0\0", ""),
        (b"\2\1\4\0\0\0\x08", "<tagged fields>"),
        (b"\1\1\5\0\0\0\x08", "<tagged fields>"),
    ],
)
def test_a_tagged_field_fills_its_size(data: bytes, field_name: str) -> None:
    with pytest.raises(Malformed) as raised:
        decode(Tagged, 0, data)
    assert raised.value.field == field_name


def test_a_count_of_tagged_fields_is_checked_before_they_are_read() -> None:
    with pytest.raises(Malformed, match="has a count of 3 with 5 bytes left"):
        decode(Tagged, 0, b"\3\1\4\0\0\0")


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_has_16_bytes(size: int) -> None:
    """`struct` would pad or cut it."""
    with pytest.raises(Unencodable, match=f"uuid is an id of {size} bytes, not 16"):
        encode(Fixed(**{**FIXED, "uuid": b"u" * size}), 0)


def test_a_message_may_be_followed_by_another() -> None:
    data = b"head" + encode(Versioned(maybe="a"), 1) + encode(Versioned(maybe="b"), 1)
    first, position = decode_from(Versioned, 1, data, 4)
    second, end = decode_from(Versioned, 1, data, position)
    assert (first.maybe, second.maybe, end) == ("a", "b", len(data))


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_nobody_declared_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"versions 0 to 3, not {version}"):
        decode(Versioned, version, b"")
    with pytest.raises(UnsupportedVersion, match=f"versions 0 to 3, not {version}"):
        encode(Versioned(maybe=""), version)


def test_only_messages_can_be_coded() -> None:
    with pytest.raises(TypeError, match="Pair is not declared with @message"):
        encode(Pair(left=1, right=""), 0)
    with pytest.raises(TypeError, match="Pair is not declared with @message"):
        decode(Pair, 0, b"")


def test_a_traceback_shows_the_compiled_source() -> None:
    with pytest.raises(Malformed) as raised:
        decode(Fixed, 0, b"")
    assert raised.value.__cause__ is not None
    frames = traceback.extract_tb(raised.value.__cause__.__traceback__)
    assert frames[-1].filename == "<ottla.wire Fixed v0 decoder>"
    assert "unpack" in (frames[-1].line or "")
    linecache.checkcache()
    assert linecache.getline("<ottla.wire Fixed v0 decoder>", 1).startswith("def codec")
