"""Transactions of a hundred records, one after the other: by librdkafka, and by many producers that only send frames.

The latter use version 2 of the protocol (KIP-890): Produce adds the partition, EndTxn returns the next epoch.
CONCURRENT_TRANSACTIONS is retried after a millisecond.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import uvloop
from confluent_kafka import Producer

from bench.coordinator_members import Connection
from bench.group_requests import TRANSACTION_KEY, find_coordinator
from bench.raw_client import RawConnection
from ottla.kernel import Record, build_batch
from ottla.wire.api import ApiKey
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error

RECORDS = 100
VALUE = bytes(100)
_TIMEOUT_S = 60.0
_TIMEOUT_MS = 60_000
_ASK_AGAIN_S = 0.001
_PRODUCE_VERSION, _END_VERSION, _INIT_VERSION = 12, 5, 5
_NOT_YET = (
    Error.CONCURRENT_TRANSACTIONS,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


def by_librdkafka(port: int, topic: str, transactions: int) -> float:
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": "librdkafka", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(_TIMEOUT_S)
    started = time.perf_counter()
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(_TIMEOUT_S)
    return time.perf_counter() - started


def by_frames(port: int, topic: str, transactions: int, producers: int) -> float:
    """`transactions` in all; each producer writes to its own partition."""
    connection = RawConnection(port)
    find_coordinator(connection, "frames-0", TRANSACTION_KEY)
    connection.socket.close()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_by_frames(port, topic, transactions, producers))


async def _by_frames(port: int, topic: str, transactions: int, producers: int) -> float:
    all_producers = []
    for number in range(producers):
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        producer = _Producer(connection, f"frames-{number}", topic, number)
        await producer.begin()
        all_producers.append(producer)
    started = time.perf_counter()
    await asyncio.gather(*(producer.commit(transactions // producers) for producer in all_producers))
    took = time.perf_counter() - started
    for producer in all_producers:
        producer.connection.close()
    return took


class _Producer:
    def __init__(self, connection: Connection, transactional_id: str, topic: str, partition: int) -> None:
        self.connection = connection
        self._transactional_id = transactional_id
        self._topic = topic
        self._partition = partition
        self._producer_id = -1
        self._epoch = -1
        now_ms = time.time_ns() // 1_000_000
        self._records = [Record(index, now_ms, None, VALUE) for index in range(RECORDS)]

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, _INIT_VERSION, request, lambda told: told.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def commit(self, transactions: int) -> None:
        for _ in range(transactions):
            await self._ask(
                ApiKey.PRODUCE,
                _PRODUCE_VERSION,
                self._produce(),
                lambda told: told.responses[0].partition_responses[0].error_code,
            )
            request = EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=True,
            )
            ended = await self._ask(ApiKey.END_TXN, _END_VERSION, request, lambda told: told.error_code)
            self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def _produce(self) -> ProduceRequest:
        batch = build_batch(
            self._records,
            transactional=True,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
        )
        data = PartitionProduceData(index=self._partition, records=batch)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

    async def _ask(self, api_key: ApiKey, version: int, request: object, error_of: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = await self.connection.ask(api_key, version, request)
            error = error_of(answer)
            if not error:
                return answer
            if error not in _NOT_YET or time.monotonic() > deadline:
                raise RuntimeError(f"{api_key.name} was answered with {Error(error).name}")
            await asyncio.sleep(_ASK_AGAIN_S)
