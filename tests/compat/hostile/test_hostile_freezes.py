"""What once froze a node: requests and crowds, each of which kept others waiting for seconds, or took gigabytes.

How long the loop is held is told in CPU time of its thread (`bench/watched.py`); the bounds leave room for machines
that are several times slower.
"""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3]))  # The benchmark is a package beside `src`.

from bench.holds import Watched, watched_node
from nodes.ottla_node import MIB, wait_until
from nodes.topics import QUICK_GROUPS
from nodes.wire import Wire, batch_of

from ottla.kernel import Codec, Record, build_batch
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error
from ottla.wire.frame import encode_request

HOLD_S_MAX = 0.4
TOPICS = 1_000
HONEST = ApiVersionsRequest(client_software_name="honest", client_software_version="1")


class Place:
    """A node that is watched."""

    def __init__(self, node: Watched) -> None:
        self.node = node
        self.bootstrap = f"127.0.0.1:{node.port}"
        self.begin()

    def begin(self) -> None:
        self.node.holds.reset()
        self.node.reset_peak()
        self._before = self.node.memory("VmRSS")

    def call(self, request: Any, version: int) -> Any:
        return self.node.call(request, version)

    def assert_unharmed(self, memory_max: int = 96 * MIB) -> None:
        """Somebody else is answered, was never kept waiting for long, and nothing took much memory."""
        self.call(HONEST, 3)
        hold, grown = self.node.holds.read(), self.node.memory("VmHWM") - self._before
        assert hold.cpu_s < HOLD_S_MAX, f"the loop was held for {hold.cpu_s:.2f} s"
        assert grown < memory_max, f"the node took {grown / MIB:.0f} MiB"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    settings = QUICK_GROUPS | {"log.initial.task.delay.ms": "3600000"}
    with watched_node(tmp_path_factory.mktemp("frozen"), settings) as started:
        make_topics(started, ["t"])
        while started.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code:  # type: ignore[attr-defined]
            pass
        # What is imported and compiled is so once.
        started.call(list_offsets(300), 7)
        started.call(DescribeConfigsRequest(resources=[broker_settings()] * 200), 4)
        started.call(MetadataRequest(topics=None), 12)
        yield started


@pytest.fixture
def place(node: Watched) -> Place:
    return Place(node)


def make_topics(node: Watched, names: list[str], partitions: int = 1) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    told: Any = node.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    assert {one.error_code for one in told.topics} == {Error.NONE}


def list_offsets(partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * partitions
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


def broker_settings() -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)


@pytest.mark.parametrize("partitions", [20_000, 100_000])
def test_one_partition_named_very_often(place: Place, partitions: int) -> None:
    """Ten seconds, and for ever."""
    told = place.call(list_offsets(partitions), 7)
    assert {one.error_code for one in told.topics[0].partitions} == {Error.INVALID_REQUEST}
    place.assert_unharmed()


def test_settings_of_the_broker_described_very_often(place: Place) -> None:
    """Twelve seconds and two gigabytes, for 25 kB."""
    request = DescribeConfigsRequest(resources=[broker_settings()] * 5_000, include_synonyms=True)
    with Wire(place.bootstrap) as wire:
        wire.send(request, 4)
        assert len(wire.receive_frame()) > 100 * MIB
    place.assert_unharmed()


