"""A node to be mean to, and an honest client beside it that must not notice."""

import threading
from collections.abc import Iterator

import pytest
from nodes.ottla_node import MIB, OttlaNode, running_node, wait_until
from nodes.wire import Wire, batch_of
from peers.client import Client

from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic

MEMORY_BYTES_MAX = 200 * MIB
"""What a node may ever have taken. It begins with some 40 MiB; a bomb that goes off takes more than this."""


class Honest:
    """Produces and asks, one request after the other, on one connection that must never break."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._wire = Wire(bootstrap)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answered = 0
        self.trouble: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """It is still served, and was all the time."""
        seen = self.answered
        try:
            wait_until(lambda: self.answered > seen or not self._thread.is_alive(), "the honest client is answered")
        finally:
            self._enough.set()
            self._thread.join()
            self._wire.socket.close()
        if self.trouble is not None:
            raise AssertionError("the honest client noticed") from self.trouble

    def _run(self) -> None:
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        try:
            # A rest between requests: it shall be served, not be the load.
            while not self._enough.wait(0.005):
                answer = self._wire.produce(self._topic, batch_of([b"honest"]))
                assert (answer.error_code, answer.base_offset) == (0, self.answered)
                assert self._wire.call(metadata, 12).topics[0].error_code == 0
                self.answered += 1
        except BaseException as trouble:
            self.trouble = trouble


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with running_node(tmp_path_factory.mktemp("ottla")) as started:
        Client(started.bootstrap).create_topics({"target": {}}, {})
        yield started


@pytest.fixture
def honest(node: OttlaNode, request: pytest.FixtureRequest) -> Iterator[None]:
    """Around each test: someone else uses the node meanwhile, and its memory stays in bounds."""
    topic = f"honest-{abs(hash(request.node.name))}"
    Client(node.bootstrap).create_topics({topic: {}}, {})
    client = Honest(node.bootstrap, topic)
    client.start()
    yield
    client.finish()
    peak = node.memory_peak_bytes
    assert peak < MEMORY_BYTES_MAX, f"the node has taken {peak / MIB:.0f} MiB"
