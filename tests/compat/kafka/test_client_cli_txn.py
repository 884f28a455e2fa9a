"""`ottla txn` against a cluster, with transactions of librdkafka's producer and one that no coordinator knows."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from nodes.ottla_node import wait_until
from nodes.wire import Wire
from peers.clusters import fresh
from peers.commands import Ottla

from ottla.kernel import Record, build_batch
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PATIENCE_S = 240
VERIFICATION = "transaction.partition.verification.enable"
UNVERIFIED_PRODUCE = 11  # From 12 on the broker adds the partition to the transaction by itself.


def began(ottla: Ottla, topic: str) -> tuple[str, Producer]:
    """A producer with a transaction that has a record in partition 0."""
    name = fresh("cli-txn")
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return name, producer


def described(ottla: Ottla, name: str) -> Any:
    (one,) = ottla("txn", "describe", name, "--json").lines
    return one


def committed(ottla: Ottla, topic: str) -> bytes:
    return ottla("consume", topic, "--committed", "-q").out


def test_transaction_is_listed_described_and_aborted(ottla: Ottla) -> None:
    topic = ottla.topic("cli-open", "-p", 1)
    before_ms = int(time.time() * 1000)
    name, producer = began(ottla, topic)
    one = described(ottla, name)
    assert (one["state"], one["timeout_ms"]) == ("Ongoing", 60_000)
    assert one["partitions"] == [{"topic": topic, "partition": 0}]
    assert one["started"] >= before_ms
    listed = ottla("txn", "list", "--state", "ongoing", "--producer-id", one["producer_id"], "--json").lines
    assert [each["transactional_id"] for each in listed] == [name]
    assert ottla("txn", "list", name, "--state", "CompleteCommit", "--json").lines == []
    assert ottla("txn", "list", name, "--longer-than", "1h", "--json").lines == []
    assert ottla("txn", "list", name, "--longer-than", "0s", "--json").lines[0]["coordinator"] == one["coordinator"]
    shown = ottla("txn", "describe", name).out.decode()
    assert f"{name}  Ongoing for " in shown
    assert f"{topic}:0" in shown
    assert ottla("txn", "list", name).out.decode().splitlines()[1].split()[:2] == [name, "Ongoing"]

    aborted = ottla("txn", "abort", name, "--yes")
    assert aborted.code == 0, aborted.err
    assert aborted.out.startswith(f"{name} aborted; its producer {one['producer_id']} ".encode())
    assert described(ottla, name)["state"] != "Ongoing"
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert ottla.produce(topic, b"after\n").code == 0
    assert committed(ottla, topic) == b"after\n"
    again = ottla("txn", "abort", name, "--yes")
    assert (again.code, again.out) == (0, b"")
    assert again.err == f"nothing to abort: transactional id {name} has no open transaction\n"


def test_unknown_transactional_id_is_refused_with_what_to_do(ottla: Ottla) -> None:
    """Fencing would make it."""
    for command in ("describe", "abort"):
        missing = ottla("txn", command, "absent")
        assert missing.code == 1
        assert f"transactional id absent, broker {ottla.bootstrap}: " in missing.err
        assert "`ottla txn list`" in missing.err
    assert ottla("txn", "list", "absent", "--json").lines == []


def test_transaction_that_its_coordinator_ends_is_not_torn_apart(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker in one partition alone would abort a part of what may commit in the others."""
    topic = ottla.topic("cli-cared", "-p", 1)
    name, producer = began(ottla, topic)
    (one,) = ottla("txn", "describe", "--topic", topic, "--json").lines
    assert (one["start_offset"], one["transactional_id"], one["hanging"]) == (0, name, False)
    monkeypatch.setenv("COLUMNS", "120")
    assert f"open from 0, {name}" in ottla("txn", "describe", "--topic", topic).out.decode()
    assert ottla("txn", "list", "--hanging", "--topic", topic, "--longer-than", "0s", "--json").lines == []
    refused = ottla("txn", "abort", "--topic", f"{topic}:0", "--start-offset", 0, "--yes")
    assert refused.code == 1
    assert f"is Ongoing for transactional id {name}" in refused.err
    assert f"`ottla txn abort {name}`" in refused.err
    elsewhere = ottla("txn", "abort", "--topic", f"{topic}:0", "--start-offset", 7, "--yes")
    assert elsewhere.code == 1
    assert f"Open there: 0 of producer {one['producer_id']}" in elsewhere.err
    producer.commit_transaction(PATIENCE_S)  # Decided; the marker follows.
    wait_until(lambda: committed(ottla, topic) == b"open\n", "the transaction is committed")


@pytest.fixture
def unverified(ottla: Ottla) -> Iterator[None]:
    """Brokers that take a transaction's records unasked, as they did before Kafka 3.6: so transactions came to hang."""
    assert ottla("config", "set", "broker", f"{VERIFICATION}=false").code == 0
    yield
    assert ottla("config", "unset", "broker", VERIFICATION).code == 0


@pytest.mark.usefixtures("unverified")
def test_hanging_transaction_is_found_and_aborted(ottla: Ottla) -> None:
    topic = ottla.topic("cli-hangs", "-p", 2)
    producer_id = 900_000_000 + time.time_ns() % 1_000_000
    batch = build_batch(
        [Record(0, 5_000, None, b"stuck", ())],
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id=fresh("cli-lost"),
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=batch)])],
    )

    def appended() -> bool:
        with Wire(ottla.bootstrap) as wire:
            answer = wire.call(request, UNVERIFIED_PRODUCE)
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    wait_until(appended, "the setting has reached the broker")
    assert ottla.produce(topic, b"behind\n", "--partition", 1).code == 0
    assert committed(ottla, topic) == b""

    (found,) = ottla("txn", "list", "--hanging", "--topic", topic, "--json").lines
    assert (found["partition"], found["start_offset"], found["producer_id"]) == (1, 0, producer_id)
    assert (found["transactional_id"], found["hanging"]) == (None, True)
    assert str(producer_id).encode() in ottla("txn", "list", "--hanging", "--topic", topic).out
    aborted = ottla("txn", "abort", "--topic", f"{topic}:1", "--producer-id", producer_id, "--yes")
    assert aborted.code == 0, aborted.err
    assert aborted.out == f"aborted the transaction of producer {producer_id} from offset 0 in {topic}-1\n".encode()
    assert committed(ottla, topic) == b"behind\n"
    nothing = ottla("txn", "list", "--hanging", "--topic", topic)
    assert (nothing.code, nothing.err) == (0, "no transaction hangs\n")
