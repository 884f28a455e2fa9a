"""Idempotent producers: what was sent twice is there once, what is missing is noticed, across restarts too."""

from pathlib import Path

import pytest
from drivers import DRIVERS, Driver, Sent
from kafka import KafkaProducer
from nodes.ottla_node import PATIENCE_S, running_node
from nodes.topics import Server, Topics
from nodes.wire import Wire, batch_of

from ottla.wire.errors import Error

T = 1_700_000_000_000


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
def test_idempotent_producer_of_every_client(server: Server, topics: Topics, driver: Driver) -> None:
    topic = topics.create(server)
    records = [Sent(None, b"%d" % number, T) for number in range(100)]
    assert driver.produce(server.bootstrap, topic, records, idempotent=True) == list(range(100))
    assert [one.as_sent for one in driver.consume(server.bootstrap, topic, 100)] == records


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_kafka_python_keeps_the_order_with_several_requests_under_way(
    server: Server, topics: Topics, in_flight: int
) -> None:
    topic = topics.create(server)
    producer = KafkaProducer(
        bootstrap_servers=server.bootstrap,
        enable_idempotence=True,
        max_in_flight_requests_per_connection=in_flight,
        batch_size=256,
    )
    sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(500)]
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(500))
    producer.close()
    (confluent,) = [one for one in DRIVERS if one.name == "confluent-kafka"]
    read = confluent.consume(server.bootstrap, topic, 500)
    assert [one.value for one in read] == [b"%d" % number for number in range(500)]


def test_batch_sent_again_is_answered_with_its_first_offset(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Wire(server.bootstrap) as wire:
        producer_id = wire.new_producer_id()
        batches = [
            batch_of([b"a", b"b"], producer_id=producer_id, epoch=0, sequence=2 * number, timestamp=T)
            for number in range(7)
        ]
        assert [wire.produce(topic, batch).base_offset for batch in batches] == [0, 2, 4, 6, 8, 10, 12]
        again = [wire.produce(topic, batch) for batch in batches[2:]]
        assert [(answer.error_code, answer.base_offset) for answer in again] == [
            (0, offset) for offset in range(4, 14, 2)
        ]
        # Only the last five are remembered: an older one cannot be told from a gap.
        assert wire.produce(topic, batches[0]).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_in_the_sequence_is_refused(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Wire(server.bootstrap) as wire:
        producer_id = wire.new_producer_id()
        assert wire.produce(topic, batch_of([b"a"], producer_id=producer_id, epoch=0, sequence=0)).error_code == 0
        ahead = wire.produce(topic, batch_of([b"c"], producer_id=producer_id, epoch=0, sequence=2))
        assert ahead.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        new_epoch = wire.produce(topic, batch_of([b"b"], producer_id=producer_id, epoch=1, sequence=1))
        assert new_epoch.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce(topic, batch_of([b"b"], producer_id=producer_id, epoch=1, sequence=0)).base_offset == 1
        old_epoch = wire.produce(topic, batch_of([b"b"], producer_id=producer_id, epoch=0, sequence=1))
        assert old_epoch.error_code == Error.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_producers_are_known_after_a_restart(tmp_path: Path, topics: Topics, how: str) -> None:
    with running_node(tmp_path) as node:
        topic = topics.create(node)
        with Wire(node.bootstrap) as wire:
            producer_id = wire.new_producer_id()
            batch = batch_of([b"a", b"b"], producer_id=producer_id, epoch=3, sequence=0)
            assert wire.produce(topic, batch).base_offset == 0
            assert wire.produce(topic, batch_of([b"other"])).base_offset == 2
        getattr(node, how)()
        node.start()
        with Wire(node.bootstrap) as wire:
            again = wire.produce(topic, batch)
            assert (again.error_code, again.base_offset) == (0, 0)
            gap = wire.produce(topic, batch_of([b"d"], producer_id=producer_id, epoch=3, sequence=3))
            assert gap.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert wire.produce(topic, batch_of([b"c"], producer_id=producer_id, epoch=3, sequence=2)).base_offset == 3
            assert wire.new_producer_id() > producer_id, "an id that was given out is never given out again"
