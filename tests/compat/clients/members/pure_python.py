"""kafka-python. Its listeners run on a thread of its own, beside whoever polls: they may hear that a partition goes
while records of it are on their way out of a poll."""

from collections.abc import Iterable, Mapping
from threading import current_thread, main_thread
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import RebalanceInProgressError

from members.interface import BATCH, HEARTBEAT_MS, POLL_S, TIMEOUT_S, Joining, Listener, Polled

PROTOCOLS = {"range": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


class Ear(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Commits have to be awaited, so the listener's part is done by a member that can."""

    def __init__(self, member: "PureMember", listener: Listener) -> None:
        self._member, self._listener = member, listener

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._listener.assigned([one.partition for one in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._listener.revoked([one.partition for one in revoked])
        await self._member.commit_collected()

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._listener.lost([one.partition for one in lost])


class PureMember:
    def __init__(self, joining: Joining, listener: Listener) -> None:
        self._topic, self._listener = joining.topic, listener
        self._collected: dict[int, int] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            group_instance_id=joining.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=joining.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=[PROTOCOLS[joining.protocol]],
        )
        self._consumer.subscribe([self._topic], listener=Ear(self, listener))
        self._consumer.partitions_for_topic(self._topic)  # One that does not know them yet would join twice.

    def poll(self) -> list[Polled]:
        """Joining gets time of its own: a poll that ends in the midst of it may lose the assignment that comes next."""
        coordinator = self._consumer._coordinator
        if coordinator.need_rejoin():
            coordinator.poll(timeout_ms=TIMEOUT_S * 1000)
        found = self._consumer.poll(timeout_ms=POLL_S * 1000, max_records=BATCH)
        polled = [Polled(one.partition, one.offset, one.value.decode()) for some in found.values() for one in some]
        self._listener.polled(polled)
        return polled

    def commit(self, offsets: Mapping[int, int]) -> None:
        """At once, or by the listener that called for it."""
        if current_thread() is not main_thread():
            self._collected |= offsets
            return
        while offsets:
            try:
                self._consumer.commit(_positions(self._topic, offsets), timeout_ms=TIMEOUT_S * 1000)
                return
            except RebalanceInProgressError:
                # Another member came or went meanwhile. What goes with that is committed by the listener.
                self._consumer._coordinator.poll(timeout_ms=TIMEOUT_S * 1000)
                kept = {one.partition for one in self._consumer.assignment()}
                offsets = {partition: offset for partition, offset in offsets.items() if partition in kept}

    async def commit_collected(self) -> None:
        collected, self._collected = self._collected, {}
        if collected:
            await self._consumer.commit_async(_positions(self._topic, collected))

    def metadata(self) -> Any:
        return self._consumer.group_metadata()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class PureWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=1, reconnect_backoff_max_ms=200
        )
        self._producer.init_transactions()
        self._unanswered: list[Any] = []

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str) -> None:
        self._unanswered.append(self._producer.send(topic, value.encode()))

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_S)
        unanswered, self._unanswered = self._unanswered, []
        for one in unanswered:
            one.get(TIMEOUT_S)

    def send_offsets(self, topic: str, offsets: Mapping[int, int], metadata: Any) -> None:
        self._producer.send_offsets_to_transaction(_positions(topic, offsets), metadata)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(TIMEOUT_S)


def join(joining: Joining, listener: Listener) -> PureMember:
    return PureMember(joining, listener)


def writer(bootstrap: str, transactional_id: str) -> PureWriter:
    return PureWriter(bootstrap, transactional_id)


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[str] = []
    try:
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            values += [one.value.decode() for some in consumer.poll(POLL_S * 1000).values() for one in some]
    finally:
        consumer.close()
    return values


def _positions(topic: str, offsets: Mapping[int, int]) -> dict[Any, Any]:
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()
    }
