"""Compaction's view of records, against a model that thinks in dictionaries and against Kafka's own filter."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import T, captured, record_lists

from ottla import kernel
from ottla.kernel import Codec, Filtered, Record, TimestampType

NOW = T + 100_000
RETENTION = 1000
HORIZON = NOW + RETENTION


def offset_map(latest: dict[bytes, int], known_to: int) -> kernel.OffsetMap:
    out = kernel.OffsetMap(24 * 200)
    for key, offset in latest.items():
        assert out.put(key, offset)
    out.latest_offset = known_to
    return out


def filtered(batch: bytes, keep: kernel.OffsetMap, now_ms: int = NOW, **options: Any) -> Filtered:
    """`filter_batch` on a batch in the middle of a buffer."""
    buffer = b"before" + batch + b"after"
    header = kernel.read_header(buffer, 6)
    return kernel.filter_batch(buffer, 6, header, keep=keep, now_ms=now_ms, delete_retention_ms=RETENTION, **options)


def left(batch: bytes, keep: kernel.OffsetMap, now_ms: int = NOW, **options: Any) -> list[Record] | None:
    out = filtered(batch, keep, now_ms, **options).batch
    if out is None:
        return None
    assert kernel.scan(out).consumed == len(out)
    return kernel.read_records(out)


# The map.


def test_map_holds_the_last_offset_of_a_key() -> None:
    keys = kernel.OffsetMap(24 * 10)
    assert keys.get(b"k") == -1
    assert keys.put(b"k", 5)
    assert keys.put(memoryview(b"k"), 9)
    assert (keys.get(b"k"), keys.get(bytearray(b"l")), len(keys), keys.latest_offset) == (9, -1, 1, 9)


def test_map_takes_as_many_keys_as_kafkas() -> None:
    """24 bytes an entry: the cleaner's buffer lasts as long as the operator is used to."""
    keys = kernel.OffsetMap(24 * 100 + 23, load_factor=0.9)
    taken = 0
    while keys.put(b"key %d" % taken, taken):
        taken += 1
    assert (taken, keys.full, keys.latest_offset) == (90, True, 89)
    assert [keys.get(b"key %d" % n) for n in range(90)] == list(range(90))
    assert keys.get(b"key 90") == -1


def test_full_map_takes_not_even_a_key_it_knows() -> None:
    """The round ends at this record, and the next one begins with it."""
    keys = kernel.OffsetMap(24 * 2, load_factor=0.5)
    assert keys.put(b"k", 1)
    assert not keys.put(b"k", 2)
    assert keys.get(b"k") == 1


def test_map_without_room_for_a_key_names_the_setting() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        kernel.OffsetMap(24, load_factor=0.9)


def test_map_larger_than_memory_names_the_setting() -> None:
    """Nothing less may happen to a node whose operator added too many zeros."""
    with pytest.raises(ValueError, match=r"no memory for .* lower log\.cleaner\.dedupe\.buffer\.size"):
        kernel.OffsetMap(2**62)


@given(st.dictionaries(st.binary(max_size=6), st.integers(0, 2**62), max_size=40))
@settings(max_examples=50)
def test_map_is_a_dictionary_even_when_every_slot_is_taken(model: dict[bytes, int]) -> None:
    keys = kernel.OffsetMap(24 * max(len(model), 1), load_factor=1.0)
    for key, offset in model.items():
        assert keys.put(key, offset)
    assert {key: keys.get(key) for key in model} == model
    assert keys.get(b"another key") == -1


@pytest.mark.parametrize("codec", Codec)
def test_keys_of_a_batch_are_put(codec: Codec) -> None:
    records = [
        Record(10, T, b"a", b"1"),
        Record(11, T, None, b"2"),
        Record(13, T, b"b", None),
        Record(14, T, b"a", b"3"),
    ]
    batch = kernel.build_batch(records, codec=codec, last_offset=19)
    keys = kernel.OffsetMap(24 * 10)
    assert kernel.put_keys(keys, b"?" + batch, kernel.read_header(batch), 1)
    assert (keys.get(b"a"), keys.get(b"b"), len(keys)) == (14, 13, 2)
    assert keys.latest_offset == 19  # The batch's, not the last record's: the offsets after it are known to be gone.


