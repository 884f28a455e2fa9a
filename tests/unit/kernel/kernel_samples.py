"""Batches the kernel's tests share: captured from Kafka's own clients, drawn by Hypothesis, and taken apart by hand."""

from pathlib import Path
from struct import pack, pack_into

from hypothesis import strategies as st

from ottla import kernel
from ottla.kernel import (
    HEADER_SIZE,
    Codec,
    ControlType,
    ProduceRules,
    Record,
    TimestampType,
    build_batch,
    build_end_txn_marker,
)

CAPTURED = Path(__file__).parent / "captured"
CAPTURED_NAMES = sorted(path.stem for path in CAPTURED.glob("*.hex"))
T = 1_700_000_000_000
NOW = T + 1000

# What every captured/java_<codec> and captured/librdkafka_<codec> holds.
CAPTURED_RECORDS = [
    Record(0, T, b"k0", b"v0"),
    Record(1, T + 5, None, b"value one " * 20),
    Record(2, T + 3, b"k2", None, (("h1", b"x"), ("né", None), ("", b""))),
]


def captured(name: str) -> bytes:
    """A batch as another program wrote it; the file's first line says which."""
    lines = (CAPTURED / f"{name}.hex").read_text().splitlines()
    assert lines[0].startswith("# ")
    return bytes.fromhex("".join(lines[1:]))


def crc32c_by_hand(data: bytes) -> int:
    """The Castagnoli CRC bit by bit, so that the library's is not compared with itself."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sealed(batch: bytes) -> bytearray:
    """`batch`, changed by a test, with the length and the checksum it needs to be taken at its word."""
    out = bytearray(batch)
    pack_into(">i", out, 8, len(out) - 12)
    pack_into(">I", out, 17, crc32c_by_hand(bytes(out[21:])))
    return out


def with_records(records: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """A produced batch that declares `count` records and holds the bytes `records`."""
    header = kernel.read_header(kernel.build_batch([Record(0, T, None, None)]))
    header = header._replace(count=count, last_offset_delta=max(count - 1, 0), attributes=int(codec))
    return sealed(kernel.pack_header(header) + records)


payload = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), payload), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(T - 100, T + 100)


@st.composite
def record_lists(
    draw: st.DrawFn, *, gaps: bool = False, keys: st.SearchStrategy[bytes | None] = payload
) -> list[Record]:
    """Records of one batch from some base offset on, as compaction (`gaps`) or a producer leaves them."""
    base = draw(st.integers(0, 2**40)) if gaps else 0
    count = draw(st.integers(1, 12))
    steps = draw(st.lists(st.integers(1, 400 if gaps else 1), min_size=count, max_size=count))
    offset = base - 1
    records = []
    for step in steps:
        offset += step
        records.append(Record(offset, draw(timestamps), draw(keys), draw(payload), draw(headers)))
    return records


@st.composite
def sound_batches(draw: st.DrawFn) -> bytes:
    """Captured, drawn, or a marker."""
    if draw(st.booleans()):
        return captured(draw(st.sampled_from(CAPTURED_NAMES)))
    if draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
        return build_end_txn_marker(kind, draw(st.integers(0, 9)), timestamp=T, producer_id=4, producer_epoch=1)
    append_time = draw(st.booleans())
    return build_batch(
        draw(record_lists(gaps=draw(st.booleans()))),
        codec=draw(st.sampled_from(Codec)),
        producer_id=draw(st.sampled_from([-1, 7])),
        base_sequence=draw(st.sampled_from([-1, 0, 5])),
        transactional=draw(st.booleans()),
        control=draw(st.integers(0, 5)) == 0,
        timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
        append_time_ms=draw(st.sampled_from([T, NOW, NOW + 10**9, -1])),
        delete_horizon_ms=draw(st.sampled_from([None, None, T, NOW + 5])),
    )


HOSTILE = [
    *(pack(">i", number) for number in (-1, 0, 1, 2**31 - 1, -(2**31))),
    *(pack(">q", number) for number in (-1, 2**63 - 1, -(2**63))),
    *(b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80\x00", b"\x80\x80\x00", b"\x01", b"\x00"),
]


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """Batches of which most have something wrong: flipped, cut, overwritten with hostile numbers; half of them under a
    right checksum, so that the damage reaches the walk over the records."""
    batch = bytearray(draw(sound_batches()))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(batch) - 1))
        match draw(st.sampled_from(["flip", "number", "insert", "remove"])):
            case "flip":
                batch[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                number = draw(st.sampled_from(HOSTILE))
                batch[at : at + len(number)] = number
            case "insert":
                batch[at:at] = draw(st.sampled_from(HOSTILE))
            case "remove":
                del batch[at : at + draw(st.integers(1, 20))]
        batch = batch or bytearray(1)
    if draw(st.booleans()) and len(batch) >= HEADER_SIZE:
        batch = sealed(batch)
    return batch


produce_rules = st.builds(
    ProduceRules,
    compacted=st.booleans(),
    timestamp_type=st.sampled_from(TimestampType),
    timestamp_before_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([0, 3_600_000, 2**63 - 1]),
    codec=st.none() | st.sampled_from(Codec),
    level=st.none(),
    max_message_bytes=st.sampled_from([None, None, 100, 200]),
    from_client=st.booleans(),
    at_once_max=st.sampled_from([None, None, 100, 400, 1 << 20]),
)
