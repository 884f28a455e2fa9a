"""The header of a batch and the scan over batches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import T, captured, crc32c_by_hand

from ottla import kernel
from ottla.kernel import BatchHeader, Codec, CorruptBatch, Record, TimestampType

GOLDEN = bytes.fromhex(
    "000000000000002a"  # base offset 42
    "0000003a"  # length 58 = 49 of header + 9 of records
    "00000007"  # leader epoch 7
    "02"  # magic
    "00000000"  # crc, filled in below
    "0010"  # attributes: transactional
    "00000000"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003e8"  # max timestamp 1000
    "0000000000000005"  # producer id
    "0003"  # producer epoch
    "0000000b"  # base sequence 11
    "00000001"  # one record
    "10"  # of 8 bytes, zigzag:
    "00" "00" "00"  # attributes, timestamp delta, offset delta
    "026b" "0276" "00"  # key "k", value "v", no headers
)  # fmt: skip
GOLDEN = GOLDEN[:17] + crc32c_by_hand(GOLDEN[21:]).to_bytes(4, "big") + GOLDEN[21:]


def header(**fields: int) -> BatchHeader:
    return kernel.read_header(GOLDEN)._replace(**fields)


def test_batch_is_the_bytes_of_the_format() -> None:
    built = kernel.build_batch(
        [Record(42, 1000, b"k", b"v")],
        leader_epoch=7,
        producer_id=5,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
    )
    assert built == GOLDEN


def test_header_is_read_field_by_field() -> None:
    crc = crc32c_by_hand(GOLDEN[21:])
    assert kernel.read_header(b"??" + GOLDEN, 2) == (42, 58, 7, 2, crc, 0x10, 0, 1000, 1000, 5, 3, 11, 1)
    assert kernel.pack_header(kernel.read_header(GOLDEN)) == GOLDEN[: kernel.HEADER_SIZE]


def test_crc_is_castagnolis() -> None:
    assert crc32c_by_hand(b"123456789") == 0xE3069283  # The check value of the catalogues.
    assert kernel.batch_crc(b"?" + GOLDEN, 1, len(GOLDEN)) == crc32c_by_hand(GOLDEN[21:])
    assert kernel.crc_ok(b"?" + GOLDEN, 1, len(GOLDEN))
    assert not kernel.crc_ok(GOLDEN[:-1] + b"\1", 0, len(GOLDEN))


def test_offsets_are_counted_from_the_base() -> None:
    it = header(base_offset=100, last_offset_delta=9)
    assert (it.size, it.last_offset, it.next_offset) == (70, 109, 110)


def test_attributes_are_bits() -> None:
    assert [header(attributes=n).codec for n in range(5)] == list(Codec)
    assert header(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header(attributes=0x77).timestamp_type is TimestampType.CREATE_TIME
    assert [bool(header(attributes=1 << bit).is_transactional) for bit in range(7)] == [bit == 4 for bit in range(7)]
    assert [bool(header(attributes=1 << bit).is_control) for bit in range(7)] == [bit == 5 for bit in range(7)]


def test_base_timestamp_is_the_delete_horizon_under_bit_6() -> None:
    assert header(attributes=0x40, base_timestamp=77).delete_horizon_ms == 77
    assert header(attributes=0x3F, base_timestamp=77).delete_horizon_ms is None


def test_compression_without_a_number_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="compression 6"):
        _ = header(attributes=6).codec


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3), (-1, 9, -1)]
)
def test_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    """Or the two-billionth record of a producer would be out of order."""
    assert header(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_batch_without_producer() -> None:
    assert header(producer_id=0).has_producer
    assert not header(producer_id=-1).has_producer


@pytest.mark.parametrize(
    ("bytes_", "why"),
    [
        (GOLDEN[:60], "61 bytes, 60 are left"),
        (b"", "0 are left"),
        (GOLDEN[:16] + b"\1" + GOLDEN[17:], "magic is 1"),
        (GOLDEN[:8] + b"\0\0\0\x30" + GOLDEN[12:], "length is 48"),
        (GOLDEN[:8] + b"\xff\xff\xff\xff" + GOLDEN[12:], "length is -1"),
    ],
)
def test_header_that_cannot_be_is_refused(bytes_: bytes, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        kernel.read_header(bytes_)


def test_scan_finds_batches_until_the_bytes_end() -> None:
    two = GOLDEN + captured("java_gzip")
    scan = kernel.scan(two)
    assert [h.base_offset for h in scan.headers] == [42, 0]
    assert scan[1:] == (len(two), 0, None)
    assert kernel.scan(memoryview(bytearray(two))) == scan


@pytest.mark.parametrize("cut", range(1, len(GOLDEN)))
def test_scan_stops_before_an_incomplete_batch(cut: int) -> None:
    """A torn tail is not a fault; once length and magic are there, the reader learns how much to read."""
    scan = kernel.scan(GOLDEN + GOLDEN[:cut])
    assert len(scan.headers) == 1
    assert scan[1:] == (len(GOLDEN), len(GOLDEN) if cut >= 17 else 0, None)


def test_scan_says_what_is_wrong_where() -> None:
    flipped = GOLDEN[:-1] + b"\1"
    scan = kernel.scan(GOLDEN + flipped + GOLDEN)
    assert scan.consumed == len(GOLDEN)
    assert scan.fault is not None
    assert f"{crc32c_by_hand(GOLDEN[21:]):08x}" in scan.fault
    assert kernel.scan(GOLDEN + flipped, check_crc=False).consumed == 2 * len(GOLDEN)


def test_scan_of_zeros_is_a_fault() -> None:
    """A file system may leave zeros where data was lost; the log ends there."""
    scan = kernel.scan(GOLDEN + bytes(100))
    assert scan.consumed == len(GOLDEN)
    assert scan.fault is not None
    assert "magic is 0" in scan.fault


@pytest.mark.parametrize("name", ["java_none", "java_zstd", "java_commit"])
def test_every_flipped_bit_is_detected(name: str) -> None:
    """Bits of the base offset and the leader epoch excepted: they are outside the checksum, and the log checks them
    by their order (see `Scan`)."""
    batch = captured(name)
    unprotected = {*range(8), *range(12, 16)}
    for position in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            assert (kernel.scan(flipped).consumed == len(batch)) == (position in unprotected), (position, bit)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=100)
def test_scan_of_garbage_ends_without_an_error(garbage: bytes, plausible: bool) -> None:
    if plausible:
        garbage = garbage[:8] + len(garbage).to_bytes(4, "big") + garbage[12:16] + b"\2" + garbage[17:]
    scan = kernel.scan(garbage)
    assert scan.headers == []
    assert scan.consumed == 0


def test_stamp_leaves_the_checksum_valid() -> None:
    """Otherwise every append would cost a pass over the batch."""
    batch = bytearray(b"??" + captured("java_lz4"))
    kernel.stamp(batch, 2, 2**40, 17)
    (header,) = kernel.scan(batch[2:]).headers
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert kernel.read_header(batch, 2)._replace(base_offset=0, leader_epoch=-1) == kernel.read_header(
        captured("java_lz4")
    )
    assert batch[:2] == b"??"


def test_golden_timestamp_constants() -> None:
    assert (kernel.NO_TIMESTAMP, kernel.NO_PRODUCER_ID, kernel.NO_SEQUENCE, kernel.NO_LEADER_EPOCH) == (-1, -1, -1, -1)
    assert kernel.read_header(captured("java_none")).base_timestamp == T
