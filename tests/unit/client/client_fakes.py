"""A network and a broker in memory, for clients under virtual time.

The broker speaks the real bytes through the real codec, stores batches as they come, and answers otherwise when told.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, NamedTuple, TypeVar

from ottla.client.client import Client
from ottla.kernel import read_header, stamp
from ottla.rpc.ports import Ports
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import run
from ottla.wire.api import ApiKey, request_class
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.errors import Error
from ottla.wire.frame import Request, decode_request, encode_response, split_frames
from ottla.wire.schema import message_of

T = TypeVar("T")
HOST, PORT = "broker.test", 9092
CUT = "cut"  # An answer that is the end of the connection.
SILENCE = "silence"  # An answer that never comes.
Answer = Any
Handler = Callable[[Request], Answer]


class FakeTransport(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, broker: "FakeBroker", protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._broker = broker
        self._protocol = protocol
        self._unread = b""
        self._closed = False
        self.loop = asyncio.get_running_loop()

    def write(self, data: Any) -> None:
        if self._closed:
            return
        self._unread += bytes(data)
        frames, end = split_frames(self._unread, 2**31 - 1)
        for frame in frames:
            self._broker.received(decode_request(bytes(frame)), self)
        self._unread = self._unread[end:]

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def answer(self, data: bytes) -> None:
        self.loop.call_soon(lambda: self._closed or self._protocol.data_received(data))

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self.loop.call_soon(self._protocol.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self._closed


class FakeNetwork:
    def __init__(self) -> None:
        self.brokers: dict[tuple[str, int], FakeBroker] = {}
        self.attempts = 0

    async def connect(self, host: str, port: int, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        self.attempts += 1
        await asyncio.sleep(0.001)
        broker = self.brokers.get((host, port))
        if broker is None:
            raise ConnectionRefusedError("refused")
        protocol = make()
        assert isinstance(protocol, asyncio.Protocol)
        transport = FakeTransport(broker, protocol)
        broker.connections.append(transport)
        protocol.connection_made(transport)
        return transport

    async def listen(self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> Any:
        raise NotImplementedError(f"nobody listens in these tests: {host} {port} {accept}")


class Stored(NamedTuple):
    """A batch in the log of a partition."""

    data: bytes
    producer_id: int
    producer_epoch: int
    sequence: int
    base_offset: int


class FakeBroker:
    """One broker with topics of some partitions; `logs` holds what it stored."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = topics
        self.logs: dict[tuple[str, int], list[Stored]] = {}
        self.requests: list[Request] = []
        self.connections: list[FakeTransport] = []
        self.instead: dict[ApiKey, deque[Handler]] = {}
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        self.leaderless: list[str] = []
        self.next_producer_id = 100
        self.apis: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
        }

    def answer_once(self, api: ApiKey, *handlers: Handler) -> None:
        """The next requests of an API are answered by these, one each."""
        self.instead.setdefault(api, deque()).extend(handlers)

    def asked(self, api: ApiKey) -> list[Request]:
        return [request for request in self.requests if request.api_key is api]

    def received(self, request: Request, transport: FakeTransport) -> None:
        self.requests.append(request)
        instead = self.instead.get(request.api_key)
        self.answered((instead.popleft() if instead else self.apis[request.api_key])(request), request, transport)

    def answered(self, answer: Answer, request: Request, transport: FakeTransport) -> None:
        if isinstance(answer, FetchResponse) and not _has_news(answer) and not request.body.max_wait_ms < 0:
            # Long polling: whoever asks at the end of the log waits there.
            wait_s, request.body.max_wait_ms = request.body.max_wait_ms / 1000, -1
            transport.loop.call_later(
                wait_s, lambda: self.answered(self.apis[ApiKey.FETCH](request), request, transport)
            )
        elif isinstance(answer, bytes):
            transport.answer(answer)
        elif answer == CUT:
            transport.abort()
        elif answer not in (SILENCE, None):
            version = 0 if getattr(answer, "error_code", 0) == Error.UNSUPPORTED_VERSION else request.version
            transport.answer(b"".join(encode_response(answer, version, request.correlation_id)))

    def api_versions(self, _: Request) -> Answer:
        spoken = []
        for api in self.apis:
            versions = message_of(request_class(api)).versions
            first, last = self.versions.get(api, (versions[0], versions[-1]))
            spoken.append(ApiVersion(api_key=api, min_version=first, max_version=last))
        return ApiVersionsResponse(error_code=0, api_keys=spoken)

    def metadata(self, request: Request) -> Answer:
        wanted = self.topics if request.body.topics is None else [topic.name for topic in request.body.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=HOST, port=PORT)],
            cluster_id="c",
            controller_id=1,
            topics=[self._topic(name, request.version) for name in wanted],
        )

    def _topic(self, name: str, version: int) -> MetadataResponseTopic:
        known = name in self.topics
        return MetadataResponseTopic(
            error_code=0 if known else Error.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            topic_id=topic_id(name) if known and version >= 10 else bytes(16),
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=-1 if name in self.leaderless else 1,
                    leader_epoch=3,
                    replica_nodes=[1],
                    isr_nodes=[1],
                )
                for index in range(self.topics.get(name, 0))
            ],
        )

    def produce(self, request: Request) -> Answer:
        responses = []
        for topic in request.body.topic_data:
            name = topic.name or self.name_of(topic.topic_id)
            appended = [self.append(name, one.index, bytes(one.records)) for one in topic.partition_data]
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=appended)
            )
        return ProduceResponse(responses=responses) if request.body.acks else SILENCE

    def append(self, topic: str, partition: int, data: bytes) -> PartitionProduceResponse:
        """Store a batch, or find it stored already."""
        header = read_header(data)
        log = self.logs.setdefault((topic, partition), [])
        for stored in log:
            if header.has_producer and stored[1:4] == header[9:12]:
                return PartitionProduceResponse(index=partition, error_code=0, base_offset=stored.base_offset)
        base = self.end(topic, partition)
        batch = bytearray(data)
        stamp(batch, 0, base, 3)
        log.append(Stored(bytes(batch), *header[9:12], base))
        return PartitionProduceResponse(index=partition, error_code=0, base_offset=base)

    def end(self, topic: str, partition: int) -> int:
        log = self.logs.get((topic, partition))
        return read_header(log[-1].data).next_offset if log else 0

    def fetch(self, request: Request) -> Answer:
        return FetchResponse(
            throttle_time_ms=0,
            session_id=0,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self.fetched(topic.topic or self.name_of(topic.topic_id), one.partition, one.fetch_offset)
                        for one in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ],
        )

    def fetched(self, topic: str, partition: int, offset: int) -> PartitionData:
        end = self.end(topic, partition)
        log = self.logs.get((topic, partition), [])
        return PartitionData(
            partition_index=partition,
            error_code=0 if 0 <= offset <= end else Error.OFFSET_OUT_OF_RANGE,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            aborted_transactions=None,
            records=b"".join(one.data for one in log if read_header(one.data).next_offset > offset),
        )

    def list_offsets(self, request: Request) -> Answer:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=0,
                            offset=0 if one.timestamp == -2 else self.end(topic.name, one.partition_index),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ]
        )

    def init_producer_id(self, _: Request) -> Answer:
        self.next_producer_id += 1
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=self.next_producer_id, producer_epoch=0
        )

    def name_of(self, wanted: bytes) -> str:
        return next(name for name in self.topics if topic_id(name) == wanted)


