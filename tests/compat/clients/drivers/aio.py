"""aiokafka."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from drivers.driver import CODECS, TIMEOUT_S, Got, Sent

LARGE = 100_000_000


class AioKafka:
    name = "aiokafka"
    codecs: tuple[str, ...] = CODECS

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[int]:
        async def produce() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == -1 else acks,
                enable_idempotence=idempotent,
                max_request_size=LARGE,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        partition=0,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                answers = [await asyncio.wait_for(future, TIMEOUT_S) for future in futures]
            finally:
                await producer.stop()
            return [answer.offset for answer in answers if answer is not None]

        return asyncio.run(produce())

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0) -> list[Got]:
        async def consume() -> list[Got]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                check_crcs=True,
                fetch_max_bytes=LARGE,
                max_partition_fetch_bytes=LARGE,
            )
            await consumer.start()
            try:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, start)
                return [_got(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)) for _ in range(count)]
            finally:
                await consumer.stop()

        return asyncio.run(consume())


def _got(record: Any) -> Got:
    headers = tuple((name, value) for name, value in record.headers)
    return Got(record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers)
