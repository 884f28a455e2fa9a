"""A metadata log with its controller, a quorum of one voter on a simulated disk, and requests to it."""

from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.broker.controller.channel import LocalChannel
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.lifecycle import BrokerIdentity, BrokerLifecycle, directory_id
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.controller.publisher import MetadataPublisher
from ottla.broker.controller.raft_log import RaftLog
from ottla.broker.network.backlog import Backlog, Budget
from ottla.config import Config
from ottla.core.metadata.control import Voter
from ottla.core.metadata.image import Image
from ottla.sim.machine import loop
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.wire.api.broker_registration import Listener
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest

ROOT = "/data"
LOG = f"{ROOT}/__cluster_metadata-0"
LISTENER = "PLAINTEXT"


class Home:
    """A node's directory, and the metadata in it."""

    def __init__(self, disk: SimDisk, settings: dict[str, str] | None = None) -> None:
        self.disk = disk
        self.clock = disk.clock
        self.config = Config.of(broker=settings or {})
        self.random = Random(4)
        self.metadata: MetadataPublisher
        self.raft_log: RaftLog
        self.controller: Controller
        self.channel: LocalChannel
        self.producer_ids: ProducerIds
        self.directory: LogDirectory
        self._lifecycle: BrokerLifecycle

    @property
    def image(self) -> Image:
        """What is committed."""
        return self.metadata.image

    def new_id(self) -> bytes:
        return b"\x40" + self.random.randbytes(15)

    async def open(self) -> None:
        self.directory = LogDirectory(self.disk, ROOT)
        self.directory.claim("cluster", 1, self.new_id)
        voter = Voter(1, directory_id(self.directory), (("CONTROLLER", "localhost", 9093),))
        self.metadata, backlog = MetadataPublisher(), Backlog(self.clock)
        self.raft_log = await RaftLog.open(self.directory, voter, self.config, self.clock, self.random, self.metadata)
        self.controller = Controller(
            self.raft_log, self.metadata, config=lambda: self.config, random=self.random, new_id=self.new_id
        )
        await self.controller.take_office()
        self.raft_log.keep_recovery_point()
        self.channel = LocalChannel(self.controller, lambda: Budget(backlog))
        store: Any = SimpleNamespace(directories=[self.directory], logs={}, offline={})
        self._lifecycle = BrokerLifecycle(1, self.channel, self.metadata, store)
        self.producer_ids = ProducerIds(self.channel, 1, lambda: self._lifecycle.epoch)

    async def join(self) -> None:
        listener = Listener(name=LISTENER, host="localhost", port=9092, security_protocol=0)
        await self._lifecycle.register(BrokerIdentity("cluster", self.new_id(), [listener], None))

    async def create(self, *names: str, partitions: int = 1) -> list[int]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=-1,
                    assignments=[],
                    configs=[CreatableTopicConfig(name="retention.ms", value="5")],
                )
                for name in names
            ]
        )
        reply = await self.channel.send(request)
        return [one.error_code for one in reply.topics]

    async def delete(self, name: str) -> int:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=0)
        reply = await self.channel.send(request)
        error: int = reply.responses[0].error_code
        return error

    async def close(self) -> None:
        await self.raft_log.close()
        self.directory.close(clean=True)

    def node(self) -> Any:
        """What a handler asks of a node."""
        return SimpleNamespace(
            metadata=self.metadata,
            raft_log=self.raft_log,
            controller=self.channel,
            producer_ids=self.producer_ids,
            config=self.config,
            random=self.random,
            new_id=self.new_id,
            clock=self.clock,
            node_id=1,
            cluster_id="cluster",
            backlog=Backlog(self.clock),
        )


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Under virtual time; what can never end is a `Deadlock`."""
    return loop.run(lambda _: work(), seed=1)


def new_disk() -> SimDisk:
    return SimDisk(SimClock(), Random(1))