def test_keys_are_put_from_the_first_dirty_offset_on() -> None:
    batch = kernel.build_batch([Record(10, T, b"a", b"1"), Record(11, T, b"b", b"2")])
    keys = kernel.OffsetMap(24 * 10)
    assert kernel.put_keys(keys, batch, kernel.read_header(batch), 0, 11)
    assert (keys.get(b"a"), keys.get(b"b"), keys.latest_offset) == (-1, 11, 11)
    later = kernel.OffsetMap(24 * 10)
    assert kernel.put_keys(later, batch, kernel.read_header(batch), 0, 12)
    assert (len(later), later.latest_offset) == (0, -1)


def test_full_map_knows_the_log_up_to_the_last_record_it_took() -> None:
    """Otherwise records after it would be judged by a map that never saw them."""
    batch = kernel.build_batch([Record(n, T, b"key %d" % n, b"") for n in range(10)])
    keys = kernel.OffsetMap(24 * 5, load_factor=0.8)
    assert not kernel.put_keys(keys, batch, kernel.read_header(batch))
    assert (len(keys), keys.latest_offset) == (4, 3)


# What stays.

BATCH = [Record(100, T, b"a", b"0"), Record(101, T, b"b", b"1"), Record(102, T, b"a", b"2"), Record(103, T, b"c", b"3")]


def test_untouched_batch_is_the_same_bytes() -> None:
    batch = kernel.build_batch(BATCH, codec=Codec.GZIP, leader_epoch=4)
    out = filtered(batch, offset_map({b"a": 100, b"b": 101, b"c": 103}, 103))
    assert out == (batch, 4, 0, T, 103)


def test_record_with_a_later_one_of_its_key_goes() -> None:
    assert left(kernel.build_batch(BATCH), offset_map({b"a": 102, b"b": 200}, 200)) == BATCH[2:]


def test_record_past_what_the_map_knows_stays() -> None:
    keyless = [*BATCH, Record(104, T, None, b"4")]
    assert left(kernel.build_batch(keyless), offset_map({b"a": 102, b"b": 101}, 102)) == keyless[1:]


def test_record_without_a_key_goes() -> None:
    assert left(kernel.build_batch([BATCH[0], Record(101, T, None, b"")]), offset_map({}, 200)) == BATCH[:1]


def test_tombstone_stays_until_its_horizon() -> None:
    """A reader that saw the value has delete.retention.ms to learn that it is gone."""
    batch = kernel.build_batch([Record(5, T, b"k", None)])
    keep = offset_map({b"k": 5}, 5)
    first = filtered(batch, keep).batch
    assert first is not None
    assert kernel.read_header(first).delete_horizon_ms == HORIZON
    assert kernel.read_records(first) == [Record(5, T, b"k", None)]
    assert bytes(filtered(bytes(first), keep, HORIZON - 1).batch or b"") == first
    assert filtered(bytes(first), keep, HORIZON) == (None, 0, 1, -1, -1)


def test_tombstone_with_a_later_record_of_its_key_goes_at_once() -> None:
    assert filtered(kernel.build_batch([Record(5, T, b"k", None)]), offset_map({b"k": 9}, 9)).batch is None


def test_marker_of_a_transaction_without_data_waits_for_its_horizon() -> None:
    """A reader in the middle of the transaction must still learn how it ended."""
    marker = captured("java_commit")
    keep = offset_map({}, 1000)
    assert filtered(marker, keep).batch == marker
    waiting = filtered(marker, keep, marks_empty_txn=True).batch
    assert waiting is not None
    assert kernel.read_header(waiting).delete_horizon_ms == HORIZON
    assert kernel.read_end_txn_marker(waiting) == kernel.read_end_txn_marker(marker)
    assert filtered(bytes(waiting), keep, HORIZON + 1, marks_empty_txn=True).batch == waiting
    assert filtered(bytes(waiting), keep, HORIZON + 1, marks_empty_txn=True, discard=True).batch is None


def test_discarded_batch_goes_whatever_the_map_says() -> None:
    batch = kernel.build_batch(BATCH)
    assert filtered(batch, offset_map({}, -1), discard=True) == (None, 0, 4, -1, -1)


