"""Ottla's client while its node goes away and comes back at the same address."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes.ottla_node import OttlaNode, running_node
from peers.clusters import with_client

from ottla.client.admin import Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, Consumer
from ottla.client.core.names import TopicPartition
from ottla.client.producer import Producer

COUNT = 3_000


def _stopped(node: OttlaNode) -> None:
    node.stop()
    node.start()


def _killed(node: OttlaNode) -> None:
    node.kill()
    node.start()


@pytest.mark.parametrize("restart", [_stopped, _killed])
def test_every_record_arrives_once_and_in_order_across_a_restart(
    tmp_path: Path, restart: Callable[[OttlaNode], None]
) -> None:
    """I1, I3, I9: what was sent while nobody was there is kept, sent again, and stored once."""
    partition = TopicPartition("t", 0)

    async def produce(client: Client) -> list[int]:
        async with Producer(client, linger_ms=1, batch_bytes=2_000) as producer:
            sent = []
            for number in range(COUNT):
                sent.append(producer.send("t", b"%d" % number))
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            return [delivery.offset for delivery in await asyncio.gather(*sent)]

    async def consume(client: Client) -> list[int]:
        async with Consumer(client) as consumer:
            await consumer.assign({partition: BEGINNING})
            received: list[int] = []
            while len(received) < COUNT:
                received += [int(record.value) for record in await consumer.poll(timeout_ms=20_000)]
            return received

    with running_node(tmp_path / "node") as node:

        async def work(client: Client) -> None:
            settled(await Admin(client).create_topics([NewTopic("t", 1)]))
            both = asyncio.gather(produce(client), consume(client))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(restart, node)
            offsets, received = await both
            assert offsets == list(range(COUNT))
            assert received == list(range(COUNT))

        with_client(node.bootstrap, work)
