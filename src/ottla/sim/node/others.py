"""Ottla's own clients under the same faults, one that pipelines requests, and hostile ones: idle, not reading."""

import asyncio

from ottla.client.consumer import BEGINNING, Consumer, Start
from ottla.client.core.errors import BufferFull, DeliveryFailed
from ottla.client.core.names import TopicPartition
from ottla.client.producer import Delivery, Producer
from ottla.rpc.errors import ClientError
from ottla.sim.node.ledger import ID, Key, Sent, text_of
from ottla.sim.node.library import client_of
from ottla.sim.node.scene import NODE, Scene
from ottla.sim.played import Violation
from ottla.sim.records import DecodedRecord
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.frame import encode_request, split_frames

DELIVERY_TIMEOUT_MS = 20_000


class LibraryProducer:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name

    async def run(self) -> None:
        scene = self._scene
        async with client_of(scene, self._name) as client:
            producer = Producer(
                client,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                batch_bytes=scene.random.choice((200, 65_536)),
                linger_ms=scene.random.choice((0, 50)),
            )
            while not scene.ending:
                for _ in range(scene.random.randint(1, 5)):
                    self._send(producer)
                await scene.pause(0.6)
            await producer.close()

    def _send(self, producer: Producer) -> None:
        scene = self._scene
        keys = scene.all_keys(fleeting=False)
        if not keys:
            return
        where = scene.random.choice(keys)
        sent, life = scene.new_record(where, self._name), scene.ledger.lives
        sent.attempts = 1
        name = scene.name_of(where[0])
        assert name is not None
        try:
            delivered = producer.send(
                name, sent.value, key=sent.key, headers=((ID, sent.id),), timestamp=sent.timestamp, partition=where[1]
            )
        except BufferFull:
            scene.ledger.refused(sent, "the buffer is full")
            return
        delivered.add_done_callback(lambda done: self._settle(sent, done, life))

    def _settle(self, sent: Sent, done: "asyncio.Future[Delivery]", life: int) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._scene.ledger.acked(sent, done.result().offset, life=life, now=self._scene.now)
        elif isinstance(error, DeliveryFailed):
            self._scene.ledger.refused(sent, str(error))
        elif not isinstance(error, ClientError):
            raise error


class LibraryConsumer:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name

    async def run(self) -> None:
        scene = self._scene
        async with client_of(scene, self._name) as client:
            while not scene.ending:
                committed = scene.random.random() < 0.5
                consumer = Consumer(
                    client,
                    reset=BEGINNING,
                    committed=committed,
                    sessions=scene.random.random() < 0.5,
                    partition_bytes_max=scene.random.choice((300, 1 << 20)),
                )
                try:
                    await self._consume(consumer, committed=committed)
                except ClientError:
                    await scene.pause(1)
                finally:
                    await consumer.close()

    async def _consume(self, consumer: Consumer, *, committed: bool) -> None:
        scene = self._scene
        ids = {name: topic.topic_id for name, topic in scene.topics.items() if not topic.plan.fleeting}
        wanted = [
            TopicPartition(name, index)
            for name, topic in scene.topics.items()
            if name in ids
            for index in range(topic.partitions)
        ]
        life = scene.ledger.lives  # Fetched records may be returned much later.
        await consumer.assign(dict.fromkeys(wanted, BEGINNING))
        positions = dict.fromkeys(wanted, 0)
        for _ in range(scene.random.choice((5, 50))):
            await scene.lull()
            if scene.ending:
                return
            if positions and scene.random.random() < 0.2:
                await self._jump(consumer, positions)
            for one in await consumer.poll(records_max=scene.random.choice((2, 500)), timeout_ms=1_000):
                partition = TopicPartition(one.topic, one.partition)
                key = (ids[one.topic], one.partition)
                record = DecodedRecord(one.offset, one.timestamp, one.key, one.value, one.headers)
                sent = scene.ledger.read(key, record, life=life)
                if committed and sent.transaction is not None:
                    sent.transaction.seen(text_of(sent))
                if life == scene.ledger.lives and one.offset < positions[partition]:
                    raise Violation("I8", f"{partition}: {one.offset} was given out at {positions[partition]}")
                scene.ledger.went_on(key, positions[partition], one.offset, committed=committed, life=life)
                positions[partition] = one.offset + 1

    async def _jump(self, consumer: Consumer, positions: dict[TopicPartition, int]) -> None:
        """Seek back, or pause: records in flight meanwhile must not be returned."""
        random = self._scene.random
        await self._scene.pause(0.3)  # So that it has fetched more.
        partition = random.choice(list(positions))
        match random.choice(("seek", "seek", "pause", "resume")):
            case "seek":
                positions[partition] = random.randint(0, positions[partition])
                await consumer.seek(partition, Start(offset=positions[partition]))
            case "pause":
                consumer.pause(partition)
            case "resume":
                consumer.resume(partition)


