"""Transactions as clients meet them, on a node in virtual time: atomic, fenced, described."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from broker_transaction_samples import (
    ID,
    TIMEOUT_MS,
    TOPIC,
    VERSION_1,
    VERSION_2,
    Broker,
    Client,
    both_versions,
    eventually,
    passed,
    simulated,
)

from ottla.broker.coordinators.markers import TxnMarker
from ottla.broker.coordinators.peers import LocalPeers
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.errors import Error, Refused

TRANSACTION_NOT_ALLOWED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_seen_whole_or_not_at_all(versions: dict[str, int], commit: bool) -> None:
    """Records of two partitions and the offsets of a group become visible together (I4, I6)."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, versions)
        await client.take_over()
        await client.write("a", "b")
        assert await client.send_offset(7) is Error.NONE
        assert (await broker.read(0), await broker.read(1), await broker.offset()) == ([], [], -1)
        assert await broker.read(0, committed=False) == ["a"]
        assert await client.end(commit=commit) is Error.NONE
        await eventually(lambda: broker.is_stable(0) and broker.is_stable(1))
        expected = (["a"], ["b"], 7) if commit else ([], [], -1)
        assert (await broker.read(0), await broker.read(1), await broker.offset()) == expected

    simulated(scenario)


@both_versions
def test_one_transaction_after_the_other(versions: dict[str, int]) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client(broker, versions)
        await client.take_over()
        for number in range(6):
            await client.write(f"{number}")
            assert await client.end(commit=number % 3 != 1) is Error.NONE
            await eventually(broker.is_stable)
        assert await broker.read() == ["0", "2", "3", "5"]

    simulated(scenario)


def test_a_reader_is_told_of_the_aborted_transactions_in_its_answer_and_of_no_later_ones() -> None:
    """Every answer would be longer than what is read, for whoever catches up with a log of many."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_1)
        await client.take_over()
        for _ in range(3):
            await client.write("a", "b")
            assert await client.end(commit=False) is Error.NONE
            await eventually(broker.is_stable)
        aborted = broker.node.partition(TOPIC, 0).log.aborted_transactions(0, 100)
        assert len(aborted) == 3
        for txn in aborted:
            wanted = FetchPartition(partition=0, fetch_offset=txn.first_offset, partition_max_bytes=1)
            topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
            answer = await broker.send(FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=1, topics=topics), 12)
            told = answer.responses[0].partitions[0].aborted_transactions
            assert [one.first_offset for one in told] == [txn.first_offset]

    simulated(scenario)


@both_versions
@pytest.mark.parametrize("slow", [0, 1])
def test_batches_of_one_connection_are_appended_in_their_order(versions: dict[str, int], slow: int) -> None:
    """The first two have to wait for the coordinator, and one of them long; the third finds the transaction open."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, versions)
        await client.take_over()
        if not client.is_version_2:
            assert await client.add(0) is Error.NONE
        asked, answered = count(), asyncio.Event()

        class SlowPeers(LocalPeers):
            async def verify_partitions(self, *given: Any) -> Mapping[TopicPartition, Error]:
                await (answered.wait() if next(asked) == slow else asyncio.sleep(0.01))
                return await super().verify_partitions(*given)

            async def add_partitions(self, *given: Any) -> None:
                await (answered.wait() if next(asked) == slow else asyncio.sleep(0.01))
                await super().add_partitions(*given)

        broker.node.peers = SlowPeers(broker.node)
        sent = [asyncio.create_task(client.send_batch(client.batch(f"{n}", n), 0)) for n in range(2)]
        await asyncio.sleep(1)
        sent.append(asyncio.create_task(client.send_batch(client.batch("2", 2), 0)))
        await asyncio.sleep(0.01)
        answered.set()
        assert await asyncio.gather(*sent) == [Error.NONE] * 3
        assert await broker.read(committed=False) == ["0", "1", "2"]

    simulated(scenario)


@both_versions
def test_markers_are_sent_to_the_leaders_until_all_have_them(versions: dict[str, int]) -> None:
    """A leader may be gone or unknown for a while; the transaction ends all the same, offsets of groups included."""

    async def scenario(broker: Broker) -> None:
        asked: list[list[TopicPartition]] = []

        class LostPeers(LocalPeers):
            async def write_markers(
                self, marker: TxnMarker, partitions: Sequence[TopicPartition]
            ) -> Mapping[TopicPartition, Refused | None]:
                asked.append(list(partitions))
                lost = Refused(Error.NOT_LEADER_OR_FOLLOWER, "nobody is there")
                if len(asked) == 1:
                    raise Refused(Error.NETWORK_EXCEPTION, "the connection ended")
                away = partitions[:1] if len(asked) == 2 else ()
                written = await super().write_markers(marker, [one for one in partitions if one not in away])
                return {**written, **dict.fromkeys(away, lost)}

        broker.node.peers = LostPeers(broker.node)
        client = Client(broker, versions)
        await client.take_over()
        await client.write("a")
        assert await client.send_offset(5) is Error.NONE
        assert await client.end(commit=True) is Error.NONE
        await eventually(lambda: len(asked) == 3 and broker.is_stable())
        assert [len(one) for one in asked] == [2, 2, 1], "what has its marker is not asked again"
        await passed(10_000)
        assert (await broker.read(), await broker.offset(), len(asked)) == (["a"], 5, 3)

    simulated(scenario)


