"""`ottla topic`, `produce`, `consume` and `config` against a cluster, as somebody at a terminal uses them."""

import json
import signal
import subprocess
import sys

from nodes.ottla_node import wait_until
from peers.clusters import fresh
from peers.commands import Ottla


def test_topic_is_created_described_altered_and_deleted(ottla: Ottla) -> None:
    topic = fresh("cli-topic")
    created = ottla("topic", "create", topic, "-p", 2, "--set", "retention.ms=60000")
    assert created == (0, f"{topic} created: 2 partitions, 1 replica each\n".encode(), "")
    assert ottla("topic", "alter", topic, "-p", 3, "--set", "segment.ms=70000").code == 0
    wait_until(
        lambda: len(ottla("topic", "describe", topic, "--json").lines[0]["partitions"]) == 3,
        "the broker knows of the new partition",
    )
    (described,) = ottla("topic", "describe", topic, "--json").lines
    assert described["settings"] == {"retention.ms": "60000", "segment.ms": "70000"}
    assert [(one["partition"], one["start_offset"], one["end_offset"]) for one in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    shown = ottla("topic", "describe", topic).out.decode()
    assert "3 partitions, 1 replica each" in shown
    assert "retention.ms=60000" in shown
    (listed,) = ottla("topic", "list", f"{topic[:-1]}*", "--json").lines
    assert (listed["topic"], listed["partitions"]) == (topic, 3)
    assert topic.encode() in ottla("topic", "list").out
    assert ottla("topic", "delete", topic, "--yes").out == f"{topic} deleted\n".encode()


def test_refusal_names_broker_topic_and_what_to_do(ottla: Ottla) -> None:
    topic = ottla.topic("cli-refused")
    again = ottla("topic", "create", topic)
    assert again.code == 1
    assert again.err.startswith(f"ottla: topic {topic}, broker {ottla.bootstrap}: ")
    assert "Choose another name" in again.err
    assert ottla("topic", "create", topic, "--if-missing").code == 0
    for command in (["topic", "describe"], ["consume"], ["config", "get"]):
        missing = ottla(*command, "absent")
        assert missing.code == 1
        assert f"topic absent, broker {ottla.bootstrap}" in missing.err
        assert "`ottla topic create absent`" in missing.err


def test_one_that_fails_does_not_hide_the_others(ottla: Ottla) -> None:
    topic = ottla.topic("cli-some")
    both = ottla("topic", "describe", "absent", topic, "--json")
    assert both.code == 1
    assert [one["topic"] for one in both.lines] == [topic]


def test_lines_go_in_and_come_out(ottla: Ottla) -> None:
    topic = ottla.topic("cli-lines", "-p", 1)
    said = ottla.produce(topic, b"a:1\nb:\xff\xfe\nc:null", "-K", ":", "--null", "null", "-H", "h=x", "-z", "zstd")
    assert (said.code, said.err) == (0, f"3 records to {topic}, 6 bytes\n")
    assert ottla("consume", topic, "--keys", "-q").out == b"a\t1\nb\t\xff\xfe\nc\tnull\n"
    assert ottla("consume", topic, "-o", "-H", "--max", 1, "-q").out == b"0:0\th=x\t1\n"
    assert ottla("consume", topic, "--from", 2, "-q").out == b"null\n"
    assert ottla("consume", topic, "--from", "1h", "-n", 2, "-q").out == b"1\n\xff\xfe\n"
    assert ottla("consume", topic, "--from", "@99999999999999", "-q").out == b""


def test_json_that_came_out_goes_in_the_same(ottla: Ottla) -> None:
    first, second = ottla.topic("cli-json", "-p", 1), ottla.topic("cli-copy", "-p", 1)
    lines = [
        {"key": "k", "value": "text", "headers": [["h", "1"], ["h", None]], "timestamp": 1_700_000_000_000},
        {"key": {"base64": "/wA="}, "value": {"base64": "/v8="}, "timestamp": 5},
        {"value": None, "timestamp": 6},
        {"key": None, "value": {"nested": [1, "ä"]}, "timestamp": 7},
    ]
    assert ottla.produce(first, "\n".join(map(json.dumps, lines)).encode(), "--json").code == 0
    out = ottla("consume", first, "--json", "-q")
    assert [one["timestamp"] for one in out.lines] == [1_700_000_000_000, 5, 6, 7]
    assert out.lines[1]["value"] == {"base64": "/v8="}
    assert out.lines[3]["value"] == '{"nested":[1,"ä"]}'
    assert ottla.produce(second, out.out, "--json").code == 0
    assert [one | {"topic": first} for one in ottla("consume", second, "--json", "-q").lines] == out.lines


def test_line_that_is_no_record_is_named_and_those_before_it_are_sent(ottla: Ottla) -> None:
    topic = ottla.topic("cli-bad")
    said = ottla.produce(topic, b"a:1\nbroken\nb:2\n", "-K", ":")
    assert said.code == 2
    assert "line 2 has no key" in said.err
    assert ottla("consume", topic, "-q").out == b"1\n"


def test_record_the_cluster_refuses_is_named_by_its_line(ottla: Ottla) -> None:
    topic = ottla.topic("cli-compact", "--set", "cleanup.policy=compact")
    said = ottla.produce(topic, b'{"key":"a","value":"1"}\n{"value":"2"}\n', "--json")
    assert said.code == 1
    assert "line 2: not delivered: " in said.err
    assert "INVALID_RECORD" in said.err
    assert "1 record to" in said.err


def test_parts_of_a_topic(ottla: Ottla) -> None:
    topic = ottla.topic("cli-parts", "-p", 3)
    for partition in range(3):
        ottla.produce(topic, b"%d\n" % partition, "--partition", partition)
    assert ottla("consume", topic, "-p", 2, "-p", 0, "-q").out in (b"2\n0\n", b"0\n2\n")
    assert len(ottla("consume", topic, "-q").out.splitlines()) == 3
    wrong = ottla("consume", topic, "-p", 3)
    assert (wrong.code, wrong.err) == (2, f"ottla: topic {topic} has no partition 3: it has 0 to 2\n")


def test_settings_are_shown_set_and_unset(ottla: Ottla) -> None:
    topic = ottla.topic("cli-config")

    def source() -> str:
        (one,) = ottla("config", "get", topic, "segment.ms", "--json").lines
        return str(one["source"])

    assert ottla("config", "set", topic, "segment.ms=1234", "flush.ms=5678").code == 0
    wait_until(lambda: source() == "TOPIC", "the broker knows of the settings")
    shown = {one["name"]: one for one in ottla("config", "get", topic, "--json").lines}
    assert (shown["segment.ms"]["value"], shown["segment.ms"]["source"]) == ("1234", "TOPIC")
    assert "cleanup.policy" not in shown
    assert b"segment.ms" in ottla("config", "get", f"topic:{topic}").out
    assert ottla("config", "unset", topic, "segment.ms").code == 0
    wait_until(lambda: source() == "DEFAULT", "the broker knows that one is unset")
    wrong = ottla("config", "set", topic, "segment.ms=abc")
    assert wrong.code == 1
    assert "INVALID_CONFIG" in wrong.err
    absent = ottla("config", "get", topic, "no.such")
    assert (absent.code, absent.err) == (1, f"ottla: topic {topic} has no setting no.such\n")


def test_settings_of_a_broker(ottla: Ottla) -> None:
    node = ottla("topic", "describe", ottla.topic("cli-node"), "--json").lines[0]["partitions"][0]["leader"]
    names = {one["name"] for one in ottla("config", "get", f"broker:{node}", "--json", "--all").lines}
    assert {"node.id", "log.retention.ms", "message.max.bytes"} <= names
    assert ottla("config", "get", "broker").code == 0


def test_nobody_listening_is_told_at_once(ottla: Ottla) -> None:
    ottla.bootstrap = "127.0.0.1:1"
    said = ottla("topic", "list")
    assert said.code == 1
    assert said.err.startswith("ottla: broker 127.0.0.1:1: nothing listens there\n")
    assert "`ottla serve`" in said.err


def test_ctrl_c_while_following_ends_cleanly(ottla: Ottla) -> None:
    topic = ottla.topic("cli-follow")
    command = [sys.executable, "-m", "ottla.cli", "consume", topic, "--follow", "--bootstrap", ottla.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        ottla.produce(topic, b"hello\n")
        assert following.stdout.readline() == b"hello\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 130
        assert following.stderr.read().decode() == f"1 record of {topic}, 5 bytes\n"


def test_ctrl_c_while_waiting_for_input_ends_cleanly(ottla: Ottla) -> None:
    topic = ottla.topic("cli-type")
    command = [sys.executable, "-m", "ottla.cli", "produce", topic, "--bootstrap", ottla.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as typing:
        assert typing.stdin is not None
        assert typing.stderr is not None
        typing.stdin.write(b"typed\n")
        typing.stdin.flush()
        while not ottla("consume", topic, "-q").out:
            assert typing.poll() is None
        typing.send_signal(signal.SIGINT)
        assert typing.wait(20) == 130
        assert typing.stderr.read().decode() == f"interrupted: 1 record to {topic}, 5 bytes\n"
