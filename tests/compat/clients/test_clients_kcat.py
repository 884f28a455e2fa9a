"""kcat, as Debian packages it: what people type when they want to know quickly."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from drivers import CODECS, Sent
from drivers.confluent import Confluent
from nodes.topics import Server, Topics

T = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _needs_kcat() -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat not found: install Debian's package kcat")


def kcat(server: Server, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", server.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def read(server: Server, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """All records to the end of the partition."""
    lines = kcat(server, "-C", "-t", topic, "-p", "0", "-J", "-e", "-q", *arguments).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_reads(ottla: Server, topics: Topics, codec: str, acks: str) -> None:
    topic = topics.create(ottla)
    sending = ["-P", "-t", topic, "-p", "0", "-K:", "-H", "a=1", "-z", codec, "-X", f"acks={acks}"]
    kcat(ottla, *sending, stdin="k1:v1\nk2:v2\n")
    got = Confluent().consume(ottla.bootstrap, topic, 2)
    assert [(one.key, one.value, one.headers) for one in got] == [
        (b"k1", b"v1", (("a", b"1"),)),
        (b"k2", b"v2", (("a", b"1"),)),
    ]
    seen = read(ottla, topic, "-o", "beginning")
    assert [(one["offset"], one["key"], one["payload"], one["headers"]) for one in seen] == [
        (0, "k1", "v1", ["a", "1"]),
        (1, "k2", "v2", ["a", "1"]),
    ]


def test_kcat_lists_what_there_is(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=3)
    listed = json.loads(kcat(server, "-L", "-J", "-t", topic))
    assert [len(one["partitions"]) for one in listed["topics"] if one["topic"] == topic] == [3]
    assert [one["name"] for one in listed["brokers"]] == [server.bootstrap]


def test_kcat_begins_where_it_is_told(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    Confluent().produce(server.bootstrap, topic, [Sent(None, b"%d" % n, T + 10 * n) for n in range(5)])
    assert [one["payload"] for one in read(server, topic, "-o", "2")] == ["2", "3", "4"]
    assert [one["payload"] for one in read(server, topic, "-o", "-1")] == ["4"]
    assert [one["payload"] for one in read(server, topic, "-o", f"s@{T + 25}")] == ["3", "4"]
    assert kcat(server, "-Q", "-t", f"{topic}:0:{T + 25}").strip() == f"{topic} [0] offset 3"


def test_kcat_sends_idempotently(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    lines = "".join(f"{number}\n" for number in range(1000))
    kcat(server, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", stdin=lines)
    assert [one["payload"] for one in read(server, topic, "-o", "beginning")] == lines.split()
