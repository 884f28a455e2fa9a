"""The broker's check of a produced batch: every rule with its refusal, and what is written into the batch."""

import re

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import CAPTURED_RECORDS, T, captured, record_lists, sealed, with_records

from ottla import kernel
from ottla.kernel import Codec, CorruptBatch, InvalidRecords, ProduceRules, Record, TimestampType
from ottla.wire.errors import Error, Refused

RULES = ProduceRules()
APPEND_TIME = TimestampType.LOG_APPEND_TIME
RECORD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")


def check(batch: bytes | bytearray, rules: ProduceRules = RULES, now_ms: int = T) -> kernel.Checked:
    return kernel.check_produced(bytearray(batch), rules, now_ms)


def refused(batch: bytes | bytearray, rules: ProduceRules = RULES, now_ms: int = T) -> InvalidRecords:
    with pytest.raises(InvalidRecords) as caught:
        check(batch, rules, now_ms)
    return caught.value


def changed(**fields: int) -> bytearray:
    """A good batch of three records with fields of its header changed, under a right checksum."""
    batch = captured("java_none")
    header = kernel.read_header(batch)._replace(**fields)
    return sealed(kernel.pack_header(header) + batch[kernel.HEADER_SIZE :])


def produced(*records: Record, codec: Codec = Codec.NONE) -> bytes:
    return kernel.build_batch(records, codec=codec)


# What is checked before any record.


def test_good_batch_is_passed_on_in_its_own_buffer() -> None:
    """The buffer is the connection's; a copy of every batch is what the design avoids."""
    buffer = memoryview(bytearray(captured("java_none")))
    checked = kernel.check_produced(buffer, RULES, T)
    assert checked.batch.obj is buffer.obj
    assert bytes(buffer) == captured("java_none")
    assert checked.header == kernel.read_header(buffer)
    assert (checked.max_timestamp, checked.offset_delta_of_max_timestamp, checked.recompressed) == (T + 5, 2, False)


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60, 301])
def test_less_than_a_batch_is_invalid(size: int) -> None:
    assert refused(captured("java_none")[:size]).error is Error.INVALID_RECORD


def test_more_than_a_batch_is_invalid() -> None:
    batch = captured("java_none")
    assert "302 bytes follow" in refused(batch * 2).text
    assert "1 bytes follow" in refused(batch + b"\0").text


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_invalid(magic: int) -> None:
    """Kafka 4 takes magic 2 only; the client must not try again."""
    assert f"magic is {magic}" in refused(changed(magic=magic)).text


@pytest.mark.parametrize("bytes_", [changed(magic=3), changed(magic=-1), captured("java_none")[:-1] + b"\1"])
def test_damage_is_corrupt(bytes_: bytes) -> None:
    """CORRUPT_MESSAGE makes the client send again."""
    with pytest.raises(CorruptBatch):
        check(bytes_)


def test_length_too_small_for_a_header_is_corrupt() -> None:
    batch = bytearray(captured("java_none"))
    batch[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="length is 48"):
        check(batch)


def test_batch_over_the_limit_names_both_numbers_and_the_setting() -> None:
    with pytest.raises(Refused, match=r"302 bytes; max\.message\.bytes allows 301") as caught:
        check(captured("java_none"), RULES._replace(max_message_bytes=301))
    assert caught.value.error is Error.MESSAGE_TOO_LARGE
    assert check(captured("java_none"), RULES._replace(max_message_bytes=302))


def test_limit_holds_after_compression_too() -> None:
    rules = RULES._replace(max_message_bytes=200, codec=Codec.NONE)
    with pytest.raises(Refused, match=r"302 bytes after compression with none; max\.message\.bytes allows 200"):
        check(captured("java_gzip"), rules)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"base_offset": 7}, "base offset is 7"),
        ({"last_offset_delta": -1}, "last offset delta is -1"),
        ({"count": 0}, "declares 0 records"),
        ({"count": -3}, "declares -3 records"),
        ({"count": 2}, "2 records and 3 offsets"),
        ({"last_offset_delta": 3}, "3 records and 4 offsets"),
        ({"attributes": 0x20}, "control records"),
        ({"producer_id": 9}, "producer 9 sent sequence -1"),
        ({"attributes": 5}, "compression 5"),
    ],
)
def test_header_a_client_may_not_send_is_invalid(fields: dict[str, int], why: str) -> None:
    refusal = refused(changed(**fields))
    assert refusal.error is Error.INVALID_RECORD
    assert why in refusal.text
    assert refusal.record_errors == []


@pytest.mark.parametrize("producer_id", [-2, -(2**63)])
def test_an_id_below_that_of_no_producer_is_none_either(producer_id: int) -> None:
    """As in Kafka, which asks whether it is greater than -1. So it needs no sequence."""
    assert check(changed(producer_id=producer_id)).header.producer_id == producer_id


