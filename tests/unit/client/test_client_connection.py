"""A connection, the pool of them, and what the client knows of the cluster."""

import asyncio
from random import Random

import pytest
from client_fakes import CUT, SILENCE, FakeBroker, FakeNetwork, simulated

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.errors import Misused
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import LATEST
from ottla.rpc.errors import BadAnswer, Declined, Disconnected, TimedOut, Unreachable, Unsupported
from ottla.rpc.ports import Ports
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import run
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.api.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.errors import Error


def test_first_request_asks_for_versions_and_the_rest_uses_them() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.versions[ApiKey.METADATA] = (0, 9)
        await client.metadata.all_topics()
        assert [(request.api_key, request.version) for request in broker.requests] == [
            (ApiKey.API_VERSIONS, 4),
            (ApiKey.METADATA, 9),
        ]

    simulated(work)


def test_server_with_an_older_api_versions_is_asked_again() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        known = [ApiVersion(api_key=18, min_version=0, max_version=2)]
        broker.answer_once(
            ApiKey.API_VERSIONS,
            lambda _: ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=known),
        )
        await client.metadata.all_topics()
        assert [request.version for request in broker.asked(ApiKey.API_VERSIONS)] == [4, 2]

    simulated(work)


def test_request_the_broker_does_not_have_is_named() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        del broker.apis[ApiKey.METADATA]
        with pytest.raises(Unsupported, match=r"broker.test:9092: METADATA is needed in version 0 to 13; it has none"):
            await client.metadata.all_topics()

    simulated(work)


def test_nobody_listening_is_told_with_every_address_and_tried_again_later() -> None:
    network, clock = FakeNetwork(), SimClock()

    async def main(_: object) -> None:
        ports = Ports(network, clock, Random(1))
        async with Client("a.test:1,b.test:2", ports=ports, api_timeout_ms=5_000) as client:
            with pytest.raises(Unreachable, match=r"a.test:1: nothing listens there; b.test:2: nothing listens there"):
                await client.persist(client.brokers.any)
            assert 6 < network.attempts < 30  # Patient, not frantic.
            network.brokers["b.test", 2] = FakeBroker({})
            assert str((await client.brokers.any()).address) == "b.test:2"

    run(main, 1, clock)


def test_answer_that_does_not_come_closes_the_connection_and_a_new_one_is_made() -> None:
    """Whatever came later could be taken for the answer to something else."""

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.METADATA, lambda _: SILENCE)
        with pytest.raises(TimedOut, match=r"broker.test:9092: no answer to Metadata in 3 s"):
            await client.metadata.all_topics()
        assert list(await client.metadata.all_topics()) == ["t"]
        assert len(broker.connections) == 2

    simulated(work, request_timeout_ms=3_000)


def test_all_that_waits_on_a_broken_connection_fails() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        connection = await client.brokers.any()
        broker.answer_once(ApiKey.METADATA, lambda _: SILENCE, lambda _: CUT)
        calls = [connection.call(MetadataRequest(topics=None), timeout_ms=9_000) for _ in range(2)]
        failures = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(failure) for failure in failures] == [Disconnected, Disconnected]
        assert not connection.usable

    simulated(work)


def test_caller_that_gives_up_leaves_the_connection_to_the_others() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        connection = await client.brokers.any()
        broker.answer_once(ApiKey.METADATA, lambda _: SILENCE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.call(MetadataRequest(topics=None), timeout_ms=9_000), 0.1)
        assert len((await connection.call(MetadataRequest(topics=None), timeout_ms=9_000)).brokers) == 1

    simulated(work)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x15\x03\x03\0\2\2\x46",  # A TLS alert.
        b"\0\0\0\4\0\0\0\x63",  # Answers request 99.
        b"\0\0\0\5\0\0\0\1\xff",  # Answers request 1 with a message that ends early.
    ],
)
def test_answer_that_makes_no_sense_is_told_as_that(nonsense: bytes) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.METADATA, lambda _: nonsense)
        with pytest.raises(BadAnswer, match=r"broker.test:9092: the answer makes no sense"):
            await client.metadata.all_topics()

    simulated(work)


def test_one_connection_is_shared_by_all_that_need_it_at_once() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        await asyncio.gather(*(client.brokers.any() for _ in range(5)))
        assert len(broker.connections) == 1

    simulated(work)


def test_unknown_topic_is_waited_for_until_it_appears() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        asyncio.get_running_loop().call_later(1, broker.topics.update, {"late": 2})
        topic = await client.metadata.topic("late", timeout_ms=3_000)
        assert len(topic.partitions) == 2
        with pytest.raises(Declined, match=r"topic nope, broker broker.test:9092: .*UNKNOWN_TOPIC_OR_PARTITION"):
            await client.metadata.topic("nope", timeout_ms=500)

    simulated(work)


def test_known_topic_is_asked_for_again_when_stale_or_old() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        for wait_s, expected in [(0, 1), (10, 1), (300, 2)]:
            await asyncio.sleep(wait_s)
            await client.metadata.refresh(["t"])
            assert len(broker.asked(ApiKey.METADATA)) == expected
        client.metadata.stale("t")
        await client.metadata.refresh(["t"])
        assert len(broker.asked(ApiKey.METADATA)) == 3

    simulated(work)


def test_question_to_a_leader_is_repeated_while_it_may_help() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        moved = ListOffsetsPartitionResponse(partition_index=0, error_code=Error.NOT_LEADER_OR_FOLLOWER)
        broker.answer_once(
            ApiKey.LIST_OFFSETS,
            lambda _: ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[moved])]),
        )
        found = await Admin(client).list_offsets({TopicPartition("t", 0): LATEST})
        assert found[TopicPartition("t", 0)].offset == 0
        assert len(broker.asked(ApiKey.METADATA)) == 2  # The error said that the leader moved.

    simulated(work)


def test_wrong_bootstrap_is_told_before_anything_is_tried() -> None:
    with pytest.raises(Misused, match=r"bootstrap 'h:x'"):
        Client("h:x")


def test_closed_client_says_so() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        await client.close()
        with pytest.raises(Disconnected, match=r"this client is closed"):
            await client.brokers.any()
        assert broker.connections == []

    simulated(work)
