"""Topics of the examples: made, and read to their ends."""

from collections.abc import AsyncIterator, Iterable, Mapping

from ottla.client import BEGINNING, Admin, Client, Consumer, NewTopic, Received, TopicPartition, settled
from ottla.client.offsets import LATEST, list_offsets

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
"""Retention goes by the time of arrival. When things happened is a field of theirs, and may be long ago."""


async def create_topics(client: Client, partitions: int, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Topics with their settings. Raises ClientError."""
    made = [NewTopic(name, partitions, 1, dict(settings)) for name, settings in topics.items()]
    settled(await Admin(client).create_topics(made))


async def ends(client: Client, topics: Iterable[str], partitions: int) -> dict[TopicPartition, int]:
    """Where the committed records of each partition end."""
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    found = await list_offsets(client, dict.fromkeys(places, LATEST), committed=True)
    return {place: at.offset for place, at in found.items()}


async def committed_records(client: Client, topics: Iterable[str], partitions: int) -> AsyncIterator[list[Received]]:
    """All that is there and committed now."""
    until = await ends(client, topics, partitions)
    async with Consumer(client, committed=True) as consumer:
        await consumer.assign(dict.fromkeys(until, BEGINNING))
        while any(consumer.position(place) < end for place, end in until.items()):
            yield await consumer.poll(records_max=5_000, timeout_ms=200)


async def read_on(client: Client, topics: Iterable[str], partitions: int) -> AsyncIterator[list[Received]]:
    """What is committed now, and then what comes, for as long as somebody asks."""
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    async with Consumer(client, committed=True) as consumer:
        await consumer.assign(dict.fromkeys(places, BEGINNING))
        while True:
            yield await consumer.poll()