def test_a_transaction_is_told_by_one_byte() -> None:
    """Whatever the bytes are, before anything else of them is looked at."""
    batch = bytes(changed(attributes=0x10))
    assert kernel.is_transactional(batch)
    assert not kernel.is_transactional(bytes(changed(attributes=0x2F)))
    assert not any(kernel.is_transactional(memoryview(batch)[:size]) for size in range(23))


def test_coordinators_of_this_broker_write_what_clients_may_not() -> None:
    marker = captured("java_commit")
    assert "base offset" in refused(marker).text
    own = RULES._replace(from_client=False, codec=Codec.ZSTD)
    assert bytes(check(marker, own).batch) == marker


# What is checked of every record.


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("data", "count"),
    [
        (RECORD, 2),
        (RECORD * 2, 1),
        (RECORD + b"\0", 1),
        (RECORD, 2**31 - 1),
        (b"\x0e" + RECORD[1:], 1),
        (b"\x11" + RECORD[1:], 1),
        (RECORD[:-1] + b"\1", 1),
        (RECORD[:6] + b"\xfe\xff\xff\xff\x0f" + RECORD[7:], 1),
        (b"\x90\x80\x80\x80\x80\x00" + RECORD[1:], 1),
        (b"\x94\1" + RECORD[1:-1] + b"\2\2a\x7e", 1),
    ],
)
def test_malformed_records_under_a_right_checksum_are_invalid(data: bytes, count: int, codec: Codec) -> None:
    """Not corrupt: they were sent so, and sending them again would fail for ever."""
    refusal = refused(with_records(kernel.compress(codec, data), count, codec))
    assert refusal.error is Error.INVALID_RECORD
    assert refusal.text


def test_damaged_compression_is_invalid() -> None:
    assert "zstd" in refused(with_records(b"not zstd", 1, Codec.ZSTD)).text


@pytest.mark.parametrize("codec", Codec)
def test_compacted_topic_needs_keys(codec: Codec) -> None:
    batch = produced(Record(0, T, b"", None), Record(1, T, None, b"v"), Record(2, T, b"k", b"v"), codec=codec)
    refusal = refused(batch, RULES._replace(compacted=True))
    assert refusal.error is Error.INVALID_RECORD
    assert [(e.batch_index, e.message) for e in refusal.record_errors] == [
        (1, "record 1 has no key; the topic is compacted (cleanup.policy)")
    ]
    assert check(batch)


LATE = ProduceRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=2000)


@pytest.mark.parametrize("codec", Codec)
def test_timestamps_stay_within_the_settings(codec: Codec) -> None:
    deltas = [0, -1000, 2000, -1001, 2001]
    batch = produced(*(Record(i, T + delta, None, b"") for i, delta in enumerate(deltas)), codec=codec)
    refusal = refused(batch, LATE)
    assert refusal.error is Error.INVALID_TIMESTAMP
    behind, ahead = refusal.record_errors
    assert behind == (
        3,
        f"timestamp {T - 1001} of record 3 is 1001 ms behind the broker; message.timestamp.before.max.ms allows 1000",
    )
    assert ahead == (
        4,
        f"timestamp {T + 2001} of record 4 is 2001 ms ahead of the broker; message.timestamp.after.max.ms allows 2000",
    )
    assert refusal.text.startswith(f"timestamp {T - 1001} of record 3")


def test_record_without_a_timestamp_is_accepted() -> None:
    checked = check(produced(Record(0, -1, None, b"")), LATE)
    assert (checked.max_timestamp, checked.offset_delta_of_max_timestamp) == (-1, -1)


def test_timestamp_past_64_bits_is_refused() -> None:
    batch = with_records(RECORD[:2] + b"\2" + RECORD[3:], 1)
    header = kernel.read_header(batch)._replace(base_timestamp=2**63 - 1)
    anything = ProduceRules(timestamp_after_max_ms=2**63 - 1)
    refusal = refused(sealed(kernel.pack_header(header) + batch[kernel.HEADER_SIZE :]), anything)
    assert refusal.error is Error.INVALID_TIMESTAMP


def test_missing_key_is_named_before_a_wrong_timestamp() -> None:
    """As Kafka; and one wrong timestamp anywhere decides the code of the whole answer."""
    batch = produced(Record(0, 0, None, b""), Record(1, T, None, b""), Record(2, 0, b"k", b""))
    refusal = refused(batch, LATE._replace(compacted=True))
    assert refusal.error is Error.INVALID_TIMESTAMP
    assert [bool(re.search("no key", e.message)) for e in refusal.record_errors] == [True, True, False]
    refusal = refused(batch, RULES._replace(compacted=True))
    assert refusal.error is Error.INVALID_RECORD


