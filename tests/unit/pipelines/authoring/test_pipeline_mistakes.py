"""Every mistake in a pipeline is told of, with its line, its value and what is allowed; a right one has none."""

from pathlib import Path

import pytest
from pipeline_text import SHOP, changed, mistakes, parsed

TWO_SOURCES = SHOP + '[source.cities]\nfiles = "cities/*.csv"\nparse = "csv"\n'


def test_a_right_pipeline_has_no_mistakes() -> None:
    assert mistakes(SHOP) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"orders-per-minute"\n[so', '"a b"\n[so', 'shop.toml:1: name = "a b": expected 1 to 100 letters'),
        ('name = "orders-per-minute"\n', "", "shop.toml:1: a pipeline needs name"),
        (
            "[source.orders]",
            'delivry = "x"\n[source.orders]',
            "shop.toml:2: delivry: no such key; a pipeline has name,",
        ),
        ("[source.orders]", 'delivry = "x"\n[source.orders]', "did you mean delivery?"),
        ("[source.orders]", 'delivery = "twice"\n[source.orders]', "expected exactly-once or at-least-once"),
        (
            "[source.orders]",
            'checkpoint = "s3a://bucket/shop"\n[source.orders]',
            'shop.toml:2: checkpoint = "s3a://bucket/shop": expected a directory that this machine has, as a path',
        ),
        ("[source.orders]", 'bootstrap = "h:x"\n[source.orders]', "'x' is no port"),
        ('topic = "orders"', 'topic = "or ders"', 'shop.toml:3: source.orders.topic = "or ders": expected a topic'),
        ('topic = "orders"', 'topic = "orders"\nfiles = "x"', "topic and files exclude each other"),
        ('topic = "orders"', 'topic = "orders"\npattern = "o.*"', "topic and pattern exclude each other"),
        (
            'topic = "orders"\n',
            'tpoic = "orders"\n',
            "one of topic, pattern or files must be there; did you mean topic?",
        ),
        ('topic = "orders"', 'pattern = "("', 'source.orders.pattern = "(": is not an RE2 regular expression'),
        ('topic = "orders"', 'topic = "orders"\nheader = true', "belongs to a files source, not to a topic source"),
        ('topic = "orders"', 'topic = "orders"\nmessage = "M"', "is only for protobuf"),
        ('topic = "orders"', 'topic = "orders"\nstart = "latst"', "did you mean latest?"),
        ('topic = "orders"', 'topic = "orders"\nstart = { "oders:0" = 1 }', "oders is not a topic of this source"),
        ('topic = "orders"', 'topic = ["orders", "b"]\nstart = { 0 = 1 }', "which topic's partition 0? Write TOPIC:0"),
        ('topic = "orders"', 'topic = "orders"\ntable = true\nstart = "latest"', "a table is read from its beginning"),
        ('topic = "orders"', 'topic = "orders"\nmax_records_per_batch = 0', "= 0: expected a whole number from 1 on"),
        ('parse = "json"', 'parse = "jsn"', 'shop.toml:4: source.orders.parse = "jsn": expected json, avro,'),
        ('parse = "json"\n', "", "shop.toml:2: source.orders: a topic source needs parse: json, avro"),
        ('parse = "json"', 'parse = "text"', "text takes no schema"),
        ('parse = "json"', 'parse = "protobuf"', "protobuf needs message"),
        ('schema = "order_id', 'schema = "order_id BIGNT, x', "BIGNT is not a type"),
        ('schema = "', 'schema = { file = "gone.ddl" }\n#', 'source.orders.schema.file = "gone.ddl": cannot be read'),
        ("[[step]]", "[step]", "shop.toml:6: step: steps are a list; write [[step]]"),
        ('name = "windows"', 'name = "2 windows"', "shop.toml:7: step[1].name"),
        ('name = "windows"', 'name = "ORDERS"', 'step[1].name = "ORDERS": another source or step has this name'),
        ("FROM orders", "FROM ordrs", "shop.toml:10: step[1].sql: no source or step is called ordrs"),
        ("FROM orders", "", "the query reads no source and no step"),
        ("GROUP BY 1, 2", "GROUP BY (1, 2", "shop.toml:11: step[1].sql"),
        ("SELECT window", "SELECT rand(), window", "rand() gives other rows when a batch is repeated"),
        ('"event_time", delay', '"event_tme", delay', "orders has no such column; it has order_id,"),
        (
            "event_time TIMESTAMP",
            "event_time STRING",
            'step[1].watermark.column = "event_time": is STRING, and a watermark needs times; declare it',
        ),
        ("2 minutes", "2 fortnights", 'step[1].watermark.delay = "2 fortnights": expected a duration such as'),
        ("delay = ", "dealy = ", "a watermark needs delay"),
        ("delay = ", 'input = "b", delay = ', "is not read by this step, which reads orders"),
        ("[sink.per_minute]", "[sink.per-minute]", "'per-minute' is not a name"),
        ("[sink.per_minute]", "[sink.dead_letter]", "reserved for dead letters"),
        ('key = "city"', 'key = "city"\ninput = "window"', 'sink.per_minute.input = "window": no source or step has'),
        ('key = "city"', 'key = "town"\ninput = "orders"', "orders has no such column"),
        ('key = "city"', 'input = "orders"', "no sink gets rows from windows"),
        ('key = "city"', 'codec = "zip"', "expected none, gzip, snappy, lz4 or zstd"),
        ('key = "city"', 'partitioner = "random"', "expected default, round-robin, or a function of yours"),
        ('key = "city"', 'serialise = "avro"\nschema = { infer = 5 }', "avro cannot be inferred"),
        ('key = "city"', "schema = { infer = 5 }", "a sink does not infer a schema"),
        (
            'topic = "orders-per-minute"',
            'topic = "orders"',
            "source orders reads this topic, so the pipeline would read its own",
        ),
        ('"orders-dlq"', '"orders"', 'errors.dead_letter = "orders": source orders reads this topic'),
        ('"orders-dlq"', '"orders-per-minute"', "dead letters need their own topic"),
        ('dead_letter = "orders-dlq"\n', "", "has no effect without dead_letter"),
        ("max_rate = 0.01", "max_rate = 2", "shop.toml:19: errors.max_rate = 2: expected a share from 0 to 1"),
        ("[errors]", '[sink.b]\nparquet = "x"\n[sink.c]\nparquet = "x"\n[errors]', "sink b writes there too"),
        ("[errors]", '[sink.p]\npostgres = "postgresql://u@h/d"\n[errors]', "a PostgreSQL sink needs table"),
        ("[errors]", "[sink.c]\nconsole = false\n[errors]", "expected true"),
        ("[errors]", "[sink]\nx = 5\n[errors]", "sink.x = 5: expected a table"),
        ("[errors]", "sink = 5\n[errors]", "sink.per_minute.sink: no such key"),
        ('name = "orders-per-minute"', "name = ", "shop.toml:1: name = is not TOML"),
        (
            'parse = "json"',
            "parse = json  # or avro",
            'shop.toml:4: parse = json  # or avro is not TOML: Invalid value; texts need quotes: parse = "json"',
        ),
    ],
)
def test_a_mistake_is_told_with_what_is_right(old: str, new: str, told: str) -> None:
    found = mistakes(changed(old, new))
    assert any(told in mistake for mistake in found), found


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ('dedup = "order_id"', "dedup needs a watermark"),
        ('dedup = "oder_id"\nwatermark = { column = "event_time", delay = "1h" }', "did you mean order_id?"),
        ('python = "nowhere.steps:clean"\nschema = "a INT"', "there is no module nowhere.steps"),
        ('python = "json:lods"\nschema = "a INT"', "defines no lods; did you mean loads?"),
        ('python = "json:loads"', "a Python step needs schema"),
        (
            'stateful = "json:loads"\nkeys = "city"\nschema = "a INT"\ntime = "event"',
            "event-time timers need a watermark",
        ),
        ('stateful = "json:loads"\nkeys = "ciyt"\nschema = "a INT"', "did you mean city?"),
        ('train = "json:loads"', "a step with train needs schema"),
        ('train = "json:loads"\nmodel = "x"', "model and train exclude each other"),
        ('model = "x"\nschema = "a INT"', "is only for train"),
        ('name = "x"', "one of sql, python, dedup, stateful, model, train or watermark must be there"),
        ('dedup = "a"\nsql = "SELECT 1"', "sql and dedup exclude each other"),
        ('watermark = [{ column = "a", delay = "1s" }, { column = "b", delay = "1s" }]', "orders has two watermarks"),
    ],
)
def test_a_mistake_in_a_step_is_told(step: str, told: str) -> None:
    start, end = SHOP.index('name = "windows"'), SHOP.index("[sink")
    found = mistakes(SHOP[:start] + step + "\n" + SHOP[end:])
    assert any(told in mistake for mistake in found), found


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = changed('parse = "json"', 'parse = "jsn"', changed("FROM orders", "FROM ordrs"))
    text = changed("max_rate = 0.01", "max_rate = 2", changed('key = "city"', "kye = 1", text))
    assert [int(mistake.split(":")[1]) for mistake in mistakes(text)] == [4, 10, 16, 19]


