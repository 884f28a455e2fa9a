"""confluent-kafka, that is librdkafka."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from members.interface import BATCH, HEARTBEAT_MS, POLL_S, TIMEOUT_S, Joining, Listener, Polled

QUIET = {"log_level": 0}
PATIENT: dict[str, Any] = {"reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none"}
"""A client that loses its only broker would begin again from its bootstrap servers, with a new handle for the broker;
the old one stays the group's coordinator, and a transaction waits there for its offsets for ever."""
PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class RdMember:
    def __init__(self, joining: Joining, listener: Listener) -> None:
        self._topic, self._listener = joining.topic, listener
        config: dict[str, Any] = {
            "bootstrap.servers": joining.bootstrap,
            "group.id": joining.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        if joining.protocol != "consumer":
            config |= {"session.timeout.ms": joining.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
        if joining.instance_id is not None:
            config["group.instance.id"] = joining.instance_id
        self._consumer = Consumer(config | PROTOCOLS[joining.protocol] | QUIET | PATIENT)
        self._consumer.subscribe(
            [self._topic],
            on_assign=_told(listener.assigned),
            on_revoke=_told(listener.revoked),
            on_lost=_told(listener.lost),
        )

    def poll(self) -> list[Polled]:
        """One by one: partitions may go between two records, and the listener must know of the first by then."""
        polled: list[Polled] = []
        message = self._consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                value = (message.value() or b"").decode()
                polled.append(Polled(message.partition() or 0, message.offset() or 0, value))
                self._listener.polled(polled[-1:])
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
            message = self._consumer.poll(0) if len(polled) < BATCH else None
        return polled

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._consumer.commit(offsets=_positions(self._topic, offsets), asynchronous=False)

    def metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


class RdWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1}
        self._producer = Producer(config | QUIET | PATIENT)
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value.encode())

    def flush(self) -> None:
        if self._producer.flush(TIMEOUT_S):
            raise TimeoutError("records were not answered")

    def send_offsets(self, topic: str, offsets: Mapping[int, int], metadata: Any) -> None:
        self._producer.send_offsets_to_transaction(_positions(topic, offsets), metadata, TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        """Nothing is kept open that the end of the process would not close."""


def join(joining: Joining, listener: Listener) -> RdMember:
    return RdMember(joining, listener)


def writer(bootstrap: str, transactional_id: str) -> RdWriter:
    return RdWriter(bootstrap, transactional_id)


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    config = {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation}
    consumer = Consumer(config | QUIET | {"enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"{topic}: {len(values)} records, then neither another nor the end")
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def _positions(topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]


def _told(tell: Callable[[Sequence[int]], None]) -> Callable[[Consumer, list[TopicPartition]], None]:
    return lambda _, partitions: tell([one.partition for one in partitions])
