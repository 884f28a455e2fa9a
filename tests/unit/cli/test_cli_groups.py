"""What people ask of groups and transactions before a cluster is asked: options, times, partitions, plans."""

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import main
from ottla.cli.arguments import duration, one_of
from ottla.cli.errors import UserError
from ottla.cli.group.reset import Bounds, Move, plan, read_offsets
from ottla.cli.partitions import choice_of, shown_partitions
from ottla.cli.patterns import matches
from ottla.cli.times import duration_ms, moment_ms, shown_duration
from ottla.cli.txn.open_here import OpenTransaction
from ottla.client.core.names import TopicPartition
from ottla.client.partition_producers import ProducerState
from ottla.client.transactions_admin import TransactionDescription

NOW = 1_800_000_000_000
HERE = TopicPartition("t", 0)


@pytest.mark.parametrize("group", ["group", "txn"])
def test_help_of_every_command_is_there_and_waits_for_nothing(group: str) -> None:
    code = "import sys, ottla.cli as c\ntry: c.main(sys.argv[1:])\nexcept SystemExit: print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, group, "--help"], capture_output=True, text=True, check=True)
    commands = {"group": ["list", "describe", "reset-offsets", "delete"], "txn": ["list", "describe", "abort"]}[group]
    begins = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ") and line.strip()]
    assert [word for word in begins if word in commands] == commands
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["group", "reset-offsets", "g", "--to-latest"], "say what to reset: --topic TOPIC"),
        (["group", "reset-offsets", "g", "-t", "t:x", "--to-latest"], "'t:x': expected TOPIC or TOPIC:PARTITION"),
        (["group", "reset-offsets", "g", "-t", "t", "--to-time", "noon"], "--to-time 'noon': expected a time"),
        (["group", "reset-offsets", "g", "-t", "t", "--from-file", "f"], "leave out --topic"),
        (["group", "delete", "g", "-t", ":1"], "':1': expected TOPIC"),
        (["txn", "list", "--topic", "t"], "--topic goes with --hanging"),
        (["txn", "list", "--hanging", "p*"], "no PATTERN"),
        (["txn", "describe"], "say what to describe"),
        (["txn", "abort"], "say what to abort"),
        (["txn", "abort", "id", "--topic", "t:0"], "say what to abort"),
        (["txn", "abort", "id", "--start-offset", "1"], "go with --topic"),
        (["txn", "abort", "--topic", "t:0"], "--start-offset N or --producer-id ID"),
        (["txn", "abort", "--topic", "t:0,1", "--start-offset", "1"], "expected one partition"),
        (["txn", "abort", "--topic", "t", "--start-offset", "1"], "expected one partition"),
    ],
)
def test_what_makes_no_sense_is_told_without_a_cluster(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--bootstrap", "127.0.0.1:1"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "reset-offsets", "g", "-t", "t", "--to-latest", "--to-earliest"],
        ["group", "reset-offsets", "g", "-t", "t"],
        ["group", "list", "--state", "Sleeping"],
        ["txn", "list", "--longer-than", "soon"],
    ],
)
def test_options_that_parsing_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_names_are_accepted_in_any_case() -> None:
    parse = one_of(["Empty", "PreparingRebalance"])
    assert parse("preparingrebalance") == "PreparingRebalance"
    with pytest.raises(ArgumentTypeError, match="'x' is none of Empty, PreparingRebalance"):
        parse("x")


def test_durations_and_moments() -> None:
    assert (duration_ms("90s"), duration_ms("2h"), duration_ms("2w"), duration("7d")) == (
        90_000,
        7_200_000,
        None,
        604_800_000,
    )
    assert moment_ms("2h", NOW) == NOW - 7_200_000
    assert moment_ms("@17", NOW) == 17
    assert moment_ms("1970-01-02", NOW) == 86_400_000
    assert moment_ms("1970-01-01T02:00:00+02:00", NOW) == 0
    assert moment_ms("yesterday", NOW) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0s"),
        (1_250, "1.2s"),
        (60_000, "1m"),
        (250_000, "4m 10s"),
        (3_600_000 * 25 + 60_000, "1d 1h"),
        (86_400_000 * 1_000, "1,000d"),
        (3_600_000 + 30_000, "1h"),
    ],
)
def test_durations_are_shown_by_their_two_largest_units(ms: int, text: str) -> None:
    assert shown_duration(ms) == text


