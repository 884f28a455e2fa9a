"""Ottla's own client under the same faults: its transactional producer, its admin, and offsets without metadata.

Rule 1: a transaction of the library counts as committed if the block was left without an error, as aborted if its user
        gave it up. Otherwise the outcome is unknown: the library may have requested the end and missed the response.
Rule 2: a commit without metadata is identified by its offset: none is committed twice.
"""

import asyncio
from contextlib import suppress

from ottla.client.admin import Admin, NewTopic
from ottla.client.client import Client
from ottla.client.core.errors import EndUnknown
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.producer import Delivery, Producer
from ottla.rpc.errors import ClientError, Declined
from ottla.rpc.ports import Ports
from ottla.sim.node.group_history import NOTHING
from ottla.sim.node.group_offsets import INPUT
from ottla.sim.node.ledger import ID, Key, Sent
from ottla.sim.node.scene import NODE, Scene
from ottla.sim.node.transactional import TIMEOUTS_MS, new_writes
from ottla.sim.played import Violation
from ottla.wire.errors import Error

_PATIENCE = 3


def client_of(scene: Scene, name: str) -> Client:
    ports = Ports(scene.network.host(name), scene.clock, scene.random)
    return Client(str(NODE), client_id=name, request_timeout_ms=2_500, api_timeout_ms=20_000, ports=ports)


class _GivenUp(Exception):
    """The user of the library gives up the transaction."""