def _has_news(answer: FetchResponse) -> bool:
    partitions = [one for topic in answer.responses for one in topic.partitions]
    return answer.error_code != 0 or any(one.records or one.error_code for one in partitions)


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\1")


def simulated(
    work: Callable[[Client, FakeBroker], Coroutine[Any, Any, T]],
    topics: dict[str, int] | None = None,
    *,
    broker: FakeBroker | None = None,
    **options: Any,
) -> T:
    """Run `work` with a client of one fake broker, under virtual time."""
    network, clock = FakeNetwork(), SimClock()
    fake = broker or FakeBroker({"t": 1} if topics is None else topics)
    network.brokers[HOST, PORT] = fake

    async def main(_: object) -> T:
        ports = Ports(network, clock, Random(7))
        async with Client(f"{HOST}:{PORT}", ports=ports, **options) as client:
            return await work(client, fake)

    return run(main, 7, clock)


def produce_error(error: Error, **fields: Any) -> Handler:
    """Refuse every partition of a Produce."""

    def handle(request: Request) -> Answer:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=one.index, error_code=error, base_offset=-1, **fields)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.body.topic_data
            ]
        )

    return handle


async def outcomes(futures: list[Awaitable[T]]) -> list[T | BaseException]:
    return list(await asyncio.gather(*futures, return_exceptions=True))
