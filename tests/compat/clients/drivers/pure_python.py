"""kafka-python."""

from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.codec import has_snappy

from drivers.driver import CODECS, TIMEOUT_S, Got, Sent

LARGE = 100_000_000


class KafkaPython:
    name = "kafka-python"
    codecs: tuple[str, ...] = tuple(codec for codec in CODECS if codec != "snappy" or has_snappy())

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            max_request_size=LARGE,
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            return [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close(TIMEOUT_S)

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0) -> list[Got]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            check_crcs=True,
            fetch_max_bytes=LARGE,
            max_partition_fetch_bytes=LARGE,
            consumer_timeout_ms=TIMEOUT_S * 1000,
        )
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, start)
            got = [_got(record) for _, record in zip(range(count), consumer, strict=False)]
        finally:
            consumer.close()
        assert len(got) == count, f"{topic}: {len(got)} of {count} records, then none within {TIMEOUT_S} s"
        return got


def _got(record: Any) -> Got:
    headers = tuple((name, value) for name, value in record.headers)
    return Got(record.offset, record.timestamp, record.timestamp_type, record.key, record.value, headers)
