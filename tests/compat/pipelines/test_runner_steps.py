"""Steps and formats: what becomes of rows, computed as a batch, and as a stream where state is kept."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from google.protobuf import message_factory
from pyspark.ml import Pipeline as Stages
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import DataFrame, SparkSession
from runner_files import pipeline_in, run_once, write_lines

from ottla.pipelines import Pipeline
from ottla.pipelines.spark.build import SinkQuery, build
from ottla.pipelines.spark.protobuf import compile_proto, descriptor_of
from ottla.pipelines.spark.session import send_code
from ottla.pipelines.spark.sources import SourceContext
from ottla.pipelines.spark.steps import BadModel
from ottla.pipelines.spark.topic_source import COLUMNS
from ottla.pipelines.spec.model import TopicSource

CODE = """
import pandas as pd
from pyspark.sql import Row, functions as F
from pyspark.sql.streaming import StatefulProcessor


def doubled(frames):
    for frame in frames:
        yield pd.DataFrame({"city": frame["city"], "twice": frame["n"] * 2})


class Count(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n BIGINT")

    def handleInputRows(self, key, rows, timers):
        count = (self._count.get()[0] if self._count.exists() else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(city=key[0], n=count)

    def close(self):
        pass


def most_seen(views):
    return views.groupBy("city").agg(F.count("*").alias("n"))
"""


def records(spark: SparkSession, *values: tuple[bytes | None, bytes | None]) -> DataFrame:
    """Of a topic: key and value."""
    made = [(key, value, "t", 0, offset, None, []) for offset, (key, value) in enumerate(values)]
    return spark.createDataFrame(made, COLUMNS)


def computed(
    spark: SparkSession, home: Path, text: str, topics: dict[str, DataFrame], *, dead_letters: bool = False
) -> dict[str, SinkQuery]:
    """The queries of a pipeline over what its topics hold, by sink."""
    errors = '[errors]\ndead_letter = "dlq"\n' if dead_letters else ""
    pipeline = pipeline_in(home, f'name = "p"\n{text}\n{errors}')

    def hold(source: TopicSource) -> DataFrame:
        return topics[source.name]

    reading = SourceContext(spark, str(home), hold, hold, {}, keep_failures=dead_letters, streaming=False)
    return {query.sink.name: query for query in build(pipeline, reading)}


def values(query: SinkQuery) -> list[Any]:
    rows = query.frame.where("not dead") if query.has_dead_letters else query.frame
    return sorted((json.loads(row.value) for row in rows.collect()), key=str)


def test_table_is_the_latest_value_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that were deleted are not in it. A value that is broken stops the run: nobody would miss it otherwise."""
    text = """
[source.orders]
topic = "orders"
parse = "json"
schema = "city STRING"
[source.names]
topic = "names"
parse = "json"
schema = "name STRING"
table = true
[[step]]
sql = "SELECT orders.city, names.name FROM orders JOIN names ON orders.city = string(names._key)"
[sink.out]
topic = "out"
"""
    orders = records(spark, (None, b'{"city": "be"}'), (None, b'{"city": "ch"}'))
    names = records(
        spark, (b"be", b'{"name": "old"}'), (b"be", b'{"name": "Berne"}'), (b"ch", b'{"name": "Chur"}'), (b"ch", None)
    )
    made = computed(spark, tmp_path, text, {"orders": orders, "names": names})
    assert values(made["out"]) == [{"city": "be", "name": "Berne"}]
    broken = records(spark, (b"be", b"{ broken"), (b"be", b'{"name": "Berne"}'), (b"ch", b"{ broken"))
    failing = computed(spark, tmp_path, text, {"orders": orders, "names": broken}, dead_letters=True)
    with pytest.raises(Exception, match=r"source names: t-0 at offset 2 cannot be parsed: .* write another value for"):
        values(failing["out"])


def test_dedup_and_functions_on_pandas(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pandas_steps.py").write_text(CODE)
    send_code(spark, str(tmp_path))
    text = """
[source.orders]
topic = "orders"
parse = "json"
schema = "city STRING, n BIGINT, at TIMESTAMP"
[[step]]
dedup = ["city"]
watermark = { column = "at", delay = "1m" }
[[step]]
python = "pandas_steps:doubled"
frame = "pandas"
schema = "city STRING, twice BIGINT"
[sink.out]
topic = "out"
key = "city"
headers = ["twice"]
"""
    one = b'{"city": "be", "n": 4, "at": "2026-01-01T00:00:00Z"}'
    made = computed(spark, tmp_path, text, {"orders": records(spark, (None, one), (None, one))})["out"]
    (row,) = made.frame.collect()
    assert (bytes(row.key), json.loads(row.value)) == (b"be", {"city": "be"})
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("twice", b"8")]


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "city", "type": "string"},
            {"name": "n", "type": ["null", "long"]},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
        ],
    }
)


