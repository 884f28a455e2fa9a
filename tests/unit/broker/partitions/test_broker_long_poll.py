"""Fetches that wait are answered when there are enough bytes that they may read, and not before (virtual time)."""

import asyncio
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from broker_transaction_samples import (
    TOPIC,
    VERSION_2,
    Broker,
    Client,
    eventually,
    passed,
    plain,
    produced,
    simulated,
)

from ottla.broker.handlers.fetch import fetch
from ottla.broker.network.dispatch import Call
from ottla.broker.partitions.waiters import Waiter
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.frame import decode_request, encode_request

WAIT_MS = 30_000
BIG = "x" * 2000
VERSION = 12
WAYS = [False, True] if find_spec("ottla.broker.fastpath") else [False]
both_ways = pytest.mark.parametrize("short", WAYS, ids=["long way", "short way"][: len(WAYS)])


class Poll:
    """One reader's long poll, the long way (`handlers/fetch`) or the short one (`fetch_lane`)."""

    def __init__(self, broker: Broker, *, short: bool, committed: bool, min_bytes: int, offset: int = 0) -> None:
        self._broker = broker
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        self._request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        given = self._by_lane() if short else self._by_handler()
        if isinstance(given, Waiter):
            given.add_done_callback(lambda _: self._answered.set_result(None))
        else:
            self._answered.set_result(None)

    def _by_lane(self) -> Any:
        from ottla.broker.fastpath.fetch_lane import FetchLanes

        lanes = FetchLanes(self._broker.node, "PLAINTEXT")
        frame = memoryview(b"".join(encode_request(self._request, VERSION, 7, "c"))[4:])
        for _ in range(2):
            lanes.learn(frame, decode_request(frame).body, VERSION)
        given = lanes.take(frame)
        assert given is not None, "the lane is open"
        return given

    def _by_handler(self) -> Any:
        connection: Any = SimpleNamespace(listener="PLAINTEXT", role="broker", peer="test")
        return fetch(self._request, Call(self._broker.node, connection, 1, VERSION, 7, "c"))

    @property
    def is_answered(self) -> bool:
        return self._answered.done()

    async def answered(self) -> int:
        """After how many milliseconds of waiting from now on."""
        before = self._broker.clock.monotonic_ms()
        await self._answered
        return self._broker.clock.monotonic_ms() - before


@both_ways
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_answers_a_reader_of_what_is_committed(short: bool, commit: bool) -> None:
    """Its records alone do not: they may not be read yet, and an answer without records would be in vain. But from
    its end on all of them count, though they were appended long ago."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        poll = Poll(broker, short=short, committed=True, min_bytes=1500)
        everything = Poll(broker, short=short, committed=False, min_bytes=1500)
        await client.write(BIG)
        await passed(1000)
        assert (poll.is_answered, everything.is_answered) == (False, True)
        await client.end(commit=commit)
        assert await poll.answered() < 1000

    simulated(scenario)


@both_ways
def test_a_transaction_that_stays_open_holds_back_what_follows_it(short: bool) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("first")
        poll = Poll(broker, short=short, committed=True, min_bytes=1)
        await produced(broker, [plain(BIG)])
        await passed(1000)
        assert not poll.is_answered
        await client.end(commit=True)
        assert await poll.answered() < 1000

    simulated(scenario)


@both_ways
def test_few_stable_bytes_do_not_answer_one_that_wants_many(short: bool) -> None:
    """The second transaction has enough of them together with the first."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        poll = Poll(broker, short=short, committed=True, min_bytes=3000)
        for number in range(2):
            await client.write(BIG)
            await client.end(commit=True)
            await eventually(broker.is_stable)
            await passed(1000)
            assert poll.is_answered == (number == 1)

    simulated(scenario)


@both_ways
@pytest.mark.parametrize("committed", [True, False])
def test_without_transactions_what_is_appended_counts_for_both(short: bool, committed: bool) -> None:
    async def scenario(broker: Broker) -> None:
        poll = Poll(broker, short=short, committed=committed, min_bytes=2500)
        await produced(broker, [plain(BIG)])
        await passed(10)
        assert not poll.is_answered
        await produced(broker, [plain(BIG)])
        await passed(10)
        assert poll.is_answered

    simulated(scenario)


@both_ways
@pytest.mark.parametrize("committed", [True, False])
def test_nothing_to_read_is_waited_for_as_long_as_the_reader_will(short: bool, committed: bool) -> None:
    async def scenario(broker: Broker) -> None:
        poll = Poll(broker, short=short, committed=committed, min_bytes=1)
        assert WAIT_MS <= await poll.answered() <= WAIT_MS + 1

    simulated(scenario)


@both_ways
def test_what_a_sync_makes_readable_counts_with_all_its_bytes(short: bool) -> None:
    """Where the topic asks for syncs, the watermark moves when one is done."""

    async def scenario(broker: Broker) -> None:
        await broker.delete_topic()
        config = CreatableTopicConfig(name="flush.messages", value="1")
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        await broker.send(CreateTopicsRequest(topics=[topic]))
        poll = Poll(broker, short=short, committed=True, min_bytes=1500)
        await produced(broker, [plain(BIG)])
        await passed(10)
        assert poll.is_answered

    simulated(scenario)


def test_a_batch_that_is_compressed_by_the_broker_counts_as_it_is_written() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.delete_topic()
        config = CreatableTopicConfig(name="compression.type", value="zstd")
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        await broker.send(CreateTopicsRequest(topics=[topic]))
        poll = Poll(broker, short=False, committed=False, min_bytes=1500)
        await produced(broker, [plain(BIG)])
        await passed(10)
        assert broker.node.partition(TOPIC, 0).log.state.size < 1500
        assert not poll.is_answered

    simulated(scenario)


@both_ways
def test_what_goes_on_in_a_later_segment_is_not_waited_for(short: bool) -> None:
    """An answer ends with its segment. To wait until that has more would be to wait for ever."""

    async def scenario(broker: Broker) -> None:
        await produced(broker, [plain("old")])
        broker.node.partition(TOPIC, 0).log.roll()
        await produced(broker, [plain("new")])
        for offset, at_once in ((0, True), (1, False)):
            poll = Poll(broker, short=short, committed=False, min_bytes=1 << 20, offset=offset)
            assert poll.is_answered == at_once

    simulated(scenario)
