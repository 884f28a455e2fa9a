"""Rows of Arrow columns to the batches of a topic: both kernels, and the one against the other."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import implementation_named, outcome, packed

from ottla import kernel
from ottla.kernel import NO_SEQUENCE, Codec, read_header, reference

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
NOW = 1_700_000_000_000

Row = tuple[int | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def rows_of(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def records_of(batch: kernel.BuiltBatch) -> list[kernel.Record]:
    return list(kernel.read_records(batch.data, read_header(batch.data)))


def by_partition(built: list[kernel.BuiltBatch]) -> dict[int, list[bytes | None]]:
    """The values that went to each partition, in order."""
    values: dict[int, list[bytes | None]] = {}
    for batch in built:
        records = records_of(batch)
        assert len(records) == batch.records
        values.setdefault(batch.partition, []).extend(record.value for record in records)
    return values


def test_a_key_goes_where_clients_of_kafka_put_it() -> None:
    batches = kernel.TopicBatches(7, batch_bytes=1000)
    keys = [b"", b"a", b"alice", b"\xff" * 9]
    batches.add(rows_of([(None, None, key, key, None) for key in keys]), now_ms=NOW)
    placed = by_partition(batches.flush())
    for key in keys:
        assert key in placed[(kernel.murmur2(key) & 0x7FFF_FFFF) % 7]


def test_a_named_partition_is_taken_whatever_the_key() -> None:
    batches = kernel.TopicBatches(3, batch_bytes=1000, round_robin=True)
    batches.add(rows_of([(2, None, b"k", b"a", None), (0, None, None, b"b", None)]), now_ms=NOW)
    assert by_partition(batches.flush()) == {0: [b"b"], 2: [b"a"]}


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    batches = kernel.TopicBatches(3, batch_bytes=1000)
    with pytest.raises(ValueError, match=f"names partition {partition}; the topic has 3, counted from 0"):
        batches.add(rows_of([(partition, None, None, None, None)]), now_ms=NOW)


def test_rows_without_a_key_fill_a_batch_before_they_move_on() -> None:
    """One record a batch would cost more than all else."""
    batches = kernel.TopicBatches(3, batch_bytes=500, first=4)
    built = batches.add(rows_of([(None, None, None, b"v" * 60, None)] * 20), now_ms=NOW) + batches.flush()
    assert {batch.partition for batch in built} == {0, 1, 2}
    assert min(batch.records for batch in built[:-1]) >= 3


def test_round_robin_deals_rows_out_one_by_one() -> None:
    batches = kernel.TopicBatches(3, batch_bytes=500, first=1, round_robin=True)
    batches.add(rows_of([(None, None, b"same", bytes([n]), None) for n in range(5)]), now_ms=NOW)
    assert by_partition(batches.flush()) == {1: [b"\0", b"\3"], 2: [b"\1", b"\4"], 0: [b"\2"]}


def test_rows_wait_for_more_and_sequences_count_on() -> None:
    batches = kernel.TopicBatches(1, batch_bytes=300, producer_id=9, producer_epoch=4, transactional=True)
    rows = rows_of([(None, 5, None, b"v" * 50, [("h", None), ("né", b"x")])] * 4)
    built = batches.add(rows, now_ms=NOW) + batches.add(rows, now_ms=NOW)
    assert batches.held_bytes > 0
    built += batches.flush()
    assert batches.held_bytes == 0
    assert batches.flush() == []
    headers = [read_header(batch.data) for batch in built]
    assert [header.base_sequence for header in headers] == [
        0,
        *(sum(b.records for b in built[: n + 1]) for n in range(len(built) - 1)),
    ]
    assert {(h.producer_id, h.producer_epoch, h.is_transactional) for h in headers} == {(9, 4, True)}
    assert all(len(batch.data) <= 300 for batch in built)
    record = records_of(built[0])[0]
    assert (record.timestamp, record.headers) == (5, (("h", None), ("né", b"x")))


def test_without_a_producer_there_are_no_sequences() -> None:
    batches = kernel.TopicBatches(1, batch_bytes=300)
    batches.add(rows_of([(None, None, None, None, None)]), now_ms=NOW)
    header = read_header(batches.flush()[0].data)
    assert (header.base_sequence, header.producer_id, header.is_transactional) == (NO_SEQUENCE, -1, False)


def test_a_row_larger_than_a_batch_has_one_of_its_own() -> None:
    batches = kernel.TopicBatches(1, batch_bytes=100)
    sizes = [10, 500, 10]
    built = batches.add(rows_of([(None, None, None, b"v" * size, None) for size in sizes]), now_ms=NOW)
    assert [batch.records for batch in built + batches.flush()] == [1, 1, 1]


def test_a_slice_of_columns_is_read_from_its_start() -> None:
    """Engines hand over windows of larger columns: every column then has an offset of its own."""
    rows: list[Row] = [(n % 2, n, b"k%d" % n, b"v%d" % n, [(f"h{n}", b"x")] * (n % 3)) for n in range(20)]
    batches = kernel.TopicBatches(2, batch_bytes=10_000)
    batches.add(rows_of(rows)[9:15], now_ms=NOW)
    found = sorted(record for batch in batches.flush() for record in (r[1:] for r in records_of(batch)))
    assert found == sorted((r[1], r[2], r[3], tuple(r[4] or ())) for r in rows[9:15])


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([SCHEMA.field(n) for n in (1, 0, 2, 3, 4)]),
        pa.schema(list(SCHEMA)[:4]),
        pa.schema([*list(SCHEMA)[:3], ("value", pa.large_binary()), SCHEMA.field(4)]),
        pa.schema([*list(SCHEMA)[:4], ("headers", pa.list_(pa.string()))]),
    ],
)
def test_columns_of_other_types_are_refused(schema: pa.Schema) -> None:
    """Read as what they are not, they would be other people's memory."""
    batches = kernel.TopicBatches(2, batch_bytes=1000)
    with pytest.raises(ValueError, match="rows are columns of partition int32"):
        batches.add(pa.record_batch([pa.nulls(1, field.type) for field in schema], schema=schema), now_ms=NOW)