@both_versions
def test_a_zombie_can_neither_write_nor_end(versions: dict[str, int]) -> None:
    async def scenario(broker: Broker) -> None:
        zombie, heir = Client(broker, versions), Client(broker, versions)
        await zombie.take_over()
        await zombie.write("zombie")
        await heir.take_over()
        assert await zombie.add(0) is Error.PRODUCER_FENCED
        assert await zombie.send("late") is Error.INVALID_PRODUCER_EPOCH
        assert await zombie.end(commit=True) is Error.PRODUCER_FENCED
        await heir.write("heir")
        assert await heir.end(commit=True) is Error.NONE
        await eventually(broker.is_stable)
        assert await broker.read() == ["heir"]

    simulated(scenario)


async def _state(broker: Broker) -> str:
    told = await broker.send(DescribeTransactionsRequest(transactional_ids=[ID]))
    state: str = told.transaction_states[0].transaction_state
    return state


def test_transactions_are_described_and_listed() -> None:
    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("a", "b")
        told = await broker.send(DescribeTransactionsRequest(transactional_ids=[ID, "nobody", ""]))
        open_one, unknown, unnamed = told.transaction_states
        assert (open_one.transaction_state, open_one.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
        assert [(one.topic, one.partitions) for one in open_one.topics] == [(TOPIC, [0, 1])]
        assert (unknown.error_code, unnamed.error_code) == (Error.TRANSACTIONAL_ID_NOT_FOUND, Error.INVALID_REQUEST)

        async def listed(**filters: object) -> list[str]:
            request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": []} | filters)  # type: ignore[arg-type]
            return [one.transactional_id for one in (await broker.send(request)).transaction_states]

        await passed(500)
        assert await listed() == [ID]
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(state_filters=["Empty"]) == []
        assert await listed(producer_id_filters=[client.me.producer_id + 1]) == []
        assert await listed(duration_filter=400) == [ID]
        assert await listed(duration_filter=600) == []
        assert await listed(transactional_id_pattern="i.") == [ID]
        assert await listed(transactional_id_pattern="i") == [], "the whole name"

        strange = ListTransactionsRequest(state_filters=["Sleepy"], producer_id_filters=[])
        assert (await broker.send(strange)).unknown_state_filters == ["Sleepy"]
        bad = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
        assert (await broker.send(bad)).error_code == Error.INVALID_REGULAR_EXPRESSION

    simulated(scenario)


def test_brokers_ask_for_several_transactions_at_once() -> None:
    """AddPartitionsToTxn from version 4 on; one that asks only changes nothing."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()

        async def told(*, verify_only: bool, partitions: list[int], producer: ProducerIdentity) -> list[int]:
            one = AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)],
            )
            answer = await broker.send(AddPartitionsToTxnRequest(transactions=[one]))
            results = answer.results_by_transaction[0].topic_results[0].results_by_partition
            return [one.partition_error_code for one in results]

        me = client.me
        assert await told(verify_only=True, partitions=[0], producer=me) == [Error.TRANSACTION_ABORTABLE]
        assert await _state(broker) == "Empty"
        assert await told(verify_only=False, partitions=[0], producer=me) == [Error.NONE]
        assert await told(verify_only=True, partitions=[0, 1], producer=me) == [
            Error.NONE,
            Error.TRANSACTION_ABORTABLE,
        ]
        stale = me._replace(epoch=me.epoch + 1)
        assert await told(verify_only=True, partitions=[0], producer=stale) == [Error.PRODUCER_FENCED]
        assert await told(verify_only=False, partitions=[0, 9], producer=me) == [
            Error.OPERATION_NOT_ATTEMPTED,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    simulated(scenario)


def test_ids_that_nobody_uses_are_forgotten() -> None:
    async def scenario(broker: Broker) -> None:
        await Client(broker, VERSION_2).take_over()
        await passed(2 * 3_600_000)
        told = await broker.send(DescribeTransactionsRequest(transactional_ids=[ID]))
        assert told.transaction_states[0].error_code == Error.TRANSACTIONAL_ID_NOT_FOUND

    simulated(scenario, transactional_id_expiration_ms="1000")


def test_a_topic_that_was_deleted_does_not_keep_a_transaction_open() -> None:
    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("a", "b")
        await broker.delete_topic()
        assert await client.end(commit=True) is Error.NONE
        await passed(10)  # The answer comes when the end is decided.
        assert await _state(broker) == "CompleteCommit"

    simulated(scenario)
