"""The lag of a group in records and in time.

Rule 1: in records, the distance from the committed offset to the end; offset gaps count.
Rule 2: in time, the age of the first record that the group has not consumed. If only transaction markers are left,
        there is no lag in time.
"""

from collections.abc import Mapping
from typing import Final

from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, Consumer, OnFailure, Start
from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import TimedOut

POLL_MS: Final = 100
LOOK_BYTES_MAX: Final = 64 * 1024  # One batch of most producers; more of a partition is not needed.


async def ages_ms(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition, the age of the first record at or after an offset. Partitions without such a record, or without a
    timestamp, are absent. Raises ClientError if the records cannot be read."""
    clock = client.ports.clock
    ages: dict[TopicPartition, int] = {}
    if not offsets:
        return ages
    deadline_ms = clock.monotonic_ms() + client.api_timeout_ms
    async with Consumer(
        client,
        on_failure=OnFailure.GIVE,
        reset=BEGINNING,
        sessions=False,
        fetch_wait_ms_max=POLL_MS,
        partition_bytes_max=LOOK_BYTES_MAX,
    ) as consumer:
        await consumer.assign({partition: Start(offset=offset) for partition, offset in offsets.items()})
        looking = dict.fromkeys(offsets)
        while looking:
            for record in await consumer.poll(timeout_ms=POLL_MS):
                partition = TopicPartition(record.topic, record.partition)
                if partition in looking:
                    looking.pop(partition)
                    consumer.pause(partition)
                    if record.timestamp >= 0:
                        ages[partition] = max(0, clock.wall_ms() - record.timestamp)
            for partition in list(looking):
                end = consumer.end(partition)
                if end is not None and consumer.position(partition) >= end:
                    looking.pop(partition)
            if looking and clock.monotonic_ms() > deadline_ms:
                broker = (await client.brokers.any()).address
                raise TimedOut(broker, f"Fetch of {next(iter(looking))}", client.api_timeout_ms)
    return ages
