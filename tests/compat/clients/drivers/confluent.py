"""confluent-kafka, that is librdkafka."""

from collections.abc import Sequence
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, Producer, TopicPartition

from drivers.driver import CODECS, CREATE_TIME, LOG_APPEND_TIME, TIMEOUT_S, Got, Sent

LARGE = 100_000_000


class Confluent:
    name = "confluent-kafka"
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
        partition: int | None = 0,
    ) -> list[int]:
        """Without a partition the keys choose."""
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": LARGE,
                "linger.ms": 5,
            }
        )
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset() or 0)

        for record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=-1 if partition is None else partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        unsent = producer.flush(TIMEOUT_S)
        assert not unsent, f"{unsent} records got no answer"
        if errors:
            raise AssertionError(f"{topic}: {errors[0]}")
        return offsets

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0) -> list[Got]:
        return self._consume(bootstrap, [TopicPartition(topic, 0, start)], count)

    def consume_all(self, bootstrap: str, topic: str, *, partitions: int, count: int) -> list[Got]:
        """Read so many records of all the partitions together."""
        return self._consume(bootstrap, [TopicPartition(topic, index, 0) for index in range(partitions)], count)

    def _consume(self, bootstrap: str, partitions: list[TopicPartition], count: int) -> list[Got]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.max.bytes": LARGE,
                "fetch.message.max.bytes": LARGE,
                "receive.message.max.bytes": LARGE + 1000,
            }
        )
        consumer.assign(partitions)
        got: list[Got] = []
        try:
            while len(got) < count:
                messages = consumer.consume(count - len(got), TIMEOUT_S)
                assert messages, f"{partitions[0].topic}: {len(got)} of {count} records, then none within {TIMEOUT_S} s"
                got += [_got(message) for message in messages]
        finally:
            consumer.close()
        return got


def _got(message: Message) -> Got:
    error = message.error()
    assert error is None, error
    kind, timestamp = message.timestamp()
    offset = message.offset()
    assert offset is not None
    return Got(
        offset,
        timestamp,
        LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
        message.key(),
        message.value(),
        tuple(cast(list[tuple[str, bytes | None]], message.headers() or [])),
    )