class LibraryTransactional:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._fails = scene.random.choice((0.0, 0.2))
        self._timeout_ms = scene.random.choice(TIMEOUTS_MS)

    async def run(self) -> None:
        scene = self._scene
        async with client_of(scene, self._name) as client:
            while not scene.ending:
                producer = Producer(
                    client,
                    linger_ms=scene.random.choice((0, 20)),
                    delivery_timeout_ms=8_000,
                    transactional_id=self._name,
                    transaction_timeout_ms=self._timeout_ms,
                )
                try:
                    for _ in range(scene.random.choice((1, 10))):
                        await self._transact(producer)
                        await scene.pause(0.5)
                except ClientError as error:
                    scene.note(f"{self._name}: {error}")
                    await scene.pause(1)
                finally:
                    await producer.close(flush=False)

    async def _transact(self, producer: Producer) -> None:
        scene = self._scene
        transaction = scene.transactions.begin(self._name)
        try:
            async with producer.transaction():
                for _ in range(scene.random.randint(1, 3)):
                    where = scene.random.choice(scene.all_keys(fleeting=False))
                    for sent in new_writes(scene, where, self._name, transaction, 1):
                        self._send(producer, sent)
                    await scene.pause(0.2)
                if scene.random.random() < self._fails:
                    raise _GivenUp
                transaction.commit_asked = True
        except _GivenUp:
            transaction.aborted()
        except EndUnknown:
            await self._commit_again(producer)
            transaction.committed(scene.now)
        except ClientError:
            transaction.given_up()
            raise
        else:
            transaction.committed(scene.now)

    async def _commit_again(self, producer: Producer) -> None:
        """Repeat the commit, as the documentation says: it is the same request. Raises ClientError."""
        for _ in range(_PATIENCE):
            with suppress(EndUnknown):
                await producer.transactions.commit()
                return
        raise ClientError("how the transaction ended is not known")

    def _send(self, producer: Producer, sent: Sent) -> None:
        scene, life = self._scene, self._scene.ledger.lives
        name = scene.name_of(sent.where[0])
        assert name is not None
        sent.attempts = 1
        delivered = producer.send(
            name, sent.value, key=sent.key, headers=((ID, sent.id),), timestamp=sent.timestamp, partition=sent.where[1]
        )
        delivered.add_done_callback(lambda done: self._settle(sent, done, life))

    def _settle(self, sent: Sent, done: "asyncio.Future[Delivery]", life: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self._scene.ledger.acked(sent, done.result().offset, life=life, now=self._scene.now)


class LibraryAdmin:
    """Describes everything, and has its own topic."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._own = f"{name}-topic"
        self._exists: bool | None = False
        """None: unknown."""

    async def run(self) -> None:
        scene = self._scene
        looks = (self._look_at_topics, self._look_at_offsets, self._look_at_groups, self._look_at_cluster, self._change)
        async with client_of(scene, self._name) as client:
            admin = Admin(client)
            while not scene.ending:
                try:
                    await scene.random.choice(looks)(admin)
                except ClientError as error:
                    scene.note(f"{self._name}: {error}")
                await scene.pause(1.5)

    async def _look_at_topics(self, admin: Admin) -> None:
        known = {name: topic.partitions for name, topic in self._scene.topics.items() if not topic.plan.fleeting}
        exists = self._exists
        listed = await admin.list_topics()
        for name, partitions in known.items():
            if name not in listed or len(listed[name].partitions) < partitions:
                raise Violation("I21", f"topic {name} has {partitions} partitions; listed is {listed.get(name)}")
        if exists is not None and exists is self._exists and (self._own in listed) is not exists:
            raise Violation("I21", f"topic {self._own} {'is missing' if exists else 'is there'}")

    async def _look_at_offsets(self, admin: Admin) -> None:
        scene = self._scene
        keys = scene.all_keys(fleeting=False)
        partitions = {TopicPartition(scene.name_of(key[0]) or "", key[1]): key for key in keys}
        life = scene.ledger.lives
        known = {key: list(scene.ledger.partition(key).known) for key in keys}
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        for partition, key in partitions.items() if life == scene.ledger.lives else ():
            start, end = starts[partition].offset, ends[partition].offset
            # A record lost with the power is known until the node is back, which may be while this waits for responses.
            latest = max((one for one in known[key] if one in scene.ledger.partition(key).known), default=-1)
            if end <= latest or end < start:
                raise Violation("I14", f"{partition} is from {start} to {end}; {latest} was acknowledged or read")

    async def _look_at_groups(self, admin: Admin) -> None:
        for listed in (await admin.list_groups()).values():
            if isinstance(listed, ClientError):
                continue
            described = await admin.describe_groups([one.group_id for one in listed])
            for group_id, result in described.items():
                if (
                    isinstance(result, Declined)
                    and not result.retriable
                    and result.error is not Error.GROUP_ID_NOT_FOUND
                ):
                    raise Violation("I21", f"group {group_id} is listed and cannot be described: {result}")
        for transactions in (await admin.list_transactions()).values():
            if not isinstance(transactions, ClientError):
                await admin.describe_transactions([one.transactional_id for one in transactions])

    async def _look_at_cluster(self, admin: Admin) -> None:
        described = await admin.describe_cluster()
        if described.controller != 1 or [broker.node_id for broker in described.brokers] not in ([1], []):
            raise Violation("I21", f"the cluster is one node, 1; it is described as {described}")
        await admin.describe_log_dirs()

    async def _change(self, admin: Admin) -> None:
        """Create its topic, or delete it. Without a response that may still happen: then it uses another one."""
        wanted = not self._exists
        self._exists = None
        try:
            error = await (self._create(admin) if wanted else self._delete(admin))
        except ClientError as lost:
            error = lost
        done = Error.TOPIC_ALREADY_EXISTS if wanted else Error.UNKNOWN_TOPIC_OR_PARTITION
        if error is None or (isinstance(error, Declined) and error.error is done):
            self._exists = wanted
        else:
            self._own += "+"
            self._exists = False

    async def _create(self, admin: Admin) -> ClientError | None:
        outcome = (await admin.create_topics([NewTopic(self._own, 1, 1)]))[self._own]
        return outcome if isinstance(outcome, ClientError) else None

    async def _delete(self, admin: Admin) -> ClientError | None:
        return (await admin.delete_topics([self._own]))[self._own]


class BareCommitter:
    """Keeps offsets of a group without members, without metadata."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._group = f"{name}-group"
        self._commits: dict[tuple[Key, int], str] = {}
        """Their ids in the history, by offset."""
        self._offset = 0

    async def run(self) -> None:
        scene = self._scene
        async with client_of(scene, self._name) as client:
            admin = Admin(client)
            while not scene.ending:
                try:
                    await scene.random.choice((self._commit, self._commit, self._fetch))(admin)
                except ClientError as error:
                    scene.note(f"{self._name}: {error}")
                await scene.pause(1)

    def _keys(self) -> dict[TopicPartition, Key]:
        topic = self._scene.topics[INPUT]
        return {TopicPartition(INPUT, index): (topic.topic_id, index) for index in range(topic.partitions)}

    async def _commit(self, admin: Admin) -> None:
        scene, keys = self._scene, self._keys()
        self._offset += 1
        commits = {
            partition: scene.groups.committing(self._group, "", key, self._offset, scene.now)
            for partition, key in keys.items()
        }
        self._commits |= {(keys[partition], commit.offset): commit.id for partition, commit in commits.items()}
        outcomes = await admin.commit_offsets(self._group, dict.fromkeys(commits, self._offset))
        for partition, commit in commits.items():
            if outcomes.get(partition) is None:
                scene.groups.granted(commit, scene.now)

    async def _fetch(self, admin: Admin) -> None:
        scene, keys, began = self._scene, self._keys(), self._scene.now
        result = (await admin.committed_offsets([self._group]))[self._group]
        if isinstance(result, ClientError):
            raise result
        for partition, key in keys.items():
            offset = result[partition].offset if partition in result else NOTHING
            scene.groups.fetched(self._group, key, offset, self._commits.get((key, offset)), began)