def test_number_of_named_records_is_bounded() -> None:
    """Seven bytes of request must not become two hundred of answer, millions of times."""
    batch = produced(*(Record(i, T, None, None) for i in range(5000)))
    assert len(refused(batch, RULES._replace(compacted=True)).record_errors) == 1000


# Who sets the time.


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_stamped_without_unpacking(codec: Codec) -> None:
    batch = captured(f"java_{codec.name.lower()}")
    checked = check(batch, RULES._replace(timestamp_type=APPEND_TIME), T + 99)
    assert (checked.max_timestamp, checked.offset_delta_of_max_timestamp, checked.recompressed) == (T + 99, 2, False)
    assert kernel.scan(checked.batch).headers == [checked.header]
    assert kernel.read_records(checked.batch) == [record._replace(timestamp=T + 99) for record in CAPTURED_RECORDS]
    assert bytes(checked.batch[kernel.HEADER_SIZE :]) == batch[kernel.HEADER_SIZE :]


def test_append_time_ignores_what_the_producer_wrote() -> None:
    batch = produced(Record(0, 0, None, b""), Record(1, T * 2, None, b""))
    assert check(batch, LATE._replace(timestamp_type=APPEND_TIME)).max_timestamp == T


def test_append_time_is_for_the_broker_to_claim() -> None:
    refusal = refused(captured("java_claimed"), RULES._replace(timestamp_type=APPEND_TIME))
    assert refusal.error is Error.INVALID_TIMESTAMP
    assert [e.batch_index for e in refusal.record_errors] == [0, 1, 2]
    assert "claims LogAppendTime" in refusal.text


def test_claimed_append_time_in_a_create_time_topic_is_a_timestamp_like_any_other() -> None:
    assert "ahead of the broker" in refused(captured("java_claimed"), now_ms=0).text
    unset = changed(attributes=8, max_timestamp=-1)
    assert "claims LogAppendTime" in refused(unset).text


def test_wrong_max_timestamp_is_set_right() -> None:
    """The time index and retention go by the header alone."""
    for wrong in (0, T * 2):
        checked = check(changed(max_timestamp=wrong))
        assert bytes(checked.batch) == captured("java_none")
        assert checked.max_timestamp == checked.header.max_timestamp == T + 5


@pytest.mark.parametrize(
    ("sent", "rules", "stored"),
    [
        ("java_produced", RULES, "java_valid_create_time"),
        ("java_produced", RULES._replace(timestamp_type=APPEND_TIME), "java_valid_append_time"),
        ("java_produced_gzip", RULES._replace(timestamp_type=APPEND_TIME), "java_valid_gzip_append_time"),
        ("java_produced_gzip", RULES._replace(codec=Codec.NONE), "java_valid_gunzipped"),
        (
            "java_produced_gzip",
            RULES._replace(codec=Codec.NONE, timestamp_type=APPEND_TIME),
            "java_valid_gunzipped_append_time",
        ),
        ("java_claimed", RULES, "java_valid_claimed"),
    ],
)
def test_stored_batch_is_the_one_kafka_stores(sent: str, rules: ProduceRules, stored: str) -> None:
    checked = check(captured(sent), rules, T + 60_000)
    kernel.stamp(checked.batch, 0, 1000, 9)
    assert bytes(checked.batch) == captured(stored)


def test_distance_of_timestamps_may_exceed_64_bits() -> None:
    """A delta is subtracted and added in 64 bits, as Java does: the sum is right though neither fits."""
    latest = 2**63 - 1
    batch = produced(Record(0, -1, None, None), Record(1, latest, None, None), Record(2, T, None, None))
    checked = check(batch, ProduceRules(timestamp_after_max_ms=latest))
    assert (checked.max_timestamp, bytes(checked.batch)) == (latest, batch)
    assert "ahead of the broker" in refused(batch).text


# Rebuilding.


@given(record_lists(), st.sampled_from(Codec), st.sampled_from(Codec))
@settings(max_examples=50)
def test_compression_type_of_the_topic_is_used(records: list[Record], sent: Codec, wanted: Codec) -> None:
    batch = kernel.build_batch(
        records, codec=sent, producer_id=6, producer_epoch=2, base_sequence=5, transactional=True
    )
    rules = ProduceRules(codec=wanted, timestamp_after_max_ms=2**63 - 1)
    checked = check(batch, rules)
    assert checked.recompressed == (sent is not wanted)
    assert kernel.scan(checked.batch).headers == [checked.header]
    assert kernel.read_records(checked.batch) == records
    assert checked.header.codec is wanted
    assert checked.header._replace(attributes=0, length=0, crc=0) == kernel.read_header(batch)._replace(
        attributes=0, length=0, crc=0
    )