class _InOrder(asyncio.Protocol):
    """Receives responses, which must come in the order of the requests."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.answered = 0
        self.ended = asyncio.Event()
        self._wanted = 0
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, requests: list[tuple[object, int]]) -> None:
        self._wanted = len(requests)
        for number, (request, version) in enumerate(requests):
            self.transport.writelines(encode_request(request, version, number, "in-order"))

    def data_received(self, data: bytes) -> None:
        frames, end = split_frames(self._data + data, 1 << 30)
        self._data = (self._data + data)[end:]
        for frame in frames:
            number = int.from_bytes(frame[:4], "big")
            if number != self.answered:
                raise Violation("I9", f"request {number} was answered before request {self.answered}")
            self.answered += 1
        if self.answered == self._wanted:
            self.ended.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set()


class Pipeliner:
    """Sends requests of all kinds without waiting; slow ones first."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._host = scene.network.host(name)

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending:
            in_order = _InOrder()
            try:
                async with asyncio.timeout(2):
                    await self._host.connect(*NODE, lambda in_order=in_order: in_order)  # type: ignore[misc]
                in_order.ask([self._request() for _ in range(scene.random.randint(2, 12))])
                async with asyncio.timeout(15):
                    await in_order.ended.wait()
            except (OSError, TimeoutError):
                await scene.pause(1)
            if hasattr(in_order, "transport"):
                in_order.transport.abort()
            await scene.pause(1)

    def _request(self) -> tuple[object, int]:
        random = self._scene.random
        match random.choice(("fetch", "versions", "identity", "metadata")):
            case "fetch":
                ends = self._scene.ledger.partitions
                wanted = [(key, max(ends[key].known, default=-1) + 1) for key in self._scene.all_keys()]
                return _fetch_request(wanted, wait_ms=random.choice((0, 300))), 13
            case "versions":
                return ApiVersionsRequest(client_software_name="sim", client_software_version="1"), 3
            case "identity":
                return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
        return MetadataRequest(topics=None, allow_auto_topic_creation=False), 12


def _fetch_request(wanted: list[tuple[Key, int]], *, wait_ms: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
            for (topic_id, index), offset in wanted
        ],
    )


class _Deaf(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set()


class Nuisance:
    """A hostile client: its connections send nothing, incomplete frames or garbage, or read no responses."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._host = scene.network.host(name)

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending:
            deaf = _Deaf()
            try:
                async with asyncio.timeout(2):
                    await self._host.connect(*NODE, lambda deaf=deaf: deaf)  # type: ignore[misc]
            except (OSError, TimeoutError):
                await scene.pause(1)
                continue
            await scene.random.choice((self._idle, self._half_frame, self._garbage, self._never_read))(deaf.transport)
            try:
                async with asyncio.timeout(scene.random.choice((0.1, 3, 12))):
                    await deaf.lost.wait()
            except TimeoutError:
                deaf.transport.abort()
            await scene.pause(1)

    async def _idle(self, transport: asyncio.Transport) -> None:
        """Leave the connection open without sending anything."""

    async def _half_frame(self, transport: asyncio.Transport) -> None:
        transport.write((1_000).to_bytes(4, "big") + bytes(self._scene.random.randrange(500)))

    async def _garbage(self, transport: asyncio.Transport) -> None:
        transport.write(self._scene.random.randbytes(100))

    async def _never_read(self, transport: asyncio.Transport) -> None:
        """Requests everything repeatedly, and reads no response."""
        transport.pause_reading()
        waits, ledger = self._scene.random.random() < 0.5, self._scene.ledger
        wanted = [
            (key, max(ledger.partition(key).known, default=-1) + 1 if waits else 0) for key in self._scene.all_keys()
        ]
        request = _fetch_request(wanted, wait_ms=5_000 if waits else 0)
        for number in range(self._scene.random.choice((10, 150))):
            transport.writelines(encode_request(request, 13, number, "deaf"))
            if number % 20 == 0:
                await asyncio.sleep(0.01)
