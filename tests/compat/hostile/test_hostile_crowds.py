"""Clients that take too much: connections, answers they do not read, requests faster than the disk."""

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from struct import pack

import pytest
from confluent_kafka.admin import AdminClient
from nodes.ottla_node import MIB, OttlaNode, running_node, wait_until
from nodes.wire import PRODUCE_VERSION, Wire, batch_of, produce_request
from peers.client import Client

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.frame import encode_request

FETCH_VERSION = 12
SMALL_BUFFER = 4096
NOTHING = MetadataRequest(topics=[])


@pytest.mark.usefixtures("honest")
def test_thousand_idle_connections(node: OttlaNode) -> None:
    before = node.memory_bytes
    with ExitStack() as crowd:
        idle = [crowd.enter_context(Wire(node.bootstrap)) for _ in range(1000)]
        for wire in idle:
            wire.send(NOTHING, 1)
        for wire in idle:
            wire.receive(NOTHING, 1)
        assert node.memory_bytes - before < 20 * MIB
    wait_until(lambda: connections_of(node) < 100, "the connections are gone")


def connections_of(node: OttlaNode) -> int:
    return len(node.process.net_connections("tcp"))


@pytest.mark.usefixtures("honest")
def test_connections_that_announce_much_and_send_little(node: OttlaNode) -> None:
    """Each says that 100 MB are coming. Memory follows what arrives, not what was said."""
    with ExitStack() as crowd:
        for _ in range(200):
            wire = crowd.enter_context(Wire(node.bootstrap))
            wire.socket.sendall(pack(">i", 104_857_600) + bytes(10_000))
        with Wire(node.bootstrap) as wire:
            wire.call(NOTHING, 1)


@pytest.mark.usefixtures("honest")
def test_client_that_never_reads_its_answers(node: OttlaNode) -> None:
    """It asks for gigabytes and takes nothing: it is not read from any more, and what it asked for is not held."""
    fill("filled", node, megabytes=8)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=50_000_000, topics=[FetchTopic(topic="filled", partitions=[asked])]
    )
    frame = b"".join(encode_request(request, FETCH_VERSION, 1, "c"))
    with Wire(node.bootstrap, receive_buffer=SMALL_BUFFER) as wire:
        sent = send_until_stuck(wire, frame * 1000)
        assert sent < 200_000 * len(frame), "it was read from although it took nothing"
    with Wire(node.bootstrap) as wire:
        answer = wire.call(request, FETCH_VERSION)
        assert len(answer.responses[0].partitions[0].records) > 7 * MIB


def fill(topic: str, node: OttlaNode, *, megabytes: int) -> None:
    Client(node.bootstrap).create_topics({topic: {}}, {})
    with Wire(node.bootstrap) as wire:
        for _ in range(megabytes):
            assert wire.produce(topic, batch_of([bytes(MIB - 100)])).error_code == 0


def send_until_stuck(wire: Wire, data: bytes) -> int:
    """Send again and again until the other side takes no more; how many bytes that were."""
    wire.socket.settimeout(0.5)
    sent = 0
    while sent < 1 << 30:
        try:
            sent += wire.socket.send(data)
        except TimeoutError:
            break
    return sent


@pytest.mark.usefixtures("honest")
def test_reader_of_a_topic_that_goes_away_gets_its_bytes_or_none(node: OttlaNode) -> None:
    """Its records are under way, slowly, when others take its place: no byte of theirs may be sent."""
    fill("vanishing", node, megabytes=4)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=50_000_000, topics=[FetchTopic(topic="vanishing", partitions=[asked])]
    )
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    with Wire(node.bootstrap, receive_buffer=SMALL_BUFFER) as slow, Wire(node.bootstrap) as other:
        other.send(request, FETCH_VERSION)
        expected = other.receive_frame()
        slow.send(request, FETCH_VERSION)
        assert slow.socket.recv(4, socket.MSG_PEEK), "the answer is under way"
        client.delete_topics(["vanishing"])["vanishing"].result(30)
        fill("successor", node, megabytes=4)
        got = bytearray()
        while len(got) < len(expected) + 4:
            try:
                part = slow.socket.recv(1 << 20)
            except ConnectionError:
                break
            if not part:
                break
            got += part
        assert got[4:] == expected[: len(got) - 4]


@pytest.mark.usefixtures("honest")
def test_client_that_sends_faster_than_the_disk(node: OttlaNode) -> None:
    """Every batch waits for a sync. The client is slowed; nothing it sent is lost, nothing piles up."""
    Client(node.bootstrap).create_topics({"synced": {"flush.messages": "1"}}, {})
    request = produce_request("synced", batch_of([bytes(100_000)]))
    frame = b"".join(encode_request(request, PRODUCE_VERSION, 1, "c"))
    count = 500
    before = node.memory_bytes
    with Wire(node.bootstrap) as wire:
        for _ in range(count):
            wire.socket.sendall(frame)
        assert node.memory_bytes - before < 50 * MIB
        offsets = [
            wire.receive(request, PRODUCE_VERSION).responses[0].partition_responses[0].base_offset for _ in range(count)
        ]
    assert offsets == list(range(count))


@pytest.mark.usefixtures("honest")
def test_thousands_of_requests_without_waiting_are_answered_in_their_order(node: OttlaNode) -> None:
    """Some are answered at once, some only when the disk has them: more than may be open at a time."""
    slow = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    requests = [NOTHING if number % 3 else slow for number in range(3000)]
    frames = [b"".join(encode_request(one, 1, number, "c")) for number, one in enumerate(requests)]
    with Wire(node.bootstrap) as wire:
        sender = threading.Thread(target=wire.socket.sendall, args=[b"".join(frames)])
        sender.start()
        answers = [int.from_bytes(wire.receive_frame()[:4], "big") for _ in requests]
        sender.join()
    assert answers == list(range(len(requests)))


def test_half_a_frame_and_then_silence(tmp_path: Path) -> None:
    with running_node(tmp_path, {"connections.max.idle.ms": "1000"}) as node:
        with Wire(node.bootstrap) as half, Wire(node.bootstrap) as whole:
            half.socket.sendall(pack(">i", 1000) + b"half")
            whole.call(NOTHING, 1)
            assert half.is_closed_by_peer()
            assert whole.is_closed_by_peer()
        with Wire(node.bootstrap) as wire:
            wire.call(NOTHING, 1)


def test_connections_over_the_limit_are_refused(tmp_path: Path) -> None:
    with running_node(tmp_path, {"max.connections.per.ip": "10"}) as node, ExitStack() as crowd:
        for _ in range(10):
            crowd.enter_context(Wire(node.bootstrap)).call(NOTHING, 1)
        with Wire(node.bootstrap) as eleventh:
            assert eleventh.is_closed_by_peer()
            wait_until(lambda: bool(node.warnings()), "the log says why")
        [line] = node.warnings()
        assert "max.connections.per.ip=10" in line
        crowd.pop_all().close()
        wait_until(lambda: connections_of(node) <= 1, "the others are gone")
        with Wire(node.bootstrap) as wire:
            wire.call(NOTHING, 1)
