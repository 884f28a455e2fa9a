"""What a light reading of a query finds, and what it must not take for a table."""

import pytest

from ottla.pipelines.spec.problems import Unfit
from ottla.pipelines.spec.sql import normal_query, read_query


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM orders", "orders"),
        ("select a, b from x, y AS z, (SELECT * FROM q, p) s where a in (select c from d)", "x y q p d"),
        ("WITH t AS (SELECT * FROM o), u (a, b) AS (SELECT 1, 2 FROM T) SELECT * FROM t JOIN u ON t.a = u.a", "o"),
        ("SELECT EXTRACT(year FROM ts), trim(BOTH 'x' FROM s), substring(s FROM 2) FROM o", "o"),
        ("SELECT a IS DISTINCT FROM b FROM o", "o"),
        ("SELECT 'FROM a', \"FROM b\" FROM `my table` -- FROM c\n/* FROM d */ JOIN e", "my table|e"),
        ("SELECT * FROM delta.`files/x` JOIN catalog.db.t JOIN range(5) JOIN o", "o"),
        ("SELECT * FROM o LATERAL VIEW explode(items) e AS item, price JOIN c ON f(a, b), k", "o c k"),
        ("SELECT * FROM x, LATERAL explode(b) e, y WINDOW w AS (PARTITION BY a)", "x y"),
        ("SELECT * FROM (VALUES (1, 2), (3, 4)) t(a, b), w WINDOW w AS (ORDER BY a)", "w"),
        ("FROM o SELECT a, b", "o"),
        ("SELECT * FROM order JOIN (WITH t AS (SELECT * FROM p) SELECT * FROM t, q)", "order p q"),
        ("SELECT a FROM o JOIN c USING (a, b) WHERE x ORDER BY a, b", "o c"),
        ("SELECT a FROM s1 UNION ALL SELECT b FROM s2;", "s1 s2"),
        ("SELECT o.a FROM o JOIN O ON o.a = O.a", "o"),
    ],
)
def test_tables_of_a_query(query: str, tables: str) -> None:
    assert [named.name for named in read_query(query).tables] == tables.split("|" if "|" in tables else None)


def test_a_table_is_told_of_at_its_line() -> None:
    assert read_query("SELECT 'a\nb' -- c\n\nFROM\n orders").tables[0].line == 4


@pytest.mark.parametrize(
    ("query", "told", "line"),
    [
        ("", "the query is empty", 0),
        ("-- nothing", "the query is empty", 0),
        ("\nDELETE FROM orders", "begins with SELECT or WITH, not with DELETE", 1),
        ("SELECT 1 FROM a;\nSELECT 2 FROM b", "one query", 0),
        ("SELECT (a\nFROM (b)", "bracket ( is never closed", 0),
        ("SELECT a)\nFROM b", "bracket ) closes nothing", 0),
        ("SELECT a\nFROM b WHERE c = 'x", "quote ' is never closed", 1),
    ],
)
def test_what_is_no_single_query_is_refused_with_its_line(query: str, told: str, line: int) -> None:
    with pytest.raises(Unfit) as caught:
        read_query(query)
    assert told in caught.value.told
    assert caught.value.line_in_text == line


@pytest.mark.parametrize(
    ("query", "keeps"),
    [
        ("SELECT a, upper(b) FROM o WHERE c > 1", False),
        ("SELECT a FROM o UNION ALL SELECT b FROM p", False),
        ("SELECT `group`, 'count(*)' FROM o", False),
        ("SELECT a FROM o GROUP BY a", True),
        ("SELECT DISTINCT a FROM o", True),
        ("SELECT count(*) FROM o", True),
        ("SELECT * FROM o JOIN p USING (a)", True),
    ],
)
def test_queries_that_keep_state_are_known(query: str, keeps: bool) -> None:
    assert read_query(query).keeps_state is keeps


def test_functions_that_do_not_repeat_themselves_are_found_unless_seeded() -> None:
    query = "SELECT uuid(), rand(), rand(7), randn( ), my_rand(), 'uuid()', uuid FROM o"
    assert [named.name for named in read_query(query).unrepeatable] == ["uuid", "rand", "randn"]


def test_layout_and_comments_do_not_count() -> None:
    assert normal_query("SELECT  a, -- why\n\t'x  y' /* z */\nFROM o ;\n") == "SELECT a, 'x  y' FROM o"
    assert normal_query("SELECT a<=1") != normal_query("SELECT a<1")
