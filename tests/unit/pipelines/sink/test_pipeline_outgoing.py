"""Rows on their way to topics: columns by type and by topic, and partitions chosen by a person's own function."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.sink.outgoing import BadRows, completed, partitioner_named, rows_by_topic, with_partitions

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string(), False), ("value", pa.binary())]), False))
TYPES = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "timestamp": pa.timestamp("us", "UTC"),
}


def batch_of(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    wanted = TYPES | types
    return pa.record_batch(
        [pa.array([row.get(name) for row in rows], kind) for name, kind in wanted.items()], names=list(wanted)
    )


def last_byte(key: bytes | None, value: bytes | None, partitions: int) -> int:
    return (key or value or b"\0")[-1] % partitions


NOT_A_FUNCTION = 5


def test_rows_are_told_apart_by_topic_and_keep_their_order() -> None:
    rows = [{"topic": "t" if n % 3 else "dead", "value": b"%d" % n} for n in range(7)]
    found = {topic: part.column("value").to_pylist() for topic, part in rows_by_topic(batch_of(rows))}
    assert found == {"t": [b"1", b"2", b"4", b"5"], "dead": [b"0", b"3", b"6"]}


def test_no_rows_are_rows_of_no_topic() -> None:
    assert list(rows_by_topic(batch_of([]))) == []


@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns"])
def test_times_become_milliseconds(kind: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    batch = batch_of([{"topic": "t", "timestamp": moment}, {"topic": "t"}], timestamp=pa.timestamp(kind, "UTC"))
    [(_, rows)] = rows_by_topic(batch)
    assert rows.column("timestamp").to_pylist() == [int(moment.timestamp() * 1000), None]


def test_large_and_textual_columns_are_taken_too() -> None:
    """Engines are set to use them; the kernel takes one type of each."""
    batch = batch_of(
        [{"topic": "t", "key": "k", "value": b"v", "headers": [{"key": "h", "value": b"x"}]}],
        topic=pa.large_string(),
        key=pa.string(),
        value=pa.large_binary(),
    )
    [(topic, rows)] = rows_by_topic(batch)
    assert (topic, rows.column("key").to_pylist(), rows.column("value").to_pylist()) == ("t", [b"k"], [b"v"])
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_a_row_needs_a_topic() -> None:
    with pytest.raises(BadRows, match="1 of 2 rows have no topic"):
        list(rows_by_topic(batch_of([{"topic": "t"}, {}])))


def test_columns_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(BadRows, match="column value is double; binary is needed"):
        list(rows_by_topic(batch_of([{"topic": "t", "value": 1.5}], value=pa.float64())))
    with pytest.raises(BadRows, match="have the columns topic, partition, key, value, headers, timestamp, not value"):
        list(rows_by_topic(pa.record_batch([pa.array([b"v"])], names=["value"])))


def test_a_function_chooses_partitions_for_rows_that_name_none() -> None:
    choose = partitioner_named(f"{__name__}:last_byte")
    assert choose is not None
    keys = [{"topic": "t", "key": b"\4"}, {"topic": "t", "value": b"\5"}, {"topic": "t", "partition": 2, "key": b"\4"}]
    [(_, rows)] = rows_by_topic(batch_of(keys))
    assert with_partitions(rows, choose, 3).column("partition").to_pylist() == [1, 2, 2]


@pytest.mark.parametrize("chosen", [3, -1, None, "0"])
def test_a_partition_that_is_not_there_is_refused(chosen: Any) -> None:
    [(_, rows)] = rows_by_topic(batch_of([{"topic": "t"}]))
    with pytest.raises(BadRows, match="the topic has 3 partitions"):
        with_partitions(rows, lambda *_: chosen, 3)


@pytest.mark.parametrize("name", ["no.such.module:f", f"{__name__}:absent", f"{__name__}:NOT_A_FUNCTION", "random"])
def test_a_partitioner_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(BadRows, match=f"partitioner {name}"):
        partitioner_named(name)


def test_those_that_kafka_has_need_no_function() -> None:
    assert partitioner_named("default") is partitioner_named("round-robin") is None


def test_columns_that_all_rows_would_have_alike_need_not_come_along() -> None:
    rows = pa.record_batch({"value": pa.array([b"1", b"2"]), "key": pa.array([b"a", None], pa.binary())})
    ((topic, taken),) = rows_by_topic(completed(rows, "orders"))
    assert topic == "orders"
    assert taken.to_pylist() == [
        {"partition": None, "timestamp": None, "key": b"a", "value": b"1", "headers": None},
        {"partition": None, "timestamp": None, "key": None, "value": b"2", "headers": None},
    ]


def test_columns_that_are_there_stay() -> None:
    headers = [[{"key": "h", "value": b"1"}], []]
    rows = pa.record_batch(
        {"topic": ["dead", "orders"], "value": [b"1", b"2"], "key": [b"a", b"b"], "headers": headers}
    )
    found = {topic: taken.to_pylist() for topic, taken in rows_by_topic(completed(rows, "orders"))}
    assert list(found) == ["dead", "orders"]
    assert found["dead"][0]["headers"] == headers[0]
    assert found["orders"][0]["value"] == b"2"
