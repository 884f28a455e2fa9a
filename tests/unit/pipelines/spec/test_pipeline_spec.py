"""The spec itself: both faces give the same one, it survives a checkpoint, its hash says what it means, its names."""

import pytest
from pipeline_text import SHOP, changed, parsed

from ottla.pipelines import (
    Declaration,
    InvalidPipeline,
    Pipeline,
    PipelineIdentity,
    canonical,
    from_canonical,
    spec_hash,
)
from ottla.pipelines.authoring.document import to_document
from ottla.pipelines.authoring.files import PipelineFiles
from ottla.pipelines.authoring.reader import read_pipeline
from ottla.pipelines.spec.graph import cycle, in_order, inputs_of, upstream
from ottla.pipelines.spec.model import (
    Dedup,
    FrameType,
    MarkOnly,
    Ml,
    PythonFunction,
    StartPosition,
    Stateful,
    TimeMode,
    TopicSource,
)
from ottla.pipelines.spec.problems import FileLine, Path

QUERY = "\nSELECT window(event_time, '1 minute') AS w, city, count(*) AS n\nFROM orders\nGROUP BY 1, 2\n"
EVERYTHING = """\
name = "everything"
bootstrap = "localhost"
delivery = "at-least-once"
checkpoint = "file:/checkpoints/everything"
[source.many]
pattern = "orders-.*"
parse = "avro"
schema = '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "long"}]}'
start = 2026-11-15T20:44:46.123Z
isolation = "read_uncommitted"
max_records_per_second = 5000
min_partitions = 8
on_data_loss = "warn"
[source.named]
topic = ["a", "b"]
parse = "protobuf"
message = "shop.Order"
schema = "message Order { int64 id = 1; }"
start = { "b:1" = 7, "a:0" = 5 }
[source.users]
topic = "users"
parse = "json"
table = true
[source.drops]
files = "in/*.csv"
parse = "csv"
header = true
max_bytes_per_batch = "64 MiB"
[source.lines]
topic = "lines"
parse = "text"
start = { 3 = 9 }
[[step]]
input = "many"
watermark = { column = "at", delay = "1h" }
[[step]]
dedup = ["id"]
[[step]]
name = "cleaned"
python = "json:loads"
frame = "pandas"
schema = "id long, `odd name` string"
[[step]]
name = "sessions"
stateful = "json:JSONDecoder"
keys = ["id"]
schema = "id BIGINT, n INT, at TIMESTAMP"
time = "event"
[[step]]
name = "scored"
input = "named"
model = "models/als"
[[step]]
name = "top"
input = "drops"
train = "json:dumps"
schema = "user BIGINT, items ARRAY<BIGINT>"
[[step]]
name = "joined"
sql = "SELECT * FROM Sessions s JOIN users u ON s.id = u.id JOIN later, lines"
watermark = [{ input = "sessions", column = "at", delay = "5 minutes" }]
[[step]]
name = "later"
sql = "SELECT * FROM top UNION ALL SELECT * FROM scored -- all"
[sink.t]
topic = "out"
key = ["id", "n"]
headers = "trace"
serialise = "avro"
codec = "zstd"
batch_size = "1 MiB"
linger = "20ms"
parallelism = 4
transaction_timeout = "1m"
partitioner = "json:loads"
input = "joined"
[sink.q]
parquet = "out/q"
partition_by = "day"
input = "joined"
[sink.d]
delta = "out/d"
upsert = "id"
input = "joined"
[sink.p]
postgres = "postgresql://shop@localhost/shop"
table = "public.t"
upsert = ["id", "n"]
password_variable = "PGPASSWORD"
input = "joined"
[sink.c]
console = true
rows = 5
input = "joined"
[errors]
dead_letter = "dlq"
max_rate = 0.5
"""


class Anywhere:
    def of(self, path: Path, line_in_text: int = 0) -> FileLine:  # noqa: ARG002
        return FileLine("anywhere", 1)


def read_back(pipeline: Pipeline) -> Pipeline:
    return read_pipeline(to_document(pipeline), Anywhere(), PipelineFiles(""))


def declared() -> Declaration:
    shop = Declaration("orders-per-minute", dead_letter="orders-dlq", max_rate=0.01)
    schema = "order_id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP"
    shop.source("orders", topic="orders", parse="json", schema=schema)

    @shop.sql(watermark={"column": "event_time", "delay": "2 minutes"})
    def windows() -> str:
        return QUERY

    assert windows() == QUERY
    shop.sink("per_minute", topic="orders-per-minute", key="city")
    return shop


def test_the_file_and_python_give_the_same_spec() -> None:
    assert declared().build() == parsed(SHOP)


def clean(batches: object) -> object:
    return batches


class Sessions:
    """Stands for a stateful processor."""


