"""What nobody looks at is not read; in doubt it is."""

import pytest
from pipeline_text import SHOP, changed, parsed

from ottla.pipelines.source.columns_read import columns_read
from ottla.pipelines.spec.model import TopicSource
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS

PLACE = ("_topic", "_partition", "_offset")
NO_LETTERS = SHOP[: SHOP.index("[errors]")]
QUERY = """SELECT window(event_time, '1 minute') AS w, city, count(*) AS n
FROM orders
GROUP BY 1, 2
"""


def read_by(text: str) -> tuple[str, ...]:
    pipeline = parsed(text)
    (source,) = pipeline.sources
    assert isinstance(source, TopicSource)
    return columns_read(pipeline, source)


def with_query(query: str) -> str:
    return changed(QUERY, query, NO_LETTERS).replace('watermark = { column = "event_time", delay = "2 minutes" }', "")


def test_a_query_that_names_its_columns_takes_the_value_and_what_tells_of_a_failure() -> None:
    assert read_by(NO_LETTERS) == ("_value", *PLACE)


def test_values_that_cannot_fail_to_be_parsed_need_no_place() -> None:
    text = with_query("SELECT value FROM orders")
    text = changed('parse = "json"', 'parse = "bytes"', text)
    text = changed('schema = "order_id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP"', "", text)
    assert read_by(changed('key = "city"', 'serialise = "bytes"', text)) == ("_value",)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT city, _KEY FROM orders",
        "SELECT city, `_key` FROM orders",
        "SELECT city, string(o._key) AS k FROM orders AS o",
    ],
)
def test_what_a_query_names_is_read_however_it_is_written(query: str) -> None:
    assert read_by(with_query(query)) == ("_key", "_value", *PLACE)


def test_a_watermark_names_its_column() -> None:
    text = changed('column = "event_time"', 'column = "_timestamp"', NO_LETTERS)
    assert read_by(text) == ("_value", *PLACE, "_timestamp")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "SELECT city, orders.* FROM orders",
        "SELECT city, to_json(struct(*)) AS j FROM orders",
        "SELECT DISTINCT * FROM orders",
        "SELECT city FROM (FROM orders)",
        "WITH o AS (SELECT * FROM orders) SELECT city FROM o",
        "SELECT city FROM orders UNION ALL TABLE orders",
        "FROM orders |> WHERE total > 1",
        "SELECT a.city FROM orders a NATURAL JOIN orders b",
        "SELECT * FROM orders PIVOT (sum(total) FOR city IN ('Ulm'))",
        "SELECT city FROM orders UNPIVOT (x FOR y IN (total, order_id))",
    ],
)
def test_a_query_that_takes_what_it_does_not_name_is_given_all(query: str) -> None:
    assert read_by(with_query(query)) == SOURCE_COLUMNS


@pytest.mark.parametrize(
    "query", ["SELECT city, total * 2 AS twice FROM orders", "SELECT count( * ) AS n, city FROM orders GROUP BY city"]
)
def test_products_and_counts_take_nothing(query: str) -> None:
    assert read_by(with_query(query)) == ("_value", *PLACE)


def test_dead_letters_are_kept_whole() -> None:
    assert read_by(SHOP) == SOURCE_COLUMNS


def test_a_topic_sink_on_the_source_itself_takes_its_key_and_headers() -> None:
    """Other columns of the source are not in the records that it writes."""
    start, end = NO_LETTERS.index("[[step]]"), NO_LETTERS.index("[sink.")
    text = changed('key = "city"', 'key = "_key"', NO_LETTERS[:start] + NO_LETTERS[end:])
    assert read_by(text) == ("_key", "_value", *PLACE)


def test_a_sink_of_rows_takes_all() -> None:
    assert read_by(NO_LETTERS[: NO_LETTERS.index("[[step]]")] + '[sink.kept]\nparquet = "kept"\n') == SOURCE_COLUMNS