def test_what_follows_from_a_mistake_is_no_mistake_of_its_own() -> None:
    """A source that cannot be read is still there for those who read from it."""
    assert len(mistakes(changed('parse = "json"', 'parse = "jsn"'))) == 1


def test_a_circle_is_told_with_its_way() -> None:
    steps = '[[step]]\nname = "a"\nsql = "SELECT * FROM b JOIN orders"\n[[step]]\nname = "b"\nsql = "SELECT * FROM a"\n'
    found = mistakes(changed("[sink.", steps + "[sink."))
    assert [mistake.partition(": ")[2] for mistake in found] == [
        "step[2]: steps read each other in a cycle: a -> b -> a"
    ]


def test_the_first_step_must_say_which_of_several_sources_it_reads() -> None:
    text = changed("sql = '''", "dedup = 'city'\n#'''", TWO_SOURCES)
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("SELECT", "FROM", "GROUP", "'''")))
    assert any("which source does it read? Write input = one of orders, cities" in told for told in mistakes(text))


def test_a_password_is_neither_taken_nor_repeated() -> None:
    found = mistakes(changed("[errors]", '[sink.p]\npostgres = "postgresql://u:hush@h/d"\ntable = "t"\n[errors]'))
    assert len(found) == 1
    assert "password_variable" in found[0]
    assert "hush" not in found[0]


