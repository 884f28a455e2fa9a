"""What the topic source takes Spark to do, shown on Spark itself, and what comes out of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes.ottla_node import OttlaNode
from nodes.topics import Server, Topics
from peers.client import Client
from pyspark.errors import SparkRuntimeException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from topic_streams import source

from ottla.pipelines.spark.parse import parse
from ottla.pipelines.spark.rows import columns_from
from ottla.pipelines.spark.topic_source import CAUGHT_UP, COLUMNS, FORMAT, read_all, read_between, read_stream
from ottla.pipelines.spec.model import Parse, Schema, StartPosition, TopicSource

TIME_MS = 1_700_000_000_000


def send(server: Server, topic: str, numbers: range, partitions: int = 1) -> None:
    producer = Client(server.bootstrap).producer(compression_type="lz4")
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            b"key-%d" % number if number % 3 else None,
            partition=number % partitions,
            timestamp=TIME_MS + number,
            headers=[("number", b"%d" % number), ("nothing", None)],
        )
    assert producer.flush(30) == 0


class Query:
    """A query that keeps, by epoch, what it was given; its checkpoint outlives it."""

    def __init__(self, spark: SparkSession, server: Server, checkpoint: Path) -> None:
        self._spark, self._server = spark, server
        self.checkpoint = checkpoint
        self.epochs: dict[int, list[int]] = {}

    def run(self, read: TopicSource, *, until: StartPosition | None = None) -> dict[int, list[int]]:
        """Until there is nothing new; the epochs of this run."""

        def take(frame: DataFrame, epoch: int) -> None:
            self.epochs[epoch] = sorted(int(row._value) for row in frame.select("_value").collect())

        self.epochs = {}
        frame = read_stream(self._spark, read, self._server.bootstrap, until=until)
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return self.epochs

    def forget_end_of(self, epoch: int) -> None:
        """As if the driver had died before the epoch was finished."""
        for name in (f"{epoch}", f".{epoch}.crc"):
            (self.checkpoint / "commits" / name).unlink()


@pytest.fixture
def quiet_ends(spark: SparkSession) -> Iterator[None]:
    """For queries that end with an error on purpose."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row._value) for row in frame.select("_value").collect())