def test_offsets_out_of_order_are_numbered_anew() -> None:
    """Old clients sent such; two records of a partition must not share an offset."""
    twice = bytes.fromhex("10 00 00 0a 02 6b 02 76 0010 00 04 0a 02 6c 02 76 00")  # both at delta 5
    for codec in Codec:
        checked = check(with_records(kernel.compress(codec, twice), 2, codec))
        assert checked.recompressed
        assert checked.header.codec is codec
        assert kernel.read_records(checked.batch) == [Record(0, T, b"k", b"v"), Record(1, T + 2, b"l", b"v")]


def test_unreadable_header_names_survive_rebuilding() -> None:
    """The broker does not know what they mean, so it does not touch them."""
    data = b"\x18" + RECORD[1:-1] + b"\2\4\xff\xfe\0"
    checked = check(with_records(kernel.compress(Codec.GZIP, data), 1, Codec.GZIP), RULES._replace(codec=Codec.NONE))
    assert bytes(checked.batch[kernel.HEADER_SIZE :]) == data


@given(st.data())
@settings(max_examples=120)
def test_hostile_batches_are_refused_with_a_type(data: st.DataObject) -> None:
    """Bytes changed at random under a right checksum: accepted batches are whole, others give a typed refusal."""
    codec = data.draw(st.sampled_from(Codec))
    batch = bytearray(captured(f"java_{codec.name.lower()}"))
    for position in data.draw(st.lists(st.integers(17, len(batch) - 1), min_size=1, max_size=4)):
        batch[position] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    rules = ProduceRules(
        compacted=data.draw(st.booleans()),
        timestamp_type=data.draw(st.sampled_from(TimestampType)),
        codec=data.draw(st.none() | st.sampled_from(Codec)),
        timestamp_after_max_ms=2**63 - 1,
        from_client=data.draw(st.booleans()),
    )
    try:
        checked = check(sealed(batch), rules)
    except (CorruptBatch, InvalidRecords):
        return
    assert kernel.scan(checked.batch).headers == [checked.header]
    assert len(kernel.read_records(checked.batch)) == checked.header.count


# What takes long.


def many(count: int, codec: Codec) -> bytes:
    return produced(*(Record(number, T, b"key", bytes(100)) for number in range(count)), codec=codec)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_batch_with_more_than_may_be_checked_at_once_is_left_alone(codec: Codec) -> None:
    """An event loop would be held up: by a few kilobytes, too, which unpack to megabytes."""
    batch = bytearray(many(2_000, codec))
    at_once = RULES._replace(at_once_max=100_000)
    before = bytes(batch)
    with pytest.raises(kernel.TakesLong):
        kernel.check_produced(batch, at_once, T)
    assert bytes(batch) == before
    assert check(batch).header.count == 2_000, "who has the time finds it good"
    assert check(many(500, codec), at_once).header.count == 500


@pytest.mark.parametrize("unpacked", [900_000, 1_100_000, 20_000_000])
def test_dull_batch_of_a_frame_without_a_size_is_accepted(unpacked: int) -> None:
    """Java's producer writes such frames, and packs megabytes of dull records into one. They were refused as damaged
    where they had more than may be checked at once."""
    count = unpacked // 10_000
    plain = produced(*(Record(number, T, None, bytes(10_000)) for number in range(count)))
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(plain[kernel.HEADER_SIZE :])
    batch = with_records(packed, count, Codec.ZSTD)
    assert check(batch).header.count == count
    try:
        assert check(batch, RULES._replace(at_once_max=1 << 20)).header.count == count
    except kernel.TakesLong:
        assert unpacked > 1 << 20


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name.lower())
def test_bomb_is_not_unpacked_any_further_than_what_may_be_checked_at_once(codec: Codec) -> None:
    bomb = kernel.build_batch([Record(0, T, None, bytes(70 << 20))], codec=codec)
    with pytest.raises(kernel.TakesLong):
        check(bomb, RULES._replace(at_once_max=1 << 20))
    assert "unpack to more than" in refused(bomb).text or "damaged" in refused(bomb).text


def test_damaged_stream_is_refused_at_once() -> None:
    batch = bytearray(many(2_000, Codec.GZIP))
    batch[kernel.HEADER_SIZE] ^= 0xFF
    batch = sealed(batch)
    with pytest.raises(InvalidRecords):
        check(batch, RULES._replace(at_once_max=100_000))


def test_batch_that_is_to_be_compressed_anew_takes_long_sooner() -> None:
    anew = RULES._replace(codec=Codec.GZIP, at_once_max=100_000)
    assert check(many(100, Codec.NONE), anew).recompressed
    with pytest.raises(kernel.TakesLong):
        check(many(200, Codec.NONE), anew)