def test_pattern_of_nested_parentheses(place: Place) -> None:
    """Twelve seconds and two gigabytes, for every look at the topics."""
    pattern = "(" * 8_000 + "t" + ")" * 8_000
    member: dict[str, Any] = {"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 30_000}

    def gets_partitions() -> bool:
        request = ConsumerGroupHeartbeatRequest(
            member_epoch=0, subscribed_topic_regex=pattern, topic_partitions=[], **member
        )
        told = place.call(request, 1)
        assert told.error_code == Error.NONE
        return told.assignment is not None and bool(told.assignment.topic_partitions)

    wait_until(gets_partitions, "the pattern finds its topic")
    place.assert_unharmed()


def test_batches_that_unpack_to_much(place: Place) -> None:
    """Each took a tenth of a second, and a request has room for hundreds."""
    batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(40 * MIB))], codec=Codec.LZ4)
    make_topics(place.node, ["unpacked"], partitions=30)
    place.begin()
    data = [PartitionProduceData(index=index, records=batch) for index in range(30)]
    topic = TopicProduceData(name="unpacked", partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    told = place.call(request, 9)
    assert {one.error_code for one in told.responses[0].partition_responses} == {Error.NONE}
    place.assert_unharmed(memory_max=300 * MIB)  # Two are looked at at a time.


def test_clients_that_ask_on_and_on_and_read_nothing(place: Place) -> None:
    """Fifty of them: everybody else waited for a minute."""
    make_topics(place.node, [f"some-{number}" for number in range(200)])
    place.begin()
    frames = b"".join(encode_request(MetadataRequest(topics=None), 12, 1, "c")) * 2_000
    with ExitStack() as crowd, Wire(place.bootstrap) as honest:
        for _ in range(50):
            wire = crowd.enter_context(Wire(place.bootstrap, receive_buffer=4096))
            wire.socket.setblocking(False)
            try:
                wire.socket.sendall(frames)
            except BlockingIOError:
                continue  # It is not read from any more.
        for _ in range(50):
            honest.call(HONEST, 3)
        place.assert_unharmed(memory_max=200 * MIB)


def test_halves_of_huge_frames(place: Place) -> None:
    """Twenty of 60 MB took more than a gigabyte. They wait for each other; who sends little does not."""
    head = pack(">ihhih", 60_000_000, 3, 1, 7, -1)
    with ExitStack() as crowd:
        sockets = []
        for _ in range(20):
            connection = crowd.enter_context(Wire(place.bootstrap)).socket
            connection.setblocking(False)
            sockets.append(connection)
        left = dict.fromkeys(sockets, 58000000)
        piece = bytes(MIB)
        for connection in sockets:
            connection.send(head)
        idle = 0
        while idle < 50 and any(left.values()):
            sent = 0
            for connection in sockets:
                try:
                    sent += (size := connection.send(piece[: left[connection]])) if left[connection] else 0
                    left[connection] -= size if left[connection] else 0
                except BlockingIOError:
                    continue
            idle = 0 if sent else idle + 1
            place.call(HONEST, 3)
        assert sum(bool(rest) for rest in left.values()) > 10, "most of them are not read from"
        with Wire(place.bootstrap) as wire:
            assert wire.produce("t", batch_of([bytes(60_000)])).error_code == Error.NONE
        place.assert_unharmed(memory_max=400 * MIB)


def test_very_many_topics_are_made_and_deleted(tmp_path: Path) -> None:
    """The checkpoints of all partitions were written again for each: forty seconds for 4,000, and nobody could stop the
    node meanwhile."""
    names = [f"t-{number}" for number in range(TOPICS)]
    with watched_node(tmp_path, {"log.initial.task.delay.ms": "3600000"}) as node:
        make_topics(node, ["first"])
        deleted = [DeleteTopicState(name="first", topic_id=bytes(16))]
        node.call(DeleteTopicsRequest(topics=deleted, timeout_ms=60_000), 6)
        place = Place(node)
        make_topics(node, names)
        place.assert_unharmed(memory_max=200 * MIB)
        place.begin()
        doomed = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in names]
        told = place.call(DeleteTopicsRequest(topics=doomed, timeout_ms=60_000), 6)
        assert {one.error_code for one in told.responses} == {Error.NONE}
        place.assert_unharmed()
        assert place.call(MetadataRequest(topics=None), 12).topics == []
        # Once more, and the operator has enough of it.
        make_topics(node, names)
        frame = b"".join(encode_request(DeleteTopicsRequest(topics=doomed, timeout_ms=60_000), 6, 1, "c"))
        with socket.create_connection(("127.0.0.1", node.port)) as connection:
            connection.sendall(frame)
            place.call(HONEST, 3)
            assert node.stop() in (0, -signal.SIGTERM)
    assert "Traceback" not in node.said()
