"""Keys, headers, timestamps and sizes of records, as every client sees them."""

import time

import pytest
from drivers import DRIVERS, Driver, Sent
from drivers.confluent import Confluent
from drivers.driver import CREATE_TIME, LOG_APPEND_TIME
from nodes.topics import Server, Topics
from nodes.wire import Wire, batch_of
from peers.client import Client

from ottla.kernel import Record, build_batch
from ottla.wire.errors import Error

T = 1_700_000_000_000
DEFAULT_LIMIT = 1_048_588
"""Kafka's default of max.message.bytes: a MiB and the twelve bytes before a batch's length counts."""


def batch_of_size(size: int) -> bytes:
    """One record without compression, in a batch of exactly so many bytes."""
    value = size - 100
    while True:
        batch = build_batch([Record(0, T, None, bytes(value))])
        if len(batch) == size:
            return batch
        value += size - len(batch)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
def test_timestamps_are_the_senders(server: Server, topics: Topics, driver: Driver) -> None:
    topic = topics.create(server)
    records = [Sent(None, b"v", T + delta) for delta in (0, -5_000, 7, 1)]
    driver.produce(server.bootstrap, topic, records)
    got = driver.consume(server.bootstrap, topic, len(records))
    assert [(one.timestamp, one.timestamp_type) for one in got] == [(one.timestamp, CREATE_TIME) for one in records]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
def test_timestamps_are_the_brokers_where_the_topic_says_so(server: Server, topics: Topics, driver: Driver) -> None:
    topic = topics.create(server, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    for codec in ("none", "gzip"):
        driver.produce(server.bootstrap, topic, [Sent(None, b"v", T)] * 3, codec=codec)
    after = int(time.time() * 1000)
    got = driver.consume(server.bootstrap, topic, 6)
    assert {one.timestamp_type for one in got} == {LOG_APPEND_TIME}
    assert all(before <= one.timestamp <= after for one in got)


def test_timestamp_too_far_ahead_is_refused(server: Server, topics: Topics) -> None:
    topic = topics.create(server, message_timestamp_after_max_ms="1000")
    ahead = int(time.time() * 1000) + 3_600_000
    with Wire(server.bootstrap) as wire:
        answer = wire.produce(topic, batch_of([b"v"], timestamp=ahead))
    assert answer.error_code == Error.INVALID_TIMESTAMP
    assert [one.batch_index for one in answer.record_errors] == [0]


def test_batch_of_the_largest_size_is_taken_and_one_byte_more_is_not(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Wire(server.bootstrap) as wire:
        assert wire.produce(topic, batch_of_size(DEFAULT_LIMIT)).error_code == 0
        assert wire.produce(topic, batch_of_size(DEFAULT_LIMIT + 1)).error_code == Error.MESSAGE_TOO_LARGE
    got = Confluent().consume(server.bootstrap, topic, 1)
    assert len(got[0].value or b"") > DEFAULT_LIMIT - 100


def test_refusal_of_a_large_batch_names_both_sizes_and_the_setting(ottla: Server, topics: Topics) -> None:
    """X3: who meets it must know by how much, and what to change."""
    topic = topics.create(ottla, max_message_bytes="20000")
    with Wire(ottla.bootstrap) as wire:
        answer = wire.produce(topic, batch_of_size(20_001))
    assert answer.error_code == Error.MESSAGE_TOO_LARGE
    for part in ("20001", "20000", "max.message.bytes"):
        assert part in (answer.error_message or ""), answer.error_message


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
def test_large_records_where_the_topic_allows_them(server: Server, topics: Topics, driver: Driver) -> None:
    topic = topics.create(server, max_message_bytes="20000000")
    records = [Sent(b"k", bytes([number]) * 8_000_000, T) for number in range(2)]
    driver.produce(server.bootstrap, topic, records)
    assert [one.as_sent for one in driver.consume(server.bootstrap, topic, 2)] == records


def test_reader_gets_past_a_record_larger_than_it_asks_for(server: Server, topics: Topics) -> None:
    """The first batch of an answer comes whole (KIP-74): otherwise a reader would stand before it for ever."""
    topic = topics.create(server, max_message_bytes="3000000")
    records = [Sent(None, b"a" * 2_000_000, T), Sent(None, b"b", T), Sent(None, b"c" * 2_000_000, T)]
    Confluent().produce(server.bootstrap, topic, records)
    read = Client(server.bootstrap).read_all([(topic, 0)])[topic, 0]
    assert [len(one.value or b"") for one in read] == [2_000_000, 1, 2_000_000]


def test_a_compacted_topic_wants_keys(server: Server, topics: Topics) -> None:
    topic = topics.create(server, cleanup_policy="compact")
    with pytest.raises(AssertionError, match="INVALID_RECORD"):
        Confluent().produce(server.bootstrap, topic, [Sent(None, b"v", T)])
    Confluent().produce(server.bootstrap, topic, [Sent(b"k", b"v", T)])


def test_partition_that_does_not_exist_is_refused(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Wire(server.bootstrap) as wire:
        assert wire.produce(topic, batch_of([b"v"]), partition=1).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.produce(topics.name(), batch_of([b"v"])).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
