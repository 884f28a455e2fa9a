"""How old the first record is that a group has not consumed, as `ottla group describe` asks it of a client."""

import pytest
from client_fakes import Answer, FakeBroker, simulated

from ottla.cli.group.lag import ages_ms
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.kernel import NO_TIMESTAMP, Record, build_batch
from ottla.rpc.errors import Declined
from ottla.wire.api import ApiKey
from ottla.wire.errors import Error
from ottla.wire.frame import Request

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def append(broker: FakeBroker, partition: TopicPartition, timestamps: list[int]) -> None:
    records = [Record(number, timestamp, b"k", b"v", ()) for number, timestamp in enumerate(timestamps)]
    assert broker.append(*partition, build_batch(records)).error_code == 0


def test_age_is_that_of_the_record_at_the_offset() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        now_ms = client.ports.clock.wall_ms()
        append(broker, FIRST, [now_ms - 9_000, now_ms - 5_000])
        append(broker, FIRST, [now_ms - 1_000])
        append(broker, SECOND, [now_ms + 60_000])
        ages = await ages_ms(client, {FIRST: 1, SECOND: 0})
        waited_ms = client.ports.clock.wall_ms() - now_ms
        assert 5_000 <= ages[FIRST] <= 5_000 + waited_ms
        assert ages[SECOND] == 0  # A clock that runs ahead makes no record younger than now.

    simulated(work, {"t": 2})


def test_record_without_a_time_and_end_of_the_log_have_no_age() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        append(broker, FIRST, [NO_TIMESTAMP])
        append(broker, SECOND, [1_000])
        assert await ages_ms(client, {FIRST: 0, SECOND: 1}) == {}
        assert await ages_ms(client, {}) == {}

    simulated(work, {"t": 2})


def test_records_that_may_not_be_read_are_an_error_that_says_so() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        def refuse(request: Request) -> Answer:
            answer = broker.fetch(request)
            for partition in answer.responses[0].partitions:
                partition.error_code, partition.records = Error.TOPIC_AUTHORIZATION_FAILED, b""
            return answer

        append(broker, FIRST, [1_000])
        broker.apis[ApiKey.FETCH] = refuse
        with pytest.raises(Declined, match="TOPIC_AUTHORIZATION_FAILED"):
            await ages_ms(client, {FIRST: 0})

    simulated(work, {"t": 2})
