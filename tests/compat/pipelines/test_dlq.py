"""`ottla dlq` on a node of Ottla's and on Apache Kafka, with letters of pipelines and of Kafka Connect."""

import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from committed_records import committed
from confluent_kafka import Consumer, Producer, TopicPartition
from nodes.ottla_node import OTTLA, wait_until
from peers.clusters import fresh
from peers.commands import Ottla

from ottla.pipelines.sink import dead_letters

PARTITIONS = 2
CONNECT = dead_letters.CONNECT_PREFIX


@pytest.fixture
def ottla(bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Ottla:
    return Ottla(bootstrap, capfdbinary, tmp_path)


def letter_headers(topic: str, number: int) -> list[tuple[str, bytes | None]]:
    """Every third is Kafka Connect's."""
    if number % 3 == 0:
        told = {"topic": topic, "partition": "1", "offset": f"{number}", "exception.message": f"no field {number}"}
        return [("own", b"x"), *((f"{CONNECT}{name}", value.encode()) for name, value in told.items())]
    return [
        ("own", b"x"),
        (dead_letters.TOPIC, topic.encode()),
        (dead_letters.PARTITION, b"0"),
        (dead_letters.OFFSET, b"%d" % number),
        (dead_letters.ERROR, b"not JSON at %d" % number),
        (dead_letters.PIPELINE, b"shop"),
        (dead_letters.EPOCH, b"7"),
    ]


def test_letters_are_inspected_and_sent_back_once(ottla: Ottla) -> None:
    source = ottla.topic("dlq-source", "-p", PARTITIONS)
    dead = ottla.topic("dlq-dead", "-p", PARTITIONS)
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    for number in range(90):
        producer.produce(dead, b"%d" % number, key=b"k%d" % number, headers=letter_headers(source, number))
    assert producer.flush(30) == 0

    told = ottla("dlq", "inspect", dead, "--json").lines
    assert {line["error"]: line["count"] for line in told if line["what"] == "error"} == {
        "not JSON at …": 60,
        "no field …": 30,
    }
    assert {(line["topic"], line["pipeline"]): line["count"] for line in told if line["what"] == "source"} == {
        (source, "shop"): 60,
        (source, None): 30,
    }
    shown = ottla("dlq", "inspect", dead, "--error", "field", "--samples", 2).out.decode()
    assert f"30 dead letters in {dead}" in shown
    assert f"from {source}:1 offset" in shown

    plan = ottla("dlq", "redrive", dead, "--json")
    assert plan.lines == [{"topic": source, "count": 90, "redriven": True, "reason": None, "applied": False}]
    assert committed(ottla.bootstrap, source, PARTITIONS) == []

    assert ottla("dlq", "redrive", dead, "--error", "field", "--execute").code == 0
    assert len(committed(ottla.bootstrap, source, PARTITIONS)) == 30
    for _ in range(2):
        assert ottla("dlq", "redrive", dead, "--execute").code == 0
    back = committed(ottla.bootstrap, source, PARTITIONS)
    assert Counter(message.value() for message in back) == Counter(b"%d" % number for number in range(90))
    for message in back:
        assert message.headers() == [("own", b"x"), (dead_letters.REDRIVES, b"1")]
        assert message.key() == b"k" + message.value()
        assert message.partition() == (1 if int(message.value()) % 3 == 0 else 0)
    rest = ottla("dlq", "redrive", dead, "--json").lines
    assert [(line["count"], line["reason"]) for line in rest] == [(90, "were sent back before")]


def test_killed_redrive_goes_on_without_a_gap_and_sends_nothing_twice(ottla: Ottla) -> None:
    """Three times, each as soon as something of it is in the source's topic."""
    count = 6_000
    source, dead = ottla.topic("dlq-source", "-p", PARTITIONS), ottla.topic("dlq-dead", "-p", PARTITIONS)
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    for number in range(count):
        producer.produce(dead, b"%d" % number + bytes(2_000), headers=letter_headers(source, number))
        producer.poll(0)
    assert producer.flush(60) == 0

    command = [str(OTTLA), "dlq", "redrive", dead, "--execute", "-b", ottla.bootstrap]
    watching = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": "unused"})
    with closing(watching):

        def sent() -> int:
            places = (TopicPartition(source, number) for number in range(PARTITIONS))
            return sum(watching.get_watermark_offsets(place, timeout=30)[1] for place in places)

        for _ in range(3):
            before = sent()
            killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_until(lambda before=before: sent() > before, "letters are sent")  # type: ignore[misc]
                assert killed.poll() is None, "it had nothing left to do: too few letters for this test"
            finally:
                killed.kill()
                killed.wait()
    assert ottla("dlq", "redrive", dead, "--execute").code == 0
    back = Counter(message.value()[:-2_000] for message in committed(ottla.bootstrap, source, PARTITIONS))
    assert back == Counter(b"%d" % number for number in range(count))


def test_a_topic_that_is_not_there_is_named(ottla: Ottla) -> None:
    gone = fresh("dlq-gone")
    said = ottla("dlq", "inspect", gone)
    assert (said.code, gone in said.err) == (1, True)
