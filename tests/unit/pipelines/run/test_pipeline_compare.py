"""Which changes a checkpoint survives: nothing that it holds may come to mean something else."""

import pytest
from pipeline_text import SHOP, changed, parsed

from ottla.pipelines.run.compare import compare

PLAIN = changed("count(*) AS n\nFROM orders\nGROUP BY 1, 2", "total\nFROM orders")
FILES = changed('topic = "orders"\nparse', 'files = "in"\nparse')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FROM orders\n", "FROM orders -- a comment\n"),
        ('topic = "orders"\n', 'topic = ["orders", "returns"]\n'),
        ("total DOUBLE", "total DOUBLE, note STRING"),
        ("2 minutes", "3 minutes"),
        ("orders-dlq", "orders-dead"),
        ("max_rate = 0.01", "max_rate = 0.5"),
        ('key = "city"', 'key = "city"\ncodec = "zstd"'),
        ("[source.orders]", 'delivery = "at-least-once"\n[source.orders]'),
        ('parse = "json"', 'parse = "json"\nmax_records_per_batch = 5'),
    ],
)
def test_a_change_that_leaves_the_checkpoint_right_is_taken(old: str, new: str) -> None:
    assert compare(parsed(SHOP), parsed(changed(old, new))) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"orders-per-minute"\n[so', '"other"\n[so', "belongs to the pipeline orders-per-minute, not to other"),
        ("count(*)", "count(1)", "Step windows keeps state and was changed"),
        ('name = "windows"', 'name = "panes"', "Step windows was removed, and the checkpoint holds its state"),
        ('name = "windows"', 'name = "panes"', "Step panes is new and keeps state"),
        ('"event_time", delay', '"_timestamp", delay', "keeps state by a watermark"),
        ('topic = "orders"\n', 'topic = "returns"\n', "Source orders no longer reads orders"),
        ('topic = "orders"\n', 'pattern = "orders"\n', "read orders and now the pattern orders"),
        ('topic = "orders"\nparse', 'files = "in"\nparse', "Source orders was topics and is files"),
        ('parse = "json"', 'parse = "json"\ntable = true', "was read as a stream and is a table"),
        ('parse = "json"', 'parse = "json"\nstart = "latest"', "has another start, which counts only"),
        ("total DOUBLE", "total FLOAT", "column total was DOUBLE and is FLOAT"),
        ("total DOUBLE, ", "", "has no column total any more"),
        ('key = "city"', 'key = "n"', "has another key (city before, n now)"),
        ('key = "city"', 'key = "city"\nparallelism = 4', "(settled by the first run before, 4 now)"),
        ('topic = "orders-per-minute"', 'topic = "x"', "wrote to orders-per-minute and now to x"),
        ('topic = "orders-per-minute"\nkey = "city"', 'parquet = "x"', "Sink per_minute is of another kind now"),
        ("[errors]", '[sink.b]\nparquet = "x"\n[errors]', "Sink b is new"),
    ],
)
def test_a_change_that_the_checkpoint_does_not_survive_is_told(old: str, new: str, told: str) -> None:
    sentences = compare(parsed(SHOP), parsed(changed(old, new)))
    assert any(told in sentence for sentence in sentences), sentences


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total\nFROM", "total + 1 AS total\nFROM"),
        ('name = "windows"', 'name = "panes"'),
        ("total DOUBLE", "total FLOAT"),
    ],
)
def test_steps_and_columns_without_state_change_freely(old: str, new: str) -> None:
    assert compare(parsed(PLAIN), parsed(changed(old, new, PLAIN))) == []


def test_a_step_that_begins_to_keep_state_or_ceases_to_is_told() -> None:
    assert "keeps state now" in compare(parsed(PLAIN), parsed(SHOP))[0]
    assert "no longer keeps the state" in compare(parsed(SHOP), parsed(PLAIN))[0]


def test_a_sink_that_goes_round_a_step_with_state_is_told() -> None:
    second = '[sink.other]\ntopic = "other"\n[errors]'
    old = changed("[errors]", second)
    new = changed('topic = "other"', 'topic = "other"\ninput = "orders"', old)
    assert "Sink other gets its rows through other stateful steps" in compare(parsed(old), parsed(new))[0]


def test_files_from_elsewhere_are_told() -> None:
    assert "read the files in and now out" in compare(parsed(FILES), parsed(changed('"in"', '"out"', FILES)))[0]


def test_exactly_once_cannot_begin_in_the_middle() -> None:
    """No marker says which epochs a sink has whole."""
    loose = changed("[source.orders]", 'delivery = "at-least-once"\n[source.orders]')
    assert "Delivery was at-least-once" in compare(parsed(loose), parsed(SHOP))[0]