def test_rows_have_every_part_of_a_record(spark: SparkSession, server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    send(server, topic, range(10), partitions=2)
    frame = read_all(spark, source(topic), server.bootstrap)
    assert frame.schema == spark.createDataFrame([], COLUMNS).schema
    rows = frame.orderBy("_timestamp").selectExpr("*", "unix_millis(_timestamp) AS ms").collect()
    assert [(row._topic, row._partition, row._offset, row.ms) for row in rows] == [
        (topic, number % 2, number // 2, TIME_MS + number) for number in range(10)
    ]
    assert [row._key for row in rows] == [b"key-%d" % number if number % 3 else None for number in range(10)]
    assert [tuple(header) for header in rows[7]._headers] == [("number", b"7"), ("nothing", None)]


def test_only_the_columns_that_are_asked_for_are_made(spark: SparkSession, server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    send(server, topic, range(10))
    asked = ("_value", "_offset", "_headers")
    frame = read_between(spark, source(topic), server.bootstrap, TIME_MS, TIME_MS + 10, asked)
    assert tuple(frame.columns) == asked
    rows = frame.orderBy("_offset").collect()
    assert [(row._value, row._offset, row._headers[0].value) for row in rows] == [
        (b"%d" % number, number, b"%d" % number) for number in range(10)
    ]


@pytest.mark.parametrize("keep_failures", [False, True])
def test_json_is_parsed_once_however_many_ask_for_it(spark: SparkSession, *, keep_failures: bool) -> None:
    """Spark puts what a column is made of into every condition on it; parsing is most of what a pipeline does."""
    columns = columns_from("city STRING, total DOUBLE")
    raw = spark.createDataFrame([], COLUMNS)
    rows = parse(raw, source("t", parse=Parse.JSON), columns, keep_failures=keep_failures)
    asked = rows.frame.where("total >= 10 AND city <> 'Ulm'").groupBy("city").sum("total")
    assert asked._jdf.queryExecution().optimizedPlan().toString().count("from_json(") == 1


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (Parse.JSON, None),
        (
            Parse.AVRO,
            Schema(
                '{"type": "record", "name": "Order", "fields": [{"name": "city", "type": "string"}, '
                '{"name": "total", "type": "double"}]}'
            ),
        ),
    ],
)
def test_record_that_fails_stops_the_query_that_asks_for_others(
    spark: SparkSession, form: Parse, schema: Schema | None
) -> None:
    """Its columns are null. A condition on one of them must not drop the record before anybody looks at it."""
    raw = spark.createDataFrame([(None, b"\xff{", "orders", 3, 42, None, None)], COLUMNS)
    columns = columns_from("city STRING, total DOUBLE")
    rows = parse(raw, source("orders", parse=form, schema=schema), columns, keep_failures=False)
    for asked in (rows.frame.where("total >= 10"), rows.frame.where("city = 'Ulm'").select("_key")):
        with pytest.raises(SparkRuntimeException, match="source shop: orders-3 at offset 42 cannot be parsed"):
            asked.collect()


def test_what_lies_between_two_times_is_a_frame(spark: SparkSession, server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    send(server, topic, range(100), partitions=2)
    read = source(topic, partitions_min=4)
    assert numbers(read_between(spark, read, server.bootstrap, TIME_MS + 20, TIME_MS + 70)) == list(range(20, 70))
    assert numbers(read_between(spark, read, server.bootstrap, TIME_MS + 500, TIME_MS + 700)) == []


def test_query_goes_on_where_its_checkpoint_says_and_keeps_to_its_limit(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    """Spark tells the position before it asks for the end; without that a restart would take all there is at once."""
    query = Query(spark, server, tmp_path)
    topic = topics.create(server)
    send(server, topic, range(25))
    read = source(topic, records_per_batch_max=10)
    assert query.run(read) == {0: [], 1: [*range(10)], 2: [*range(10, 20)], 3: [*range(20, 25)]}
    send(server, topic, range(25, 50))
    assert query.run(read, until=CAUGHT_UP) == {4: [*range(25, 35)], 5: [*range(35, 45)], 6: [*range(45, 50)]}


def test_epoch_that_was_not_finished_is_read_again_the_same(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """The exactly-once sinks skip by epoch what they have: another cut of the records would lose or double some."""
    query = Query(spark, ottla, tmp_path)
    topic = topics.create(ottla)
    send(ottla, topic, range(25))
    read = source(topic, records_per_batch_max=10)
    query.run(read)
    query.forget_end_of(3)
    send(ottla, topic, range(25, 40))
    assert query.run(read) == {3: [*range(20, 25)], 4: [*range(25, 35)], 5: [*range(35, 40)]}


def test_pipeline_that_begins_at_the_end_misses_nothing_when_it_dies_at_once(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """Spark keeps no start: it asks for it again, and the end is elsewhere by then."""
    query = Query(spark, ottla, tmp_path)
    topic = topics.create(ottla)
    send(ottla, topic, range(5))
    read = source(topic, start=StartPosition("latest"))
    assert query.run(read) == {0: []}
    query.forget_end_of(0)
    send(ottla, topic, range(5, 9))
    assert query.run(read) == {0: [], 1: [5, 6, 7, 8]}


@pytest.mark.usefixtures("quiet_ends")
def test_loss_ends_the_query_with_its_sentence(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    query = Query(spark, ottla, tmp_path)
    topic = topics.create(ottla)
    send(ottla, topic, range(5))
    query.run(source(topic))
    send(ottla, topic, range(5, 12))
    Client(ottla.bootstrap).delete_records(topic, 0, 8)
    with pytest.raises(StreamingQueryException, match="offsets 5 to 7 were removed before they were read"):
        query.run(source(topic))


def test_options_given_by_hand_do_the_same(spark: SparkSession, ottla: OttlaNode, topics: Topics) -> None:
    topic = topics.create(ottla)
    send(ottla, topic, range(5))
    read_all(spark, source(topic), ottla.bootstrap)  # Registers the format.
    given: Any = {"bootstrap": ottla.bootstrap, "topics": topic, "start": f'{{"{topic}": {{"0": 3}}}}'}
    assert numbers(spark.read.format("ottla-topic").options(**given).load()) == [3, 4]


def test_queries_that_begin_together_add_nothing_to_what_they_share(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """Two that add to the map of a source's environment at once can break it, and with it every job from then on."""

    def environment() -> set[str]:
        sources = spark._jsparkSession.sessionState().dataSourceManager()
        return set(sources.lookupDataSource(FORMAT).dataSourceCls().envVars())

    topic = topics.create(ottla)
    send(ottla, topic, range(10))
    frame = read_stream(spark, source(topic), ottla.bootstrap)
    registered = environment()
    assert registered
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "begins")).start()
    query.processAllAvailable()
    query.stop()
    assert environment() == registered