def test_partitions_as_people_write_them() -> None:
    assert choice_of(["a", "b:2,0", "b:1", "c:1", "c"], "-t") == {"a": None, "b": [0, 1, 2], "c": None}
    for wrong in ("", ":1", "a:", "a:1,", "a:-1", "a:\u0661"):
        with pytest.raises(UserError, match="expected TOPIC"):
            choice_of([wrong], "-t")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)), unique=True))
def test_shown_partitions_lose_nothing(partitions: list[tuple[str, int]]) -> None:
    shown = shown_partitions(TopicPartition(*one) for one in partitions)
    back = []
    for topic in shown.split():
        name, _, runs = topic.partition(":")
        for run in runs.split(","):
            first, _, last = run.partition("-")
            back += [(name, number) for number in range(int(first), int(last or first) + 1)]
    assert back == sorted(partitions)


def test_patterns() -> None:
    assert matches("orders", [])
    assert matches("orders", ["x", "ord*"])
    assert not matches("orders", ["Ord*"])


@given(st.integers(-50, 50), st.integers(0, 20), st.integers(0, 20), st.none() | st.integers(0, 40))
def test_planned_offset_is_in_the_log_and_a_change_of_it_is_noted(
    wanted: int, start: int, length: int, current: int | None
) -> None:
    at = {} if current is None else {HERE: current}
    (move,) = plan({HERE: wanted}, at, {HERE: Bounds(start, start + length)})
    assert start <= move.new <= start + length
    assert (move.new == wanted) == (move.note == "")
    assert move.difference == (None if current is None else move.new - current)


def test_plan_is_in_the_order_of_partitions() -> None:
    bounds = {TopicPartition("t", number): Bounds(0, 9) for number in (10, 9)}
    assert plan(dict.fromkeys(bounds, 4), {}, bounds) == [
        Move(TopicPartition("t", 9), None, 4),
        Move(TopicPartition("t", 10), None, 4),
    ]


def test_offsets_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan"
    file.write_text('{"topic": "a", "partition": 1, "new_offset": 5}\n\nb, 0, 7\n"c",2,9\n')
    assert read_offsets(str(file)) == {
        TopicPartition("a", 1): 5,
        TopicPartition("b", 0): 7,
        TopicPartition("c", 2): 9,
    }


@pytest.mark.parametrize(
    "line",
    ["a,1", "a,1,x", ",1,2", "a,-1,2", "a,1,-2", "{}", '{"topic": "a"', '{"topic": "a", "partition": 1}', "a,1,2,3"],
)
def test_line_that_is_no_offset_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "plan"
    file.write_text(f"a,0,1\n{line}\n")
    with pytest.raises(UserError, match="line 2: expected topic,partition,offset"):
        read_offsets(str(file))


def test_file_that_cannot_be_read_or_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_offsets(str(tmp_path / "absent"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UserError, match="names no partition"):
        read_offsets(str(tmp_path / "empty"))


def test_transaction_hangs_where_no_coordinator_will_end_it() -> None:
    producer = ProducerState(9, 0, 0, NOW, 0, 4)
    owner = TransactionDescription("id", "Ongoing", 1, 9, 0, 60_000, NOW, [HERE])
    assert OpenTransaction(HERE, producer, None).hanging
    assert not OpenTransaction(HERE, producer, owner).hanging
    assert OpenTransaction(TopicPartition("t", 1), producer, owner).hanging