def test_avro_in_and_out(spark: SparkSession, tmp_path: Path) -> None:
    """Bytes that do not fit the schema are a dead letter, also such as a decoder would take for a shorter record."""
    text = f"""
[source.orders]
topic = "orders"
parse = "avro"
schema = '''{AVRO}'''
[sink.out]
topic = "out"
serialise = "avro"
schema = '''{AVRO}'''
"""
    order = {"city": "be", "n": None, "tags": {"a": 1}}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, json.loads(AVRO), order)
    good = stream.getvalue()
    orders = records(spark, (None, good), (None, good + b"more"), (None, b"\xff"))
    made = computed(spark, tmp_path, text, {"orders": orders}, dead_letters=True)["out"].frame.collect()
    (row,) = (row for row in made if not row.dead)
    assert fastavro.schemaless_reader(io.BytesIO(row.value), json.loads(AVRO), None) == order
    assert sorted(bytes(row.value) for row in made if row.dead) == sorted([good + b"more", b"\xff"])


PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; OLD = 1; }
message Item { string name = 1; map<string, int32> parts = 2; }
message Order {
  string city = 1; optional int64 n = 2; repeated string tags = 3; Kind kind = 4;
  repeated Item items = 5; google.protobuf.Timestamp at = 6; bytes raw = 7; double total = 8;
}
"""


def test_protobuf_in_and_json_out(spark: SparkSession, tmp_path: Path) -> None:
    text = f"""
[source.orders]
topic = "orders"
parse = "protobuf"
message = "shop.Order"
schema = '''{PROTOBUF}'''
[[step]]
sql = "SELECT city, n, tags, kind FROM orders"
[sink.out]
topic = "out"
"""
    order = b"\x0a\x02be\x1a\x01a\x1a\x01b\x20\x01"  # city, tags and kind, as protobuf lays them out.
    made = computed(spark, tmp_path, text, {"orders": records(spark, (None, order))})
    assert values(made["out"]) == [{"city": "be", "n": None, "tags": ["a", "b"], "kind": "OLD"}]


def test_protobuf_in_and_out(spark: SparkSession, tmp_path: Path) -> None:
    """Byte for byte, with maps, times and messages in messages; a value that no field can hold stops the sink."""
    text = f"""
