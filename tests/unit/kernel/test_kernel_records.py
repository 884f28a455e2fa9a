"""Records inside batches: round trips, what malformed ones give, look-up by time, control records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import CAPTURED_RECORDS, T, captured, record_lists, with_records

from ottla import kernel
from ottla.kernel import Codec, ControlType, CorruptBatch, EndTxnMarker, Record, TimestampType

CODECS = [codec.name.lower() for codec in Codec]


@given(record_lists(gaps=True), st.sampled_from(Codec), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_what_is_built_is_read(records: list[Record], codec: Codec, transactional: bool, control: bool) -> None:
    batch = kernel.build_batch(
        records,
        codec=codec,
        producer_id=2**40,
        producer_epoch=2**15 - 1,
        base_sequence=2**31 - 2,
        leader_epoch=3,
        transactional=transactional,
        control=control,
    )
    (header,) = kernel.scan(batch).headers
    assert kernel.read_records(batch) == records
    assert kernel.read_records(b"?" + batch, header, 1) == records
    assert (header.codec, header.is_transactional, header.is_control) == (codec, transactional, control)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 2**15 - 1, 2**31 - 2)
    assert (header.count, header.base_timestamp) == (len(records), records[0].timestamp)
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(record_lists(), st.integers(0, T))
@settings(max_examples=40)
def test_timestamps_are_unchanged_by_a_delete_horizon(records: list[Record], horizon: int) -> None:
    """The base timestamp is the horizon then, so every delta is another."""
    batch = kernel.build_batch(records, delete_horizon_ms=horizon)
    assert kernel.read_header(batch).delete_horizon_ms == horizon
    assert kernel.read_records(batch) == records


@given(record_lists())
@settings(max_examples=40)
def test_append_time_is_the_time_of_every_record(records: list[Record]) -> None:
    batch = kernel.build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=T)
    assert kernel.read_records(batch) == [record._replace(timestamp=T) for record in records]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_batches_of_other_clients_are_read(client: str, codec: str) -> None:
    batch = captured(f"{client}_{codec}")
    (header,) = kernel.scan(batch).headers
    assert header.codec is Codec[codec.upper()]
    assert kernel.read_records(batch) == CAPTURED_RECORDS


def test_batch_is_byte_for_byte_javas() -> None:
    assert kernel.build_batch(CAPTURED_RECORDS) == captured("java_none")


def test_base_offset_may_lie_before_the_first_record_and_last_offset_after_the_last() -> None:
    """Compaction removes records, never the range of offsets: the producer's last sequence hangs on it."""
    batch = kernel.build_batch([Record(12, T, b"k", b"v")], base_offset=10, last_offset=19)
    header = kernel.read_header(batch)
    assert (header.base_offset, header.last_offset, header.count) == (10, 19, 1)
    assert kernel.read_records(batch) == [Record(12, T, b"k", b"v")]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [Record(1, T, None, None)] * 2,
        [Record(2, T, None, None), Record(1, T, None, None)],
        [Record(0, -2, None, b"")],
    ],
    ids=["none", "same offset", "falling offset", "negative timestamp"],
)
def test_batch_that_kafka_would_not_build_is_a_mistake_of_the_caller(records: list[Record]) -> None:
    with pytest.raises(ValueError):
        kernel.build_batch(records)


def test_builder_knows_its_size_before_it_builds() -> None:
    """A producer closes a batch by it."""
    builder = kernel.BatchBuilder()
    for record in CAPTURED_RECORDS:
        before = builder.size
        taken = builder.append(record.timestamp, record.key, record.value, record.headers)
        assert builder.size == before + taken
    assert builder.build() == captured("java_none")
    assert builder.size == len(captured("java_none"))


@pytest.mark.parametrize("codec", CODECS)
def test_first_record_at_or_after_a_time(codec: str) -> None:
    """Timestamps need not rise within a batch; the first record by offset counts."""
    batch = b"?" + captured(f"java_{codec}")
    assert kernel.find_time(batch, 1, 0) == (0, T)
    assert kernel.find_time(batch, 1, T + 1) == (1, T + 5)
    assert kernel.find_time(batch, 1, T + 1, start_offset=2) == (2, T + 3)
    assert kernel.find_time(batch, 1, T + 5, start_offset=2) is None
    assert kernel.find_time(batch, 1, T + 6) is None


def test_time_is_not_sought_in_a_batch_that_ends_before_it() -> None:
    """Look-up would unpack every batch on its way otherwise."""
    unreadable = with_records(b"\xff" * 20, 2, Codec.ZSTD)
    assert kernel.find_time(unreadable, 0, T + 1) is None
    with pytest.raises(CorruptBatch):
        kernel.find_time(unreadable, 0, T)


