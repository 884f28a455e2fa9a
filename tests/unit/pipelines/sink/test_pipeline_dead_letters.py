"""What dead letters say of themselves, and what is left of them when they are sent back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.sink.dead_letters import (
    EPOCH,
    ERROR,
    HEADERS,
    OFFSET,
    PARTITION,
    PIPELINE,
    REDRIVES,
    TOPIC,
    LetterOrigin,
    headers_sent_back,
    origin_of,
)

OURS = [
    (TOPIC, b"orders"),
    (PARTITION, b"2"),
    (OFFSET, b"42"),
    (ERROR, b"MALFORMED: not JSON at 7"),
    (PIPELINE, b"shop"),
    (EPOCH, b"5"),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"42"),
    ("__connect.errors.connector.name", b"to-warehouse"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.exception.class.name", b"DataException"),
    ("__connect.errors.exception.message", b"no field 'id'"),
    ("__connect.errors.exception.stacktrace", None),
]


def test_letters_of_pipelines_are_understood() -> None:
    assert origin_of([("own", b"x"), *OURS]) == LetterOrigin("orders", 2, 42, "MALFORMED: not JSON at 7", "shop", 5)


def test_letters_of_kafka_connect_are_understood() -> None:
    assert origin_of(CONNECT) == LetterOrigin("orders", 2, 42, "DataException: no field 'id'", "to-warehouse", None)


def test_the_last_death_counts() -> None:
    assert origin_of([*OURS, (TOPIC, b"later"), (ERROR, b"again")])[::3] == ("later", "again", 0)


@pytest.mark.parametrize("number", [b"", b"x", b"-1", None, "²".encode()])
def test_a_number_that_is_none_is_not_told(number: bytes | None) -> None:
    assert origin_of([(TOPIC, b"t"), (OFFSET, number), (REDRIVES, number)]) == LetterOrigin("t")


def test_errors_that_differ_in_particulars_are_of_one_kind() -> None:
    errors = ["bad value 'a' at 7\nmore", "bad value 'bc' at 1,234", 'bad value "x y" at 0x7f']
    assert {LetterOrigin(error=error).kind for error in errors} == {"bad value … at …"}
    assert LetterOrigin().kind == LetterOrigin(error="").kind == "no error given"


def test_who_is_sent_back_has_its_own_headers_and_is_counted() -> None:
    own = [("a", b"1"), ("a", None)]
    once = headers_sent_back([*own, *OURS, *CONNECT])
    assert once == [*own, (REDRIVES, b"1")]
    assert headers_sent_back([*once, *OURS]) == [*own, (REDRIVES, b"2")]


@given(st.lists(st.tuples(st.sampled_from([*HEADERS, REDRIVES, "x"]), st.none() | st.binary(max_size=4))))
def test_any_headers_are_understood_somehow(headers: list[tuple[str, bytes | None]]) -> None:
    back = headers_sent_back(headers)
    assert origin_of(back) == LetterOrigin(redrives=origin_of(headers).redrives + 1)
    assert [one for one in back if one[0] == "x"] == [one for one in headers if one[0] == "x"]