[source.orders]
topic = "orders"
parse = "protobuf"
message = "Order"
schema = '''{PROTOBUF}'''
[sink.out]
topic = "out"
serialise = "protobuf"
message = "shop.Order"
schema = '''{PROTOBUF}'''
"""
    make = message_factory.GetMessageClass(descriptor_of(compile_proto(PROTOBUF, "Order")[0], "Order"))
    whole = make(
        city="be",
        n=4,
        tags=["a", "b"],
        kind=1,
        items=[{"name": "pump", "parts": {"valve": 2, "axle": 1}}, {"name": "", "parts": {}}],
        at={"seconds": 1_763_251_270, "nanos": 123_456_000},
        raw=b"\xff\x00",
        total=1.5,
    ).SerializeToString(deterministic=True)
    orders = records(spark, (None, whole), (None, b""), (None, b"\xff"))
    made = computed(spark, tmp_path, text, {"orders": orders}, dead_letters=True)["out"].frame.collect()
    assert sorted(bytes(row.value) for row in made if not row.dead) == [b"", whole]
    assert [bytes(row.value) for row in made if row.dead] == [b"\xff"]


STATE = """
name = "state"
[source.views]
files = "in"
parse = "json"
schema = "city STRING"
[[step]]
name = "counted"
stateful = "state_steps:Count"
keys = ["city"]
schema = "city STRING, n BIGINT"
[[step]]
name = "trained"
input = "views"
train = "state_steps:most_seen"
schema = "city STRING, n BIGINT"
[sink.counts]
parquet = "counts"
input = "counted"
[sink.results]
parquet = "results"
input = "trained"
"""


def newest(home: Path, sink: str) -> Counter[str]:
    """The largest count of each city that was written."""
    found: Counter[str] = Counter()
    for row in pq.read_table(home / sink).to_pylist():
        found[row["city"]] = max(found[row["city"]], row["n"])
    return found


def test_state_and_training_go_on_where_the_run_before_ended(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "state_steps.py").write_text(CODE)
    send_code(spark, str(tmp_path))
    pipeline: Pipeline = pipeline_in(tmp_path, STATE)
    write_lines(tmp_path / "in" / "1.json", [{"city": "be"}, {"city": "be"}, {"city": "ch"}])
    run_once(spark, tmp_path, pipeline)
    write_lines(tmp_path / "in" / "2.json", [{"city": "be"}])
    run_once(spark, tmp_path, pipeline)
    assert newest(tmp_path, "counts") == {"be": 3, "ch": 1}
    assert newest(tmp_path, "results") == {"be": 3, "ch": 1}


FILES = """
[source.lines]
files = "in"
parse = "{parse}"
{schema}
[sink.out]
topic = "out"
"""


def test_columns_of_csv_files_are_inferred_and_lines_that_do_not_fit_are_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in" / "1.csv", ["city,n", "be,1", "ch,2"])
    text = FILES.format(parse="csv", schema="header = true")
    assert values(computed(spark, tmp_path, text, {})["out"]) == [{"city": "be", "n": 1}, {"city": "ch", "n": 2}]
    write_lines(tmp_path / "in" / "2.csv", ["city,n", "zh,many"])
    text = FILES.format(parse="csv", schema='header = true\nschema = "city STRING, n INT"')
    made = computed(spark, tmp_path, text, {}, dead_letters=True)["out"]
    assert len(values(made)) == 2
    (dead,) = made.frame.where("dead").collect()
    assert bytes(dead.value) == b"zh,many"
    counted = text.replace("[sink.out]", '[[step]]\nsql = "SELECT count(*) AS n FROM lines"\n[sink.out]')
    assert values(computed(spark, tmp_path, counted, {}, dead_letters=True)["out"]) == [{"n": 2}]


def test_columns_of_a_topic_are_inferred_from_its_records(spark: SparkSession, tmp_path: Path) -> None:
    """A record that is no JSON tells nothing, and is no reason to stop before anything has begun."""
    text = FILES.replace('files = "in"', 'topic = "t"').format(parse="json", schema="")
    lines = records(spark, (b"k", b'{"n": 1}'), (None, b"broken"), (None, b'{"city": "be"}'), (None, None))
    made = computed(spark, tmp_path, text, {"lines": lines}, dead_letters=True)["out"]
    found = values(made)
    assert found == [{"city": "be", "n": None}, {"city": None, "n": 1}, {"city": None, "n": None}]
    assert [bytes(row.value) for row in made.frame.where("dead").collect()] == [b"broken"]


def test_times_are_known_where_columns_are_inferred(spark: SparkSession, tmp_path: Path) -> None:
    """A window over them needs no schema then. Dates and numbers in quotes stay what they are: text."""
    text = """
