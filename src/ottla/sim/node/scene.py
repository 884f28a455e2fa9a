"""State shared by all clients of a run, and a raw client with one connection."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.rpc.addresses import Address
from ottla.rpc.connection import BrokerConnection, connect
from ottla.rpc.errors import ClientError
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.network import Host, SimNetwork
from ottla.sim.node.group_history import GroupHistory
from ottla.sim.node.ledger import ID, Key, Ledger, Sent
from ottla.sim.node.swarm import TopicPlan
from ottla.sim.node.transaction_history import TransactionHistory
from ottla.sim.records import DecodedRecord
from ottla.wire.api.find_coordinator import FindCoordinatorRequest

NODE = Address("node", 9092)
ANSWER_MS_MAX = 2_500
CONNECT_TIMEOUT_MS = 2_000
OF_GROUP, OF_TRANSACTION = 0, 1
MIXED = "mixed"
"""The protocol of groups with members of both protocols."""


@dataclass(slots=True)
class LiveTopic:
    """A topic that exists, as far as known."""

    plan: TopicPlan
    topic_id: bytes
    partitions: int


class Scene:
    def __init__(
        self, random: Random, clock: SimClock, network: SimNetwork, ledger: Ledger, note: Callable[[str], None]
    ) -> None:
        self.random = random
        self.clock = clock
        self.network = network
        self.ledger = ledger
        self.note = note
        self.topics: dict[str, LiveTopic] = {}
        self.transactions = TransactionHistory()
        self.groups = GroupHistory()
        self.protocol = ""
        """Of all groups: `classic`, `consumer`, or `MIXED`."""
        self.hazards: frozenset[str] = frozenset()
        """See `NodeSwarm.hazards`."""
        self.workers: dict[str, None] = {}
        """The participating groups."""
        self.sources: dict[bytes, tuple[str, Key, int]] = {}
        """For each output record of a group: the group, and the position of its input record."""
        self.ending = False
        """Clients finish what they began and begin nothing new."""
        self.closing = False
        """Writing has ended: groups read what is left."""
        self.is_calm = False
        """There are no faults in this run, so that delays are violations."""
        self.stops: Callable[[], int] = lambda: 0
        """See `Machine.stops`: a stopping node accepts no new topics."""
        self.age: Callable[[str, int], None] = lambda _transactional_id, _epochs_left: None
        """See `Machine.age`."""
        self.identities: dict[tuple[int, int], int] = {}
        """Producer ids and epochs of transactional ids, and the node's life in which each was first returned."""
        self.lull_until = 0.0
        """Before this time clients begin nothing; see `NodeSwarm.lull_s`."""
        self._ids = 0

    @property
    def now(self) -> float:
        return self.clock.seconds

    def all_keys(self, *, fleeting: bool = True) -> list[Key]:
        return [
            (topic.topic_id, index)
            for topic in self.topics.values()
            if fleeting or not topic.plan.fleeting
            for index in range(topic.partitions)
        ]

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    @property
    def has_lost(self) -> bool:
        """Whether committed state may be gone: power was lost without syncs."""
        return self.groups.lost_at >= 0

    def power_lost(self) -> None:
        """Record a power loss in the histories: unsynced state may be gone."""
        self.transactions.power_lost()
        self.groups.power_lost(self.now)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(self.random.uniform(0, seconds))
        await self.lull()

    async def lull(self) -> None:
        """Wait until the planned pause of all clients is over."""
        while self.now < self.lull_until:
            await asyncio.sleep(self.lull_until - self.now)

    def new_record(self, where: Key, sender: str, *, once: bool = True, size: int | None = None) -> Sent:
        """A record that was never sent before, recorded in the ledger."""
        self._ids += 1
        random, id_ = self.random, b"%s-%d" % (sender.encode(), self._ids)
        plan = self.ledger.partition(where).plan
        compacts = plan.compacts
        value: bytes | None = id_ + b"." * (random.choice((0, 0, 30, 300)) if size is None else size)
        if compacts and not plan.kept and random.random() < 0.15:
            value = None
        key = b"key-%d" % random.randrange(40 if plan.kept else 8) if compacts or random.random() < 0.5 else None
        return self.ledger.entered(Sent(id_, where, sender, self._ids, key, value, self.clock.wall_ms(), once))


def record_of(sent: Sent, delta: int) -> DecodedRecord:
    return DecodedRecord(delta, sent.timestamp, sent.key, sent.value, ((ID, sent.id),))


class Line:
    """A raw client: one connection, reopened when it is gone."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.host: Host = scene.network.host(name)
        self._connection: BrokerConnection | None = None

    async def connection(self) -> BrokerConnection:
        if self._connection is None or not self._connection.usable:
            self._connection = await connect(self.host, NODE, self.name, timeout_ms=CONNECT_TIMEOUT_MS)
        return self._connection

    async def call(self, request: object, *, timeout_ms: int = ANSWER_MS_MAX, at_most: int | None = None) -> Any:
        """Send a request and return the response. Raises ClientError."""
        connection = await self.connection()
        return await connection.call(request, timeout_ms=timeout_ms, at_most=at_most)

    async def ask(self, request: object) -> Any:
        """Send an idempotent request until a response comes."""
        while True:
            try:
                return await self.call(request)
            except ClientError:
                await self.scene.pause(0.5)

    async def find_coordinator(self, key: str, key_type: int) -> None:
        """Repeat until there is one: the first request creates its topic."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while (await self.ask(request)).coordinators[0].error_code:
            await self.scene.pause(0.5)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
