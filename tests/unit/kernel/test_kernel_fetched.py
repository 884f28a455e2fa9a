"""Fetched bytes to records and to columns: which records come out, in what pieces, and what damage does."""

import gc
import sys
import threading
from typing import Any

import pyarrow
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import CAPTURED_RECORDS, T, captured, record_lists, sealed, with_records

from ottla import kernel
from ottla.kernel import Aborted, Codec, ControlType, FetchedPart, Record

CODECS = [codec.name.lower() for codec in Codec]
NAMES = ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
TXN = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}


def batch(base: int, count: int, **options: Any) -> bytes:
    return kernel.build_batch([Record(base + n, T + n, b"k%d" % n, b"v" * 20) for n in range(count)], **options)


def marker(offset: int, producer_id: int, kind: ControlType = ControlType.ABORT) -> bytes:
    return kernel.build_end_txn_marker(
        kind, 0, timestamp=T, producer_id=producer_id, producer_epoch=0, base_offset=offset
    )


def rows(columns: kernel.Columns) -> list[Record]:
    """The records the columns stand for."""
    lists = columns.to_pydict()
    assert list(lists) == NAMES
    assert {len(column) for column in lists.values()} == {len(columns)}
    fields = zip(*(lists[name] for name in ("offset", "timestamp", "key", "value", "headers")), strict=True)
    return [Record(*members, tuple(headers)) for *members, headers in fields]


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Some batches one after the other, and their records."""
    data, records, base = b"", [], 0
    for _ in range(draw(st.integers(0, 4))):
        some = [record._replace(offset=base + n) for n, record in enumerate(draw(record_lists()))]
        data += kernel.build_batch(some, codec=draw(st.sampled_from(Codec)))
        records += some
        base += len(some)
    return data, records


@given(logs(), st.integers(0, 50), st.lists(st.integers(1, 9), max_size=20))
@settings(max_examples=40)
def test_records_come_in_any_pieces(log: tuple[bytes, list[Record]], position: int, pieces: list[int]) -> None:
    data, records = log
    wanted = [record for record in records if record.offset >= position]
    reader = kernel.RecordReader(memoryview(data), position)
    taken: list[Record] = []
    for piece in pieces:
        some = reader.take(piece)
        assert len(some) == min(piece, len(wanted) - len(taken))
        taken += some
        if some:
            assert reader.next_offset == some[-1].offset + 1
    taken += reader.take()
    assert taken == wanted
    assert all(type(record) is Record for record in taken)
    assert (reader.next_offset, reader.damage, reader.needed) == (max(len(records), position), None, 0)


@given(logs(), logs(), st.integers(0, 50), st.integers(1, 300))
@settings(max_examples=40)
def test_columns_hold_what_the_records_are_and_go_on_where_they_ended(
    one: tuple[bytes, list[Record]], other: tuple[bytes, list[Record]], position: int, bytes_max: int
) -> None:
    parts = {3: FetchedPart(3, one[0], position), 4: FetchedPart(4, memoryview(other[0]), 0)}
    found: dict[int, list[Record]] = {3: [], 4: []}
    while parts:
        columns = kernel.read_columns(parts.values(), bytes_max=bytes_max)
        for partition, record in zip(columns.to_pydict()["partition"], rows(columns), strict=True):
            found[partition].append(record)
        ends = dict(zip(parts, columns.ends, strict=True))
        parts = {n: parts[n]._replace(position=end.next_offset) for n, end in ends.items() if not end.finished}
    assert found == {3: [record for record in one[1] if record.offset >= position], 4: other[1]}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_batches_of_other_clients_become_columns(client: str, codec: str) -> None:
    columns = kernel.read_columns([FetchedPart(0, captured(f"{client}_{codec}"), 1)])
    assert rows(columns) == CAPTURED_RECORDS[1:]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_aiokafka_are_read_and_ours_by_it(codec: str) -> None:
    number = Codec[codec.upper()]
    theirs = DefaultRecordBatchBuilder(2, number, 1, 7, 2, 5, 1 << 20)
    ours = kernel.BatchBuilder()
    for n, (_, timestamp, key, value, headers) in enumerate(CAPTURED_RECORDS * 40):
        theirs.append(n, timestamp, key, value, list(headers))
        ours.append(timestamp, key, value, headers)
    built = bytes(theirs.build())
    records = kernel.RecordReader(built, 0).take()
    assert [record[1:] for record in records] == [record[1:] for record in CAPTURED_RECORDS * 40]
    assert [record.offset for record in records] == list(range(120))
    read = list(DefaultRecordBatch(bytearray(ours.build(codec=number, producer_id=7, producer_epoch=2))))
    assert [(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in read] == records


def test_pyarrow_takes_columns_as_they_are() -> None:
    """Types, nulls, and the empty list of headers; and twice, for two readers of one result."""
    data = captured("java_none") + kernel.build_batch(
        [Record(3, T, b"", b"")], timestamp_type=kernel.TimestampType.LOG_APPEND_TIME, append_time_ms=T + 9
    )
    columns = kernel.read_columns([FetchedPart(5, data, 0)])
    for _ in range(2):
        table = pyarrow.record_batch(columns)
        table.validate(full=True)
        assert [str(kind) for kind in table.schema.types[:6]] == [
            *("int32", "int64", "timestamp[ms, tz=UTC]", "int8", "binary", "binary")
        ]
        assert str(table.schema.types[6]) == "list<item: struct<key: string not null, value: binary> not null>"
        assert table.column("key").to_pylist() == [b"k0", None, b"k2", b""]
        assert table.column("value").to_pylist() == [b"v0", b"value one " * 20, None, b""]
        assert table.column("timestamp").cast("int64").to_pylist() == [T, T + 5, T + 3, T + 9]
        assert table.column("timestamp_type").to_pylist() == [0, 0, 0, 1]
        named = [{"key": "h1", "value": b"x"}, {"key": "né", "value": None}, {"key": "", "value": b""}]
        assert table.column("headers").to_pylist() == [[], [], named, []]
    taken = table.column("value")
    del table, columns
    gc.collect()
    assert taken.to_pylist()[0] == b"v0", "a column lives on when all else is gone"


def test_no_records_are_columns_too() -> None:
    columns = kernel.read_columns([FetchedPart(0, b"", 7)])
    assert (len(columns), columns.ends) == (0, [(7, None, 0, True)])
    table = pyarrow.record_batch(columns)
    table.validate(full=True)
    assert table.num_rows == 0


def test_nulls_are_kept_apart_from_their_neighbours_in_long_columns() -> None:
    """Bits of validity fill bytes of eight."""
    values = [None if n % 3 == 0 or n > 40 else b"%d" % n for n in range(83)]
    data = kernel.build_batch([Record(n, T, value, value) for n, value in enumerate(values)])
    table = pyarrow.record_batch(kernel.read_columns([FetchedPart(0, data, 0)]))
    table.validate(full=True)
    assert table.column("key").to_pylist() == table.column("value").to_pylist() == values


def test_aborted_transactions_and_markers_are_left_out() -> None:
    """I4: also where transactions of two producers are interleaved, and where reading goes on in the middle."""
    log = b"".join(
        [
            batch(0, 2, producer_id=1, **TXN),
            batch(2, 1, producer_id=2, **TXN),
            batch(3, 1),
            marker(4, 1),
            batch(5, 1, producer_id=1, **TXN),
            marker(6, 2, ControlType.COMMIT),
            marker(7, 1, ControlType.COMMIT),
        ]
    )
    for aborted, offsets in (([Aborted(0, 1)], [2, 3, 5]), ([], [0, 1, 2, 3, 5])):
        for position in range(8):
            reader = kernel.RecordReader(log, position, aborted)
            wanted = [offset for offset in offsets if offset >= position]
            assert [record.offset for record in reader.take()] == wanted
            assert reader.next_offset == 8
            columns = kernel.read_columns([FetchedPart(0, log, position, aborted)])
            assert columns.to_pydict()["offset"] == wanted


def test_damaged_batch_is_named_after_the_good_ones_before_it() -> None:
    bad = bytearray(batch(3, 2))
    bad[-1] ^= 1
    data = batch(0, 3) + bad + batch(5, 1)
    reader = kernel.RecordReader(data, 1)
    assert [record.offset for record in reader.take(2)] == [1, 2]
    assert reader.damage is None, "nobody has come so far yet"
    assert reader.take() == []
    assert reader.damage is not None
    assert reader.damage[:2] == (3, 5)
    assert "CRC" in reader.damage.reason
    assert kernel.RecordReader(data, 5).take() == [], "bytes behind damage are not trusted"
    columns = kernel.read_columns([FetchedPart(0, data, 1), FetchedPart(1, batch(9, 1), 9)])
    assert columns.to_pydict()["offset"] == [1, 2, 9]
    assert columns.ends == [(3, reader.damage, 0, True), (10, None, 0, True)]


def test_no_record_of_an_unsound_batch_is_given_out() -> None:
    """Its offsets are the batch's to tell: half of one cannot be stepped over."""
    record = bytes.fromhex("10 00 00 00 02 6b 02 76 00")
    data = bytes(with_records(record + record[:-1], 2))
    reader = kernel.RecordReader(data, 0)
    assert (reader.take(1), reader.next_offset) == ([], 0)
    assert reader.damage is not None
    assert reader.damage[:2] == (0, 2)
    assert len(kernel.read_columns([FetchedPart(0, data, 0)])) == 0