[source.lines]
topic = "t"
parse = "json"
[[step]]
sql = "SELECT typeof(at) AS at, typeof(z) AS z, typeof(plain) AS plain, typeof(day) AS day, zip + 0 AS zip FROM lines"
[sink.out]
topic = "out"
"""
    line = {"at": "2026-11-16T00:01:10.5+01:00", "z": "2026-11-16T00:01:10Z", "plain": "2026-11-16 00:01:10"}
    line |= {"day": "2026-11-16", "zip": "8001"}
    lines = records(spark, (None, json.dumps(line).encode()))
    assert values(computed(spark, tmp_path, text, {"lines": lines})["out"]) == [
        {"at": "timestamp", "z": "timestamp", "plain": "timestamp", "day": "string", "zip": 8001}
    ]


def test_column_of_text_takes_any_json_as_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """What has no columns of its own can be kept that way; what is no text where a number belongs is a dead letter."""
    text = """
[source.orders]
topic = "orders"
parse = "json"
schema = "city STRING, n BIGINT"
[sink.out]
topic = "out"
"""
    found = [b'{"city": {"name": "be", "zip": [3000]}, "n": 1}', b'{"city": 5, "n": 2}', b'{"city": true, "n": 3}']
    failing = [b'{"city": "be", "n": {"of": 4}}', b'{"city": "be", "n": "5"}']
    orders = records(spark, *((None, value) for value in found + failing))
    made = computed(spark, tmp_path, text, {"orders": orders}, dead_letters=True)["out"]
    cities = {row["n"]: row["city"] for row in values(made)}
    assert cities == {1: '{"name":"be","zip":[3000]}', 2: "5", 3: "true"}
    assert sorted(bytes(row.value) for row in made.frame.where("dead").collect()) == sorted(failing)


def test_model_that_was_saved_adds_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Of any kind, found by its path beside the pipeline's file; to streams as to batches."""
    known = spark.createDataFrame([(float(n), 2.0 * n + 1) for n in range(10)], "n DOUBLE, label DOUBLE")
    regression = LinearRegression(featuresCol="features", labelCol="label")
    Stages(stages=[VectorAssembler(inputCols=["n"], outputCol="features"), regression]).fit(known).save(
        str(tmp_path / "models" / "line")
    )
    text = """
name = "scores"
[source.orders]
files = "in"
parse = "json"
schema = "n DOUBLE"
[[step]]
model = "models/line"
[[step]]
sql = "SELECT n, prediction FROM step_1"
[sink.out]
parquet = "out"
"""
    write_lines(tmp_path / "in" / "1.json", [{"n": 20.0}, {"n": -1.0}])
    run_once(spark, tmp_path, pipeline_in(tmp_path, text))
    written = {row["n"]: row["prediction"] for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert written == {20.0: pytest.approx(41.0), -1.0: pytest.approx(-1.0)}
    gone = text.replace("models/line", "models/gone").replace("scores", "gone")
    with pytest.raises(BadModel, match=r"step step_1: there is no model in .*models/gone"):
        run_once(spark, tmp_path, pipeline_in(tmp_path, gone))


def test_text_that_is_no_utf8_stops_a_pipeline_without_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    text = FILES.replace('files = "in"', 'topic = "t"').format(parse="text", schema="") + 'serialise = "text"\n'
    lines = records(spark, (None, "Zürich".encode()), (None, b"\xff"))
    made = computed(spark, tmp_path, text, {"lines": lines})["out"]
    with pytest.raises(Exception, match="source lines: t-0 at offset 1 cannot be parsed: it is not UTF-8"):
        made.frame.collect()
    kept = computed(spark, tmp_path, text, {"lines": lines}, dead_letters=True)["out"].frame.collect()
    assert {bytes(row.value): row.dead for row in kept} == {"Zürich".encode(): False, b"\xff": True}