RECORD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")  # key "k", value "v"
MALFORMED = {
    "one record fewer than declared": (RECORD, 2),
    "one record more than declared": (RECORD * 2, 1),
    "a byte after the last record": (RECORD + b"\0", 1),
    "no records declared, one there": (RECORD, 0),
    "a negative count": (RECORD, -1),
    "two thousand million records": (RECORD, 2**31 - 1),
    "record length short by one": (b"\x0e" + RECORD[1:], 1),
    "record length long by one": (b"\x12" + RECORD[1:] + b"\0", 1),
    "negative record length": (b"\x11" + RECORD[1:], 1),
    "key longer than the record": (RECORD[:4] + b"\x20" + RECORD[5:], 1),
    "value longer than the batch": (RECORD[:6] + b"\xfe\xff\xff\xff\x0f" + RECORD[7:], 1),
    "varint of six bytes": (b"\x90\x80\x80\x80\x80\x00" + RECORD[1:], 1),
    "varint past 32 bits": (b"\x90\x80\x80\x80\x10" + RECORD[1:], 1),
    "varlong of eleven bytes": (b"\x24\0" + b"\x80" * 10 + RECORD[2:], 1),
    "varlong past 64 bits": (b"\x22\0" + b"\x80" * 9 + b"\2" + RECORD[3:], 1),
    "negative number of headers": (RECORD[:-1] + b"\1", 1),
    "more headers than bytes": (RECORD[:-1] + b"\xfe\xff\xff\xff\x0f", 1),
    "header without a name": (b"\x14" + RECORD[1:-1] + b"\2\1\1", 1),
    "header value beyond the batch": (b"\x16" + RECORD[1:-1] + b"\2\2a\x7e", 1),
    "header value and its record beyond the batch": (b"\x94\1" + RECORD[1:-1] + b"\2\2a\x7e", 1),
    "cut inside a varint": (RECORD[:-1] + b"\x80", 1),
}


@pytest.mark.parametrize(("data", "count"), MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_malformed_records_are_corrupt(data: bytes, count: int, codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        kernel.read_records(with_records(kernel.compress(codec, data), count, codec))


def test_forms_of_varints_nobody_writes_are_read() -> None:
    """Kafka reads them: two bytes for a small number, any negative length for null."""
    data = bytes.fromhex("8e0000000003027600")  # length 7 in two bytes, key length -2
    (record,) = kernel.read_records(with_records(data, 1))
    assert record == Record(0, T, None, b"v")


@pytest.mark.parametrize(("base", "delta", "timestamp"), [(2**63 - 1, 1, -(2**63)), (-(2**63), -1, 2**63 - 1)])
def test_timestamps_wrap_in_64_bits(base: int, delta: int, timestamp: int) -> None:
    """As Java adds them; a horizon far from a timestamp would make a batch unreadable otherwise."""
    batch = with_records(RECORD[:2] + (b"\2" if delta > 0 else b"\1") + RECORD[3:], 1)
    header = kernel.read_header(batch)._replace(base_timestamp=base)
    assert kernel.read_records(batch, header)[0].timestamp == timestamp


def test_header_name_that_is_not_utf8_is_shown_as_java_shows_it() -> None:
    data = b"\x18" + RECORD[1:-1] + b"\2\4\xffa\0"
    assert kernel.read_records(with_records(data, 1))[0].headers == (("\ufffda", b""),)


@pytest.mark.parametrize("base_offset", [-1, 2**63 - 1])
def test_base_offset_no_log_can_have_is_corrupt(base_offset: int) -> None:
    """Outside the checksum, so damage shows only here; an offset past 64 bits fits no index and no response."""
    batch = bytearray(captured("java_none"))
    kernel.stamp(batch, 0, base_offset, 0)
    with pytest.raises(CorruptBatch, match=f"base offset is {base_offset}"):
        kernel.read_records(batch)


def test_batch_longer_than_its_buffer_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="302 bytes, 301 are left"):
        kernel.read_records(captured("java_none")[:-1])


@pytest.mark.parametrize(
    ("name", "marker"), [("java_commit", (ControlType.COMMIT, 12)), ("java_abort", (ControlType.ABORT, 13))]
)
def test_end_of_transaction_is_javas(name: str, marker: tuple[ControlType, int]) -> None:
    batch = captured(name)
    header = kernel.read_header(batch)
    assert kernel.read_end_txn_marker(b"?" + batch, 1) == EndTxnMarker(*marker)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    built = kernel.build_end_txn_marker(
        *marker, timestamp=T, producer_id=77, producer_epoch=2, base_offset=header.base_offset, leader_epoch=3
    )
    assert built == batch


def control(key: bytes | None, value: bytes | None) -> bytes:
    return kernel.build_batch([Record(3, T, key, value)], control=True)


def test_control_record_of_a_later_version_is_read() -> None:
    assert kernel.read_end_txn_marker(control(b"\0\5\0\1more", b"\0\5\0\0\0\7more")) == (ControlType.COMMIT, 7)


def test_control_record_of_an_unknown_type_is_not_an_error() -> None:
    """A newer broker may have written it; readers skip it."""
    assert kernel.read_control(control(b"\0\0\0\x63", None)) == (ControlType.UNKNOWN, b"")


@pytest.mark.parametrize(
    "batch",
    [
        control(None, b"\0\0\0\0\0\1"),
        control(b"\0\0\0", b"\0\0\0\0\0\1"),
        control(b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
        control(b"\0\0\0\1", b"\0\0\0\0\0"),
        control(b"\0\0\0\1", None),
        control(b"\0\0\0\1", b"\xff\xff\0\0\0\1"),
        control(b"\0\0\0\2", b"\0\0\0\0\0\1"),
        kernel.build_batch([Record(0, T, b"\0\0\0\1", b"\0\0\0\0\0\1")]),
        captured("java_filter_empty"),
    ],
    ids=[
        "no key",
        "short key",
        "key version",
        "short value",
        "no value",
        "value version",
        "other type",
        "data",
        "empty",
    ],
)
def test_what_does_not_end_a_transaction_is_refused(batch: bytes) -> None:
    with pytest.raises(CorruptBatch):
        kernel.read_end_txn_marker(batch)


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        kernel.build_end_txn_marker(ControlType.LEADER_CHANGE, 1, timestamp=T, producer_id=1, producer_epoch=1)
