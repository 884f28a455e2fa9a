"""Talk to a real broker through librdkafka: make topics, produce batch by batch, read everything back."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

QUIET = {"log_level": 0}
"""Nodes are killed here on purpose: that a client lost its connection is no news."""

TIMEOUT_S = 30

NOT_YET = {
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,  # What librdkafka makes of a partition without a leader.
}

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]


class Draft(NamedTuple):
    """A record before it has an offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Read(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Found(NamedTuple):
    """What a broker answered to a look-up by time; both -1 where it found nothing."""

    offset: int
    timestamp: int


class Client:
    """Everything the tests ask of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap} | QUIET
        self._admin = AdminClient(self._bootstrap)

    def create_topics(self, topics: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int]) -> None:
        """Make topics with the given settings; one partition where nothing else is said.

        Back once each partition answers: Kafka tells of a topic a moment before it leads its partitions.
        """
        new = [NewTopic(name, partitions.get(name, 1), 1, config=dict(given)) for name, given in topics.items()]
        _wait_all(self._admin.create_topics(new))
        made = [TopicPartition(one.topic, index) for one in new for index in range(one.num_partitions)]
        self.list_offsets({partition: OffsetSpec.latest() for partition in made})

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change some settings of a topic and leave the others."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait_all(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start offset."""
        _wait_all(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def producer(self, **settings: Any) -> Producer:
        """A producer that sends when told to flush, so that one flush is one batch per partition."""
        return Producer(self._bootstrap | {"linger.ms": 60_000} | {k.replace("_", "."): v for k, v in settings.items()})

    def list_offsets(
        self, asked: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
    ) -> dict[tuple[str, int], Found]:
        """One answer per partition."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[tuple[str, int], Found]:
            answers = self._admin.list_offsets(dict(asked), isolation_level=level)
            results = {partition: future.result(TIMEOUT_S) for partition, future in answers.items()}
            return {
                (partition.topic, partition.partition): Found(result.offset, result.timestamp)
                for partition, result in results.items()
            }

        return _persistently(ask)

    def read_all(
        self, partitions: Sequence[tuple[str, int]], *, committed: bool = False
    ) -> dict[tuple[str, int], list[Read]]:
        """Every record of the partitions, from the log start to the high watermark or the last stable offset."""
        consumer = Consumer(
            self._bootstrap
            | {
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        starts = self.list_offsets({TopicPartition(*each): OffsetSpec.earliest() for each in partitions})
        consumer.assign([TopicPartition(*each, starts[each].offset) for each in partitions])
        records: dict[tuple[str, int], list[Read]] = {each: [] for each in partitions}
        unfinished = set(partitions)
        try:
            while unfinished:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise TimeoutError(f"no record and no end of partition from {sorted(unfinished)}")
                _take(message, records, unfinished)
        finally:
            consumer.close()
        return records


def send(producer: Producer, topic: str, batch: Iterable[Draft], partition: int = 0) -> None:
    """Send one batch and wait until it is acknowledged."""
    failures: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for draft in batch:
        producer.produce(
            topic,
            value=draft.value,
            key=draft.key,
            partition=partition,
            timestamp=draft.timestamp,
            headers=list(draft.headers),
            on_delivery=delivered,
        )
    left = producer.flush(TIMEOUT_S)
    if left or failures:
        raise AssertionError(f"{topic}-{partition}: {left} records not delivered, failures: {failures}")


def _take(message: Message, records: dict[tuple[str, int], list[Read]], unfinished: set[tuple[str, int]]) -> None:
    partition = (message.topic(), message.partition())
    error = message.error()
    if error is not None:
        if error.name() != "_PARTITION_EOF":
            raise AssertionError(f"{partition}: {error}")
        unfinished.discard(partition)
        return
    records[partition].append(
        Read(
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )
    )


def _persistently(ask: Callable[[], T]) -> T:
    """Ask again while the broker says so: one that has just started learns in steps what it leads."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as refused:
            if refused.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _wait_all(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)