def test_last_batch_of_a_producer_stays_without_records() -> None:
    """It says what the producer's last sequence was; without it the next batch would be out of order."""
    batch = kernel.build_batch(BATCH, producer_id=7, producer_epoch=3, base_sequence=2**31 - 2, codec=Codec.ZSTD)
    out = filtered(batch, offset_map({b"a": 200, b"b": 200, b"c": 200}, 200), retain_empty=True)
    assert out.batch is not None
    before, after = kernel.read_header(batch), kernel.read_header(out.batch)
    assert out[1:] == (0, 4, T, 103)
    assert (len(out.batch), after.count, after.codec, after.last_offset) == (61, 0, Codec.NONE, before.last_offset)
    assert (after.producer_id, after.producer_epoch, after.last_sequence) == (7, 3, before.last_sequence) == (7, 3, 1)
    assert kernel.read_records(out.batch) == []
    assert filtered(batch, offset_map({}, -1), discard=True, retain_empty=True).batch == out.batch
    assert filtered(bytes(out.batch), offset_map({}, 200), retain_empty=True).batch == out.batch
    assert filtered(bytes(out.batch), offset_map({}, 200)).batch is None


IN = captured("java_filter_in")  # a b a c(tombstone) d at 100 to 104, transactional


@pytest.mark.parametrize(
    ("before", "keep", "options", "after"),
    [
        ("java_filter_in", {b"a": 102}, {}, "java_filter_tombstone"),
        ("java_filter_tombstone", {b"b": 200, b"c": 200}, {}, "java_filter_again"),
        ("java_filter_in", {b"a": 200, b"c": 200}, {}, "java_filter_values"),
        ("java_filter_in_append_time", {b"a": 102}, {}, "java_filter_append_time"),
        ("java_filter_in", {}, {"discard": True, "retain_empty": True}, "java_filter_empty"),
        ("java_commit", {}, {"marks_empty_txn": True}, "java_filter_marker"),
    ],
)
def test_result_is_the_one_kafkas_filter_gives(
    before: str, keep: dict[bytes, int], options: dict[str, bool], after: str
) -> None:
    assert filtered(captured(before), offset_map(keep, 1000), **options).batch == captured(after)


def test_summary_is_the_one_kafkas_filter_gives() -> None:
    """The numbers are FilterResult's: records, and for the time index the batch's last offset."""
    assert filtered(IN, offset_map({b"a": 102}, 1000))[1:] == (4, 1, T + 4, 104)
    assert filtered(IN, offset_map({b"a": 200, b"c": 200}, 1000))[1:] == (2, 3, T + 3, 104)
    assert filtered(captured("java_filter_in_append_time"), offset_map({b"a": 102}, 1000))[1:] == (4, 1, T + 9, 104)


def model(
    records: list[Record], latest: dict[bytes, int], known_to: int, now_ms: int, horizon: int | None
) -> list[Record]:
    """The rules once more, as a person would say them."""
    kept = []
    for record in records:
        if record.offset > known_to:
            kept.append(record)
        elif record.key is not None:
            newest = record.offset >= latest.get(record.key, -1)
            expired = record.value is None and horizon is not None and now_ms >= horizon
            if newest and not expired:
                kept.append(record)
    return kept


@given(st.data())
@settings(max_examples=80)
def test_filter_agrees_with_the_model(data: st.DataObject) -> None:
    keys = st.none() | st.sampled_from([b"a", b"b", b"c", b""])
    records = data.draw(record_lists(gaps=True, keys=keys))
    first, last = records[0].offset, records[-1].offset
    latest = data.draw(st.dictionaries(st.sampled_from([b"a", b"b", b"c", b""]), st.integers(first, last + 5)))
    known_to = data.draw(st.integers(first - 1, last + 5))
    horizon = data.draw(st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]))
    by_broker = data.draw(st.booleans())
    batch = kernel.build_batch(
        records,
        codec=data.draw(st.sampled_from(Codec)),
        timestamp_type=TimestampType(by_broker),
        append_time_ms=T,
        delete_horizon_ms=horizon,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
        leader_epoch=2,
        last_offset=last + data.draw(st.integers(0, 3)),
    )
    out = filtered(batch, offset_map(latest, known_to))
    expected = model(kernel.read_records(batch), latest, known_to, NOW, horizon)

    assert (out.records_kept, out.records_dropped) == (len(expected), len(records) - len(expected))
    assert (out.batch is None) == (not expected)
    if out.batch is None:
        return
    assert kernel.read_records(out.batch) == expected
    (after,) = kernel.scan(out.batch).headers
    before = kernel.read_header(batch)
    same = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "codec")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert after.timestamp_type is before.timestamp_type
    tombstones = any(record.value is None for record in expected)
    assert after.delete_horizon_ms == (HORIZON if tombstones and horizon is None else horizon)
    assert out.max_timestamp == after.max_timestamp == (T if by_broker else max(r.timestamp for r in expected))
    if len(expected) == len(records) and after.delete_horizon_ms == horizon:
        assert out.batch == batch