@pytest.mark.parametrize("base_offset", [-5, -1, 2**63 - 1, 2**63 - 2**31])
def test_offsets_no_log_can_have_are_damage(base_offset: int) -> None:
    """They lie outside the checksum."""
    data = bytearray(batch(0, 10))
    kernel.stamp(data, 0, base_offset, 0)
    reader = kernel.RecordReader(bytes(data), 0)
    assert reader.take() == []
    assert reader.damage is not None
    assert reader.damage[:2] == (0, 1)


def test_first_batch_larger_than_the_answer_says_how_large_it_is() -> None:
    whole = batch(0, 10)
    for data, needed in ((whole[:-1], len(whole)), (whole + whole[:30], 0), (whole[:10], 0)):
        reader = kernel.RecordReader(data, 0)
        reader.take()
        assert reader.needed == needed
        assert kernel.read_columns([FetchedPart(0, data, 0)]).ends[0].needed == needed


def test_bombs_are_unpacked_one_at_a_time_and_only_as_far_as_allowed() -> None:
    """64 batches of a megabyte each in 8 kilobytes: a result ends with the batch that fills it."""
    value = bytes(1_000_000)
    one = kernel.build_batch([Record(0, T, None, value)], codec=Codec.ZSTD)
    log = bytearray()
    for offset in range(64):
        at = len(log)
        log += one
        kernel.stamp(log, at, offset, 0)
    columns = kernel.read_columns([FetchedPart(0, bytes(log), 0)], bytes_max=3_000_000)
    assert (len(columns), columns.ends) == (3, [(3, None, 0, False)])
    assert len(kernel.RecordReader(bytes(log), 0).take(2)) == 2
    huge = kernel.compress(Codec.ZSTD, bytes(65 << 20))
    reader = kernel.RecordReader(bytes(with_records(huge, 1, Codec.ZSTD)), 0)
    assert reader.take() == []
    assert reader.damage is not None
    assert "zstd" in reader.damage.reason


