"""`ottla dlq` before a cluster is asked, and what it counts."""

import json
import subprocess
import sys

import pytest

from ottla.cli import main
from ottla.cli.dlq.inspection import LetterTally, json_fields, shown
from ottla.cli.dlq.letters import DeadLetter
from ottla.cli.plain import json_line
from ottla.client import Received
from ottla.pipelines.sink.dead_letters import LetterOrigin


def test_help_waits_for_nothing() -> None:
    code = "import sys, ottla.cli as c\ntry: c.main(sys.argv[1:])\nexcept SystemExit: print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "dlq", "--help"], capture_output=True, text=True, check=True)
    assert "inspect" in done.stdout
    assert "redrive" in done.stdout
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspect", "t", "--since", "noon"], "--since 'noon': expected a time"),
        (["inspect", "t", "--until", "noon"], "--until 'noon': expected a time"),
        (["inspect", "t:x"], "'t:x': expected TOPIC"),
        (["inspect", "t", "--from-offset", "5", "--to-offset", "5"], "no offset lies between them"),
        (["redrive", "t:0", "--to", "t"], "--to t is the dead-letter topic itself"),
    ],
)
def test_what_makes_no_sense_is_told_without_a_cluster(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", *arguments, "--bootstrap", "127.0.0.1:1"]) == 2
    assert told in capsys.readouterr().err


def letter(offset: int, error: str, topic: str | None = "orders") -> DeadLetter:
    record = Received("dead", 0, offset, 1_000 - offset, b"k", b"\xff", (("h", None),))
    return DeadLetter(record, LetterOrigin(topic, error=error, redrives=offset % 2))


def test_letters_are_counted_by_kind_of_error_and_by_source() -> None:
    tally = LetterTally(samples_max=2)
    tally.add([letter(n, f"not JSON at {n}") for n in range(5)])
    tally.add([letter(5, "timeout", None)])
    assert (tally.count, tally.redriven) == (6, 3)
    lines = [json.loads(json_line(line)) for line in json_fields(tally)]
    assert lines[:2] == [
        {"what": "error", "error": "not JSON at …", "count": 5},
        {"what": "error", "error": "timeout", "count": 1},
    ]
    assert [line for line in lines if line["what"] == "source"] == [
        {"what": "source", "topic": "orders", "pipeline": None, "count": 5},
        {"what": "source", "topic": None, "pipeline": None, "count": 1},
    ]
    samples = [line for line in lines if line["what"] == "letter"]
    assert [sample["offset"] for sample in samples] == [0, 1, 5]
    assert (samples[0]["value"], samples[0]["headers"]) == ({"base64": "/w=="}, [["h", None]])


@pytest.mark.parametrize(
    ("value", "text"), [(None, "none"), ("é".encode(), "é"), (b"\xff\n", r"\xff\n"), (b"a\x1b[2J", r"a\x1b[2J")]
)
def test_values_are_shown_without_what_a_terminal_would_obey(value: bytes | None, text: str) -> None:
    assert shown(value) == text


def test_a_long_value_is_cut_and_its_size_told() -> None:
    assert shown(b"x" * 1_000) == "x" * 300 + "… (1,000 bytes)"