def test_decorated_code_stays_what_it_is_and_is_known_by_its_name() -> None:
    shop = Declaration("a")
    shop.source("orders", topic="orders", parse="json")
    assert shop.python(schema="id INT")(clean) is clean
    assert shop.stateful(keys=["id"], schema="id INT", name="state")(Sessions) is Sessions
    assert shop.train(schema="id INT", name="trained", input="clean")(clean) is clean
    shop.step(input="orders", watermark={"column": "t", "delay": "1s"}, name="marked", frame=None)
    for name in ("state", "trained", "marked"):
        shop.sink(f"{name}_out", topic=name, input=name)
    works = [step.work for step in shop.build().steps]
    module = clean.__module__
    assert [type(work) for work in works] == [PythonFunction, Stateful, Ml, MarkOnly]
    assert shop.functions == {f"{module}:clean": clean, f"{module}:Sessions": Sessions}
    assert [step.inputs for step in shop.build().steps] == [("orders",), ("clean",), ("clean",), ("orders",)]


def test_mistakes_in_python_are_told_with_the_line_of_the_call() -> None:
    shop = Declaration("a b")
    shop.source("orders", topic="orders", parse="jsn")
    shop.source("orders", topic="orders", parse="json")
    shop.python(schema="id INT")(lambda batches: batches)
    shop.sink("out", topic="out", input="order")
    with pytest.raises(InvalidPipeline) as caught:
        shop.build()
    first = caught.value.problems[0].place.line
    assert [(problem.place.line - first, problem.key) for problem in caught.value.problems] == [
        (0, "name"),
        (1, "source.orders.parse"),
        (2, "source.orders"),
        (3, "step[1].python"),
        (4, "sink.out.input"),
    ]
    assert all(problem.place.file == __file__ for problem in caught.value.problems)


def test_every_key_reaches_the_spec() -> None:
    pipeline = parsed(EVERYTHING)
    sources = {source.name: source for source in pipeline.sources}
    steps = {step.name: step for step in pipeline.steps}
    many, named = sources["many"], sources["named"]
    assert isinstance(many, TopicSource)
    assert isinstance(named, TopicSource)
    assert many.start == StartPosition("", 1_794_775_486_123)
    assert named.start.offsets == (("a", 0, 5), ("b", 1, 7))
    assert getattr(sources["lines"], "start", None) == StartPosition("", None, (("lines", 3, 9),))
    assert steps["step_2"].work == Dedup(("id",))
    assert steps["step_2"].inputs == ("step_1",)
    assert steps["joined"].inputs == ("sessions", "users", "later", "lines")
    assert getattr(steps["cleaned"].work, "frame", None) is FrameType.PANDAS
    assert getattr(steps["sessions"].work, "time", None) is TimeMode.EVENT
    assert pipeline.bootstrap == "localhost:9092"
    assert pipeline.checkpoint == "file:/checkpoints/everything"


@pytest.mark.parametrize("text", [SHOP, EVERYTHING])
def test_a_spec_survives_its_checkpoint(text: str) -> None:
    pipeline = parsed(text)
    restored = from_canonical(canonical(pipeline), "checkpoint")
    assert canonical(restored) == canonical(pipeline)
    assert spec_hash(restored) == spec_hash(pipeline)
    assert read_back(restored) == restored


def test_another_version_s_checkpoint_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"spec\.json: this is not a pipeline of format 1"):
        from_canonical('{"name": "a", "format": 2}', "spec.json")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM orders\n", "FROM   orders -- all of them\n"),
        ('parse = "json"', 'parse = "json"\nstart = "earliest"'),
        ("2 minutes", "120s"),
        ("city STRING", "city   string"),
        ('key = "city"', 'key = ["city"]'),
    ],
)
def test_what_means_the_same_has_the_same_hash(old: str, new: str) -> None:
    assert spec_hash(parsed(changed(old, new))) == spec_hash(parsed(SHOP))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count(*)", "count(1)"),
        ("'1 minute'", "'1  minute'"),
        ("2 minutes", "3 minutes"),
        ("total DOUBLE", "total FLOAT"),
        ("0.01", "0.02"),
        ('key = "city"', 'key = "city"\nlinger = "1s"'),
    ],
)
def test_what_means_something_else_has_another_hash(old: str, new: str) -> None:
    assert spec_hash(parsed(changed(old, new))) != spec_hash(parsed(SHOP))


def test_the_graph_has_everybody_after_those_they_read() -> None:
    inputs = inputs_of(parsed(EVERYTHING))
    order = in_order(inputs)
    assert sorted(order) == sorted(inputs)
    assert all(order.index(one) < order.index(name) for name, read in inputs.items() for one in read)
    assert upstream(inputs, ["sessions"]) == {"sessions", "cleaned", "step_2", "step_1", "many"}


def test_a_circle_is_found_from_behind_it() -> None:
    assert cycle({"s": (), "z": ("a",), "a": ("s", "b"), "b": ("c",), "c": ("a",)}) == ["a", "c", "b", "a"]
    assert cycle({"s": (), "a": ("s", "unknown")}) == []
    assert cycle({"a": ("a",)}) == ["a", "a"]


def test_a_replay_shares_no_name_with_the_live_run() -> None:
    """Else it would fence the live run, or move the offsets that lag is measured by."""
    live, replay = PipelineIdentity("shop"), PipelineIdentity("shop", "monday")
    assert live.group_id == "pipeline.shop"
    assert live.transactional_id("out", 3) == live.marker_group_id("out", 3) == "pipeline.shop.out.3"
    assert replay.transactional_id("out", 3) == "pipeline.shop@monday.out.3"