def test_a_header_needs_a_name() -> None:
    batches = kernel.TopicBatches(1, batch_bytes=1000)
    for headers in ([None], [{"key": None, "value": b"x"}]):
        column = pa.array([headers], HEADERS)
        rows = pa.record_batch([*(pa.nulls(1, SCHEMA.field(n).type) for n in range(4)), column], schema=SCHEMA)
        with pytest.raises(ValueError, match="a header has no name"):
            batches.add(rows, now_ms=NOW)


@pytest.mark.parametrize(
    ("partitions", "options"), [(0, {}), (1_000_001, {}), (1, {"batch_bytes": 0}), (1, {"first": -1})]
)
def test_senseless_sizes_are_refused(partitions: int, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"choose|a topic has"):
        kernel.TopicBatches(partitions, **{"batch_bytes": 100, **options})


small = st.binary(max_size=40)
row = st.tuples(
    st.none() | st.integers(-1, 4),
    st.none() | st.integers(-2, 2**62),
    st.none() | small,
    st.none() | small,
    st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | small), max_size=3),
)


@settings(max_examples=120, deadline=None)
@given(
    parts=st.lists(st.lists(row, max_size=12), max_size=4),
    cut=st.integers(0, 3),
    options=st.fixed_dictionaries(
        {
            "batch_bytes": st.integers(1, 400),
            "codec": st.sampled_from(Codec),
            "producer_id": st.sampled_from([-1, 7]),
            "transactional": st.booleans(),
            "first": st.integers(0, 9),
            "round_robin": st.booleans(),
        }
    ),
    partitions=st.integers(1, 5),
)
def test_both_kernels_build_the_same(
    parts: list[list[Row]], cut: int, options: dict[str, Any], partitions: int
) -> None:
    def built(implementation: Any) -> object:
        batches = implementation.TopicBatches(partitions, **options)
        found: list[object] = []
        for rows in parts:
            found += batches.add(rows_of(rows)[cut:], now_ms=NOW)
            found.append(batches.held_bytes)
        found += batches.flush()
        return [one if isinstance(one, int) else (*one[:2], packed(one[2])) for one in found]  # type: ignore[index]

    native = implementation_named("native")
    assert outcome(lambda: built(native)) == outcome(lambda: built(reference))
