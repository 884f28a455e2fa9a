"""Stopping, killing and starting a node, as an operator does and as a machine does."""

import re
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from drivers import Sent
from drivers.confluent import Confluent
from nodes.ottla_node import OttlaNode, running_node, wait_until
from nodes.topics import Topics
from peers.broker import free_ports
from peers.client import Client

T = 1_700_000_000_000
ENOUGH = 2_000
RECOVERED = re.compile(r" (log\.(cut|truncated|tidied|restarted)|\w+\.rebuilt)\b|left=.?without")


class Load:
    """A producer that does not stop until it is told to, and remembers what was acknowledged, and where."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.failed: list[KafkaError] = []
        self._topic = topic
        self._enough = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Send nothing new, and wait until all that was sent is acknowledged."""
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._enough.is_set():
            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001 if len(self._producer) > 500 else 0)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None:
            self.failed.append(error)
        elif value is not None and offset is not None:
            self.acknowledged[value] = offset


@pytest.mark.parametrize("settings", [{}, {"flush.messages": "1"}], ids=["flushed by the system", "flush.messages=1"])
def test_everything_acknowledged_survives_kill(tmp_path: Path, topics: Topics, settings: Mapping[str, str]) -> None:
    """Twice under load. The idempotent producer retries: nothing is lost, nothing is there twice, the order is kept."""
    with running_node(tmp_path) as node:
        topic = topics.name()
        Client(node.bootstrap).create_topics({topic: settings}, {topic: 1})
        with Load(node.bootstrap, topic) as load:
            for kill in (1, 2):
                wait_until(lambda kill=kill: len(load.acknowledged) > kill * ENOUGH, "records are acknowledged")  # type: ignore[misc]
                node.kill()
                node.start()
                assert RECOVERED.search(node.log()), "the node was killed, so it had to look"
            load.finish()
        assert load.failed == []
        values = [one.value for one in Client(node.bootstrap).read_all([(topic, 0)])[topic, 0]]
        assert values == [b"%d" % number for number in range(len(values))]
        assert all(values[offset] == value for value, offset in load.acknowledged.items())
        assert len(values) == len(load.acknowledged) > 2 * ENOUGH


def test_clean_restart_needs_no_recovery(tmp_path: Path, topics: Topics) -> None:
    with running_node(tmp_path) as node:
        topic = topics.create(node, partitions=3)
        Confluent().produce(node.bootstrap, topic, [Sent(None, b"v", T)] * 10)
        node.restart()
        assert "left=cleanly" in node.log()
        assert not RECOVERED.search(node.log()), node.log()
        assert node.warnings() == []
        assert len(Confluent().consume(node.bootstrap, topic, 10)) == 10


def test_stopped_node_keeps_topics_and_settings(tmp_path: Path, topics: Topics) -> None:
    with running_node(tmp_path) as node:
        topic = topics.create(node, partitions=2, retention_ms="1000000")
        gone = topics.create(node)
        client = AdminClient({"bootstrap.servers": node.bootstrap})
        client.delete_topics([gone])[gone].result(30)
        before = sorted(path.name for path in node.log_dir.glob(f"{topic}-?"))
        node.restart()
        assert set(client.list_topics(timeout=120).topics) == {topic}
        assert sorted(path.name for path in node.log_dir.glob(f"{topic}-?")) == before == [f"{topic}-0", f"{topic}-1"]


def refused_start(node: OttlaNode) -> str:
    """What a node says that does not start."""
    done = subprocess.run(node.command(), capture_output=True, text=True, timeout=240, check=False, cwd=node.home)
    assert done.returncode != 0, "it started and ended as if all were well"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with running_node(tmp_path) as first:
        said = refused_start(OttlaNode(tmp_path))
        assert str(first.log_dir) in said
        assert re.search(r"in use|another", said), said
        first.restart()


def test_taken_port_is_named(tmp_path: Path) -> None:
    with running_node(tmp_path / "first") as first:
        second = OttlaNode(tmp_path / "second")
        second.port = first.port
        assert str(first.port) in refused_start(second)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"log.retention.ms": "soon"}, ["log.retention.ms", "soon", "number"]),
        ({"log.cleanup.policy": "shred"}, ["log.cleanup.policy", "shred", "compact", "delete"]),
        ({"log.segment.bytes": "1"}, ["log.segment.bytes", "1", "1048576"]),
        ({"compression.type": "rar"}, ["compression.type", "rar", "zstd"]),
    ],
)
def test_wrong_setting_stops_the_start(tmp_path: Path, settings: Mapping[str, str], expected: list[str]) -> None:
    said = refused_start(OttlaNode(tmp_path, settings))
    assert [part for part in expected if part not in said] == [], said


def test_unknown_setting_is_named_and_left_alone(tmp_path: Path) -> None:
    with running_node(tmp_path, {"no.such.setting": "1"}) as node:
        assert "no.such.setting" in node.log()


KAFKAS_OWN = """\
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{clients},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=2
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of the file that Kafka 4 ships as config/server.properties; listeners stay on this machine."""


def test_kafkas_own_properties_file_works(tmp_path: Path, topics: Topics) -> None:
    clients, controller = free_ports(2)
    file = tmp_path / "server.properties"
    file.write_text(KAFKAS_OWN.format(clients=clients, controller=controller, data=tmp_path / "data"))
    node = OttlaNode(tmp_path, properties_file=file)
    node.start()
    try:
        assert node.warnings() == []
        topic = topics.name()
        Confluent().produce(f"localhost:{clients}", topic, [Sent(None, b"v", T)])
        listed = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=120)
        assert list(listed.brokers) == [7]
        assert len(listed.topics[topic].partitions) == 2
    finally:
        node.stop()
