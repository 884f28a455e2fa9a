"""Values as people write them, and back: names, durations, sizes, starts, columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.metadata.names import name_fault
from ottla.pipelines.sink.postgres import POSTGRES_URL
from ottla.pipelines.spec.columns import TYPES, SqlColumn, parse_columns, show_columns
from ottla.pipelines.spec.model import Parse, Schema, StartPosition
from ottla.pipelines.spec.problems import Unfit
from ottla.pipelines.spec.schemas import SCHEMA, check_schema, columns_of
from ottla.pipelines.spec.values import (
    DURATION,
    PATTERN,
    REFERENCE,
    SHARE,
    SIZE,
    START,
    TOPIC,
    TOPICS,
    ValueKind,
    whole,
)


def fits(kind: ValueKind[object], value: object) -> bool:
    try:
        kind.read(value)
    except Unfit:
        return False
    return True


@given(st.one_of(st.text(max_size=5), st.text("ab.-_", max_size=260), st.sampled_from([".", "..", "a" * 249])))
def test_names_of_topics_are_those_that_the_broker_takes(name: str) -> None:
    assert fits(TOPIC, name) is (name_fault(name) is None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("90s", 90_000), ("2 minutes", 120_000), ("1 hour", 3_600_000), ("7d", 604_800_000), ("0s", 0)],
)
def test_durations(text: str, ms: int) -> None:
    assert DURATION.read(text) == ms


@given(st.integers(0, 10**12))
def test_a_duration_is_written_as_it_is_read(ms: int) -> None:
    assert DURATION.read(DURATION.write(ms)) == ms


@given(st.integers(1, 10**15))
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    assert SIZE.read(SIZE.write(size)) == size


@given(st.integers(0, 250_000_000_000_000))
def test_a_time_to_start_at_is_written_as_it_is_read(time_ms: int) -> None:
    assert START.read(START.write(StartPosition("", time_ms))) == StartPosition("", time_ms)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((DURATION, value) for value in ("2 fortnights", "-1s", "1.5h", 90, "", "s", None)),
        *((SIZE, value) for value in ("64MB", "0 KiB", 0, -1, True, "KiB", 1.5)),
        *((SHARE, value) for value in (1.01, -0.1, "0.5", True)),
        *((REFERENCE, value) for value in ("clean", "a.b.c", "a:", ":b", "a b:c", "a:1")),
        *((TOPICS, value) for value in ([], ["a", "a"], ["a b"], 3)),
        *((PATTERN, value) for value in ("(", "", r"(a)\1", 5)),
        *((START, value) for value in ("erliest", {}, {"x": 1}, {"o:0": -1}, {"o:0": "1"}, 7, "1969-12-31T00:00:00")),
        *(
            (POSTGRES_URL, value)
            for value in ("mysql://h/d", "postgresql://h", "postgresql:///d", "postgresql://h:x/d")
        ),
        *((SCHEMA, value) for value in ("", {}, {"fiel": "x"}, {"infer": 0}, {"infer": 1, "file": "x"}, 3)),
        *((whole(1, 9), value) for value in (0, 10, True, 1.0, "1")),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(kind: ValueKind[object], value: object) -> None:
    with pytest.raises(Unfit) as caught:
        kind.read(value)
    assert caught.value.allowed


def test_a_wrong_item_of_a_list_is_told_of_where_it_stands() -> None:
    with pytest.raises(Unfit) as caught:
        TOPICS.read(["a", "b c"])
    assert caught.value.at == (1,)


def test_columns_have_one_spelling() -> None:
    text = "id long NOT NULL COMMENT 'x', `a b` decimal( 10 , 2 ), t array<map<string,struct<x:int,y:date>>> -- end"
    assert show_columns(parse_columns(text)) == (
        "id BIGINT NOT NULL, `a b` DECIMAL(10,2), t ARRAY<MAP<STRING,STRUCT<x:INT,y:DATE>>>"
    )


SIMPLE = st.sampled_from([name for name in TYPES if name not in ("ARRAY", "MAP", "STRUCT")])
NESTED = st.recursive(
    SIMPLE, lambda inner: st.builds("ARRAY<{}>".format, inner) | st.builds("MAP<STRING,{}>".format, inner)
)


@given(
    st.lists(
        st.builds(SqlColumn, st.text(min_size=1, max_size=5), NESTED), min_size=1, unique_by=lambda c: c[0].lower()
    )
)
def test_columns_are_written_as_they_are_read(columns: list[SqlColumn]) -> None:
    assert parse_columns(show_columns(columns)) == tuple(columns)


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        ("city STRIN", "STRIN is not a type", 0),
        ("city STRING,\ntotal", "the end is not a type", 1),
        ("city STRING total INT", "expected a comma after the column city, found total", 0),
        ("tags ARRAY<STRING", "expected >, found the end", 0),
        ("n DECIMAL(39)", "at most 38 digits", 0),
        ("a INT, A INT", "column A is declared twice", 0),
        ("", "expected a column's name", 0),
    ],
)
def test_columns_that_spark_would_refuse_are_refused_with_their_line(text: str, told: str, line: int) -> None:
    with pytest.raises(Unfit) as caught:
        parse_columns(text)
    assert told in caught.value.told
    assert caught.value.line_in_text == line


AVRO = '{"type": "record", "name": "O", "fields": [{"name": "city", "type": "string"}]}'
PROTO = 'syntax = "proto3"; // message Not {\nmessage Order { string city = 1; }'


@pytest.mark.parametrize(
    ("parse", "text", "told"),
    [
        (Parse.AVRO, "{", "is not JSON"),
        (Parse.AVRO, '{"type": "string"}', "is not a record"),
        (Parse.AVRO, '{"type": "record", "fields": [{"name": "a"}]}', "a field without a name or a type"),
        (Parse.PROTOBUF, "nothing", "has no message"),
        (Parse.PROTOBUF, PROTO, "has no message Not; it has Order"),
        (Parse.TEXT, "a INT", "takes no schema"),
        (Parse.AVRO, "", "cannot be inferred"),
    ],
)
def test_schemas_that_cannot_be_are_refused(parse: Parse, text: str, told: str) -> None:
    with pytest.raises(Unfit) as caught:
        check_schema(parse, Schema(text, 0 if text else 10), "shop.Not")
    assert told in caught.value.told


def test_columns_are_known_where_the_schema_tells_them() -> None:
    check_schema(Parse.PROTOBUF, Schema(PROTO), "shop.Order")
    assert columns_of(Parse.AVRO, Schema(AVRO)) == ("city",)
    assert columns_of(Parse.JSON, Schema("a INT, b STRING")) == ("a", "b")
    assert columns_of(Parse.TEXT, None) == ("value",)
    assert columns_of(Parse.JSON, Schema("", 1000)) is None
