"""What people type and pipe in: lines, JSON, places to start, settings; and what they see of a record."""

import json
from argparse import ArgumentTypeError
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import main
from ottla.cli.arguments import at_least_one, pairs, positive_seconds
from ottla.cli.config.command import resource_of
from ottla.cli.consume.lines import LineForm, line_of
from ottla.cli.consume.where import start_of
from ottla.cli.errors import UserError
from ottla.cli.plain import bytes_from_plain, to_plain
from ottla.cli.produce.lines import InputRecord, LineRules, LineSplitter, draft_of
from ottla.cli.progress import ProgressLine, rate
from ottla.cli.remote import error_text
from ottla.cli.tables import shown_size
from ottla.client.configs import Resource, ResourceType
from ottla.client.consumer import BEGINNING, END, Received, Start
from ottla.client.core.errors import DeliveryFailed
from ottla.rpc.addresses import Address
from ottla.rpc.errors import Declined, Unreachable
from ottla.wire.errors import Error

NOW = 1_800_000_000_000


@given(st.binary(), st.lists(st.integers(0, 200), max_size=8))
def test_lines_are_the_same_however_the_input_is_cut(data: bytes, cuts: list[int]) -> None:
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    splitter, lines = LineSplitter(), []
    places = sorted(min(cut, len(data)) for cut in cuts)
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        if start < end:
            lines += splitter.feed(data[start:end])
    assert [*lines, *splitter.feed(b"")] == expected


@pytest.mark.parametrize(
    ("line", "rules", "expected"),
    [
        (b"a:b:c", LineRules(), InputRecord(None, b"a:b:c")),
        (b"a:b:c", LineRules(separator=b":"), InputRecord(b"a", b"b:c")),
        (b"-:-", LineRules(separator=b":", null=b"-"), InputRecord(None, None)),
        (
            b"v",
            LineRules(key=b"k", headers=(("h", b"1"),), partition=3),
            InputRecord(b"k", b"v", (("h", b"1"),), None, 3),
        ),
        (b"{}", LineRules(as_json=True, key=b"k"), InputRecord(b"k", None)),
        (b'{"key": null, "value": ""}', LineRules(as_json=True, key=b"k"), InputRecord(None, b"")),
        (
            b'{"value": 1, "headers": {"h": null}, "timestamp": 5, "partition": 2}',
            LineRules(as_json=True),
            InputRecord(None, b"1", (("h", None),), 5, 2),
        ),
        (
            b'{"topic": "x", "offset": 9, "value": "v", "partition": 2}',
            LineRules(as_json=True),
            InputRecord(None, b"v"),
        ),
    ],
)
def test_line_becomes_a_record(line: bytes, rules: LineRules, expected: InputRecord) -> None:
    assert draft_of(line, 1, rules) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"valeu": 1}',
        b'{"value": {"base64": "?"}}',
        b'{"timestamp": -1}',
        b'{"timestamp": true}',
        b'{"partition": "1"}',
        b'{"headers": 3}',
        b'{"headers": [["h"]]}',
        b'{"headers": [[1, "x"]]}',
        b"\xff",
    ],
)
def test_line_that_is_no_record_is_named_by_its_number(line: bytes) -> None:
    with pytest.raises(UserError, match="line 17 is no record"):
        draft_of(line, 17, LineRules(as_json=True))


@given(st.none() | st.binary())
def test_bytes_survive_json(value: bytes | None) -> None:
    assert bytes_from_plain(json.loads(json.dumps(to_plain(value)))) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("0", Start(offset=0)),
        ("@5", Start(moment=5)),
        ("90s", Start(moment=NOW - 90_000)),
        ("2h", Start(moment=NOW - 7_200_000)),
        ("99999d", Start(moment=0)),
        ("2027-01-15T08:00:00", Start(moment=NOW)),
        ("2027-01-15T09:00:00+01:00", Start(moment=NOW)),
        ("2027-01-15", Start(moment=NOW - 8 * 3_600_000)),
        ("1970-01-01T00:00:01.500Z", Start(moment=1_500)),
    ],
)
def test_places_to_start(text: str, expected: Start) -> None:
    assert start_of(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "5x", "@", "@x", "²"])
def test_place_that_is_none_says_what_is_allowed(text: str) -> None:
    with pytest.raises(UserError, match="expected beginning, end, an offset"):
        start_of(text, NOW)