def test_rows_that_nobody_keeps_may_differ_when_a_batch_is_done_again() -> None:
    random = changed("SELECT window", "SELECT rand(), window")
    assert mistakes(changed('topic = "orders-per-minute"\nkey = "city"', "console = true", random)) == []
    assert mistakes(changed("[source.orders]", 'delivery = "at-least-once"\n[source.orders]', random)) == []


def test_a_schema_in_a_file_is_read_with_the_pipeline(tmp_path: Path) -> None:
    """The spec is whole by itself, and its hash knows when the file changes."""
    line = next(line for line in SHOP.splitlines() if line.startswith("schema"))
    text = changed(line, 'schema = { file = "orders.ddl" }')
    file, pipeline = tmp_path / "orders.ddl", str(tmp_path / "shop.toml")
    file.write_text("order_id BIGINT, city STRING, total DOUBLE,\nevent_time TIMESTAMP")
    assert parsed(text, pipeline).sources[0].schema == type(parsed(SHOP).sources[0].schema)(file.read_text())
    file.write_text("order_id BIGINT,\ncity STRNG")
    assert "orders.ddl, line 2: STRNG is not a type" in mistakes(text, pipeline)[0]


def test_code_is_found_beside_the_pipeline_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "shop" / "steps.py").write_text(
        "raise SystemExit('imported')\nif True:\n    def clean(batches):\n        clear = 1\n"
    )
    start, end = SHOP.index('name = "windows"'), SHOP.index("[sink")
    text = SHOP[:start] + 'python = "shop.steps:clean"\nschema = "city STRING"\n' + SHOP[end:]
    assert mistakes(text, str(tmp_path / "shop.toml")) == []
    assert (
        "defines no clear; did you mean clean?" in mistakes(changed(":clean", ":clear", text), str(tmp_path / "s"))[0]
    )


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    from ottla.pipelines import InvalidPipeline
    from ottla.pipelines.authoring.files import parse_toml

    with pytest.raises(InvalidPipeline, match=r"shop.toml:2: is not UTF-8"):
        parse_toml(b'name = "a"\n\xff', "shop.toml")
