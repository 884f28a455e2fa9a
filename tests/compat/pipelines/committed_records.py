"""What a reader of committed records sees in a topic, by another project's client."""

import asyncio
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from ottla.client import Client
from ottla.client import TopicPartition as Place
from ottla.client.group_offsets import Committed, committed_offsets, settled_offsets
from ottla.client.offsets import LATEST, list_offsets


def committed(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """All records, when no transaction is open any more."""
    asyncio.run(_all_ended(bootstrap, [Place(topic, n) for n in range(partitions)]))
    return committed_now(bootstrap, topic, partitions)


def committed_now(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """All records up to the first transaction that is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
        found: list[Message] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(10)
            assert message is not None, f"{topic}: neither records nor the end"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
        return found
    finally:
        consumer.close()


def marker(bootstrap: str, group_id: str, topic: str, *, stable: bool = True) -> Committed | None:
    """Stable: wait until the transaction under way, if there is one, has ended. Kafka answers a commit before that."""

    async def ask() -> Any:
        async with Client(bootstrap) as client:
            if stable:
                return (await settled_offsets(client, [group_id], [Place(topic, 0)]))[group_id]
            return (await committed_offsets(client, [group_id]))[group_id]

    offsets = asyncio.run(ask())
    assert isinstance(offsets, dict), offsets
    return offsets.get(Place(topic, 0))


async def _all_ended(bootstrap: str, places: list[Place]) -> None:
    async with Client(bootstrap) as client:
        while True:
            ends = await list_offsets(client, dict.fromkeys(places, LATEST))
            if await list_offsets(client, dict.fromkeys(places, LATEST), committed=True) == ends:
                return
            await asyncio.sleep(0.02)