@pytest.mark.parametrize("bytes_max", [0, -1, 1 << 30])
def test_columns_that_arrow_could_not_count_are_not_asked_for(bytes_max: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        kernel.read_columns([], bytes_max=bytes_max)


def test_header_names_that_are_not_utf8_are_replaced_in_columns_too() -> None:
    data = bytes(with_records(b"\x18\0\0\0\2k\2v\2\4\xffa\0", 1))
    assert kernel.read_columns([FetchedPart(0, data, 0)]).to_pydict()["headers"] == [[("\ufffda", b"")]]


def test_records_outlive_reader_and_bytes() -> None:
    data = bytearray(batch(0, 50))
    records = kernel.RecordReader(data, 0).take()
    gc.collect()
    data[:] = bytes(len(data))
    assert records == [Record(n, T + n, b"k%d" % n, b"v" * 20) for n in range(50)]
    assert hash(records[0]) == hash(Record(0, T, b"k0", b"v" * 20))
    assert records[1]._replace(offset=9).offset == 9
    assert sys.getrefcount(records[7].value) <= 3


def test_readers_may_work_in_threads() -> None:
    data = b"".join(batch(base, 100, codec=Codec.LZ4) for base in range(0, 2000, 100))
    found: list[int] = []

    def read() -> None:
        found.append(sum(record.offset for record in kernel.RecordReader(data, 0).take()))
        found.append(sum(kernel.read_columns([FetchedPart(0, data, 0)]).to_pydict()["offset"]))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [sum(range(2000))] * 8


def test_a_sealed_batch_of_nothing_is_stepped_over() -> None:
    """Compaction leaves such a batch so that its producer's last sequence stays known."""
    reader = kernel.RecordReader(bytes(sealed(captured("java_filter_empty"))), 0)
    assert reader.take() == []
    assert (reader.damage, reader.next_offset > 0) == (None, True)
