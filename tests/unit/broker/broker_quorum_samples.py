"""A metadata quorum of one voter on a simulated disk, and requests to it."""

from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.broker.backlog import Backlog
from ottla.broker.quorum import MetadataQuorum
from ottla.config import Config
from ottla.core.metadata.brokers import Registration, register, unfence
from ottla.core.metadata.control import Voter
from ottla.core.metadata.image import Endpoint
from ottla.core.metadata.topics import Surroundings, create_topics, delete_topics
from ottla.sim import loop
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest

ROOT = "/data"
LOG = f"{ROOT}/__cluster_metadata-0"
LISTENER = "PLAINTEXT"


class Home:
    """A node's directory and the quorum in it."""

    def __init__(self, disk: SimDisk, settings: dict[str, str] | None = None) -> None:
        self.disk = disk
        self.clock = disk.clock
        self.config = Config.of(broker=settings or {})
        self.random = Random(4)
        self.quorum: MetadataQuorum
        self.directory: LogDirectory

    def new_id(self) -> bytes:
        return b"\x40" + self.random.randbytes(15)

    async def open(self) -> MetadataQuorum:
        self.directory = LogDirectory(self.disk, ROOT)
        self.directory.claim("cluster", 1, self.new_id)
        assert self.directory.meta is not None
        voter = Voter(1, self.directory.meta.directory_id or bytes(16), (("CONTROLLER", "localhost", 9093),))
        self.quorum = await MetadataQuorum.open(self.directory, voter, self.config, self.clock, self.random)
        return self.quorum

    async def join(self) -> None:
        assert self.directory.meta is not None
        registration = Registration(
            1,
            self.new_id(),
            (Endpoint(LISTENER, "localhost", 9092, 0),),
            None,
            (self.directory.meta.directory_id or bytes(16),),
        )
        await self.quorum.propose(lambda image: register(image, registration, self.quorum.end_offset))
        await self.quorum.propose(lambda image: unfence(image, 1))

    async def create(self, *names: str, partitions: int = 1) -> list[int]:
        around = Surroundings(self.config, self.random, self.new_id)
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
        reply = await self.quorum.propose(lambda image: create_topics(image, request, around))
        return [one.error_code for one in reply.topics]

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=0)
        await self.quorum.propose(lambda image: delete_topics(image, request))

    async def close(self) -> None:
        await self.quorum.close()
        self.directory.close(clean=True)

    def node(self) -> Any:
        """What a handler asks of a node."""
        return SimpleNamespace(
            metadata=self.quorum,
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
