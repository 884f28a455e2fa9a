"""aiokafka. Its tasks run while one of the calls here does, on one loop for all of them."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from members.interface import BATCH, HEARTBEAT_MS, POLL_S, TIMEOUT_S, Joining, Listener, Polled

PROTOCOLS = {
    "range": RangePartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
_runner = asyncio.Runner()


class Ear(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits have to be awaited, so the listener's part is done by a member that can."""

    def __init__(self, member: "AioMember", listener: Listener) -> None:
        self._member, self._listener = member, listener

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._listener.assigned([one.partition for one in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._listener.revoked([one.partition for one in revoked])
        await self._member.commit_collected()


class AioMember:
    def __init__(self, joining: Joining, listener: Listener) -> None:
        self._topic, self._group, self._listener = joining.topic, joining.group, listener
        self._collected: dict[int, int] = {}
        _runner.run(self._start(joining, listener))

    async def _start(self, joining: Joining, listener: Listener) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            group_instance_id=joining.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=joining.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[PROTOCOLS[joining.protocol]],
        )
        self._consumer.subscribe([self._topic], listener=Ear(self, listener))
        await self._consumer.start()

    def poll(self) -> list[Polled]:
        return _runner.run(self._poll())

    async def _poll(self) -> list[Polled]:
        """The listener is told before another task may run."""
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        polled = [Polled(one.partition, one.offset, one.value.decode()) for some in found.values() for one in some]
        self._listener.polled(polled)
        return polled

    def commit(self, offsets: Mapping[int, int]) -> None:
        """At once, or by the listener that called for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            _runner.run(self._consumer.commit(_positions(self._topic, offsets)))
        else:
            self._collected |= offsets

    async def commit_collected(self) -> None:
        collected, self._collected = self._collected, {}
        if collected:
            await self._consumer.commit(_positions(self._topic, collected))

    def metadata(self) -> Any:
        return self._group

    def close(self) -> None:
        _runner.run(self._consumer.stop())


class AioWriter:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._unanswered: list[Any] = []
        _runner.run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=1)
        await self._producer.start()

    def begin(self) -> None:
        _runner.run(self._producer.begin_transaction())

    def send(self, topic: str, value: str) -> None:
        self._unanswered.append(_runner.run(self._producer.send(topic, value.encode())))

    def flush(self) -> None:
        unanswered, self._unanswered = self._unanswered, []
        for one in unanswered:
            _runner.run(asyncio.wait_for(one, TIMEOUT_S))

    def send_offsets(self, topic: str, offsets: Mapping[int, int], metadata: Any) -> None:
        _runner.run(self._producer.send_offsets_to_transaction(_positions(topic, offsets), metadata))

    def commit(self) -> None:
        _runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        _runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        _runner.run(self._producer.stop())


def join(joining: Joining, listener: Listener) -> AioMember:
    return AioMember(joining, listener)


def writer(bootstrap: str, transactional_id: str) -> AioWriter:
    return AioWriter(bootstrap, transactional_id)


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    return _runner.run(_read(bootstrap, TopicPartition(topic, 0), isolation))


async def _read(bootstrap: str, partition: Any, isolation: str) -> list[str]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    await consumer.start()
    values: list[str] = []
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            values += [one.value.decode() for some in found.values() for one in some]
    finally:
        await consumer.stop()
    return values


def _positions(topic: str, offsets: Mapping[int, int]) -> dict[Any, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