RECORD = Received("t", 2, 7, 1_794_732_289_029, b"key", b"\x1b[2J", (("h", b"1"), ("n", None)))


def test_value_goes_into_a_pipe_byte_by_byte() -> None:
    assert line_of(RECORD, LineForm()) == b"\x1b[2J\n"
    everything = LineForm(offsets=True, timestamps=True, keys=True, headers=True)
    assert line_of(RECORD, everything) == b"2:7\t2026-11-15T08:44:49.029Z\th=1,n=null\tkey\t\x1b[2J\n"


def test_value_cannot_reprogram_a_terminal() -> None:
    shown = line_of(RECORD, LineForm(keys=True, terminal=True))
    assert shown == b"\x1b[2mkey\t\x1b[0m0x1b5b324a\n"


def test_record_as_json() -> None:
    assert json.loads(line_of(RECORD._replace(value=None), LineForm(as_json=True))) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_794_732_289_029,
        "key": "key",
        "value": None,
        "headers": [["h", "1"], ["n", None]],
    }


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("orders", ResourceType.TOPIC, "orders"),
        ("topic:broker", ResourceType.TOPIC, "broker"),
        ("broker", ResourceType.BROKER, ""),
        ("broker:3", ResourceType.BROKER, "3"),
    ],
)
def test_resources(text: str, kind: ResourceType, name: str) -> None:
    assert resource_of(text) == Resource(kind, name)


@pytest.mark.parametrize("text", ["broker:x", "topic:", "group:g"])
def test_resource_that_is_none_is_told(text: str) -> None:
    with pytest.raises(UserError, match="expected TOPIC"):
        resource_of(text)


def test_settings_as_pairs() -> None:
    assert pairs(["a=1", "b=", "c=x=y"], "--set") == {"a": "1", "b": "", "c": "x=y"}
    for wrong in ("a", "=1"):
        with pytest.raises(UserError, match="expected NAME=VALUE"):
            pairs([wrong], "--set")


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "²"])
def test_numbers_from_one_on(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        at_least_one(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "inf", "nan"])
def test_seconds_above_zero(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        positive_seconds(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "0.977 KiB"),
        (10_240, "10 KiB"),
        (5 << 30, "5 GiB"),
        (3 << 60, "3,072 PiB"),
    ],
)
def test_sizes_are_short(size: int, shown: str) -> None:
    assert shown_size(size) == shown


def test_errors_advise_somebody_at_a_terminal() -> None:
    unknown = Declined(Error.UNKNOWN_TOPIC_OR_PARTITION, broker=Address("h", 1), subject="topic orders")
    assert error_text(unknown).endswith(
        "\n       `ottla topic list` shows what exists; `ottla topic create orders` makes it."
    )
    assert "`ottla serve`" in error_text(DeliveryFailed("topic t", Unreachable([Address("h", 1)], ["refused"])))
    assert "--from beginning" in error_text(Declined(Error.OFFSET_OUT_OF_RANGE))


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("ottla.cli.progress.time.monotonic", lambda: now[0])
    pipe, terminal = StringIO(), Terminal()
    for stream in (pipe, terminal):
        with ProgressLine(stream=stream) as progress:
            progress.say("too early")
            now[0] += 1
            progress.say("half")
            progress.say("too soon")
    assert pipe.getvalue() == ""
    assert terminal.getvalue() == "\r\x1b[2Khalf\r\x1b[2K"


def test_rate_is_told_when_there_is_something_to_measure() -> None:
    assert (rate(1_000, 2.0), rate(99, 2.0), rate(1_000, 0.5)) == (", 500/s", "", "")


@pytest.mark.parametrize(
    "command",
    [
        "produce t --json -K :",
        "produce t --key a -K :",
        "produce t -H novalue",
        "consume t --from yesterday",
        "config get group:g",
        "config set t retention.ms",
        "topic create t --set retention.ms",
        "topic alter t",
        "topic list -b h:x",
    ],
)
def test_options_that_make_no_sense_are_told_before_a_broker_is_asked(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command.split()
    assert main([*arguments, *([] if "-b" in arguments else ["-b", "127.0.0.1:1"])]) == 2
    told_to = capsys.readouterr().err
    assert told_to.startswith("ottla: ")
    assert "nothing listens" not in told_to


def test_nobody_listening_is_told_at_once_with_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-b", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("ottla: broker 127.0.0.1:1: nothing listens there\n       Start a node")
