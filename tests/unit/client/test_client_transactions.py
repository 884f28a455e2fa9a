"""Transactions of the producer: what is asked of whom, in which order, and what every failure leads to."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from client_fakes import CUT, SILENCE, FakeBroker, produce_error, simulated
from transaction_fakes import PRODUCER_ID, Coordinating, end_error

from ottla.client.client import Client
from ottla.client.core.errors import DeliveryFailed, EndUnknown, Misused, ProducerFenced, TransactionFailed
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.producer import Producer
from ottla.kernel import read_header
from ottla.rpc.errors import Declined
from ottla.wire.api import ApiKey
from ottla.wire.errors import Error

T0 = TopicPartition("t", 0)
GROUP = GroupMetadata("g", 3, "member")
Work = Callable[[Producer, Coordinating], Coroutine[Any, Any, None]]

both_versions = pytest.mark.parametrize("version", [1, 2], ids=["version 1", "version 2"])


def with_producer(version: int, work: Work, **options: Any) -> Coordinating:
    broker = Coordinating(version)

    async def main(client: Client, _: FakeBroker) -> None:
        async with Producer(client, transactional_id="id", linger_ms=0) as producer:
            await work(producer, broker)

    simulated(main, broker=broker, **options)
    return broker


def asked(broker: Coordinating) -> list[ApiKey]:
    """What was asked since the producer began, without what every client asks."""
    dull = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID)
    return [request.api_key for request in broker.requests if request.api_key not in dull]


def unseen(producer: Producer, value: bytes) -> None:
    """Send a record and do not look what becomes of it."""
    producer.send("t", value).add_done_callback(lambda future: future.exception())


@both_versions
def test_the_id_is_taken_when_the_producer_starts(version: int) -> None:
    """Whoever had it is fenced before anything is sent."""

    async def work(_: Producer, broker: Coordinating) -> None:
        (request,) = broker.asked(ApiKey.INIT_PRODUCER_ID)
        assert (request.body.transactional_id, request.body.transaction_timeout_ms) == ("id", 60_000)
        assert (request.body.producer_id, request.body.producer_epoch) == (-1, -1)

    with_producer(version, work)


def test_in_version_2_nobody_enlists_and_every_end_brings_a_new_epoch() -> None:
    async def work(producer: Producer, _: Coordinating) -> None:
        for number in range(2):
            async with producer.transaction() as transaction:
                producer.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets({T0: 5}, GROUP)

    broker = with_producer(2, work)
    assert set(asked(broker)) == {ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN}
    assert broker.epochs() == [0, 1]
    assert [stored.sequence for stored in broker.logs["t", 0]] == [0, 0], "a new epoch counts from 0"
    assert broker.ends == [True, True]
    (produce, *_) = broker.asked(ApiKey.PRODUCE)
    assert produce.body.transactional_id == "id"
    assert produce.version >= 12
    assert read_header(broker.logs["t", 0][0].data).is_transactional


def test_before_version_2_partitions_and_groups_are_enlisted_once_and_the_epoch_stays() -> None:
    async def work(producer: Producer, _: Coordinating) -> None:
        for number in range(2):
            async with producer.transaction() as transaction:
                await producer.send("t", b"%d" % number, partition=0)
                await producer.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets({T0: 5}, GROUP)

    broker = with_producer(1, work)
    one = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.PRODUCE]
    one += [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]
    assert asked(broker) == 2 * one
    assert broker.epochs() == [0] * 4
    assert [stored.sequence for stored in broker.logs["t", 0]] == [0, 1, 2, 3]
    assert {request.version for request in broker.asked(ApiKey.PRODUCE)} == {11}
    assert {request.version for request in broker.asked(ApiKey.END_TXN)} == {4}


@both_versions
def test_offsets_are_committed_in_the_name_of_the_member(version: int) -> None:
    """A member that was replaced must not commit what the next one has taken over."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        async with producer.transaction() as transaction:
            await transaction.send_offsets({T0: 5}, GROUP)
        (request,) = broker.asked(ApiKey.TXN_OFFSET_COMMIT)
        assert (request.body.group_id, request.body.generation_id, request.body.member_id) == GROUP[:3]
        assert request.body.topics[0].partitions[0].committed_offset == 5

    with_producer(version, work)


@both_versions
def test_a_transaction_without_anything_is_nobody_elses_business(version: int) -> None:
    async def work(producer: Producer, _: Coordinating) -> None:
        async with producer.transaction():
            pass
        producer.transactions.begin()
        await producer.transactions.abort()

    assert asked(with_producer(version, work)) == []


@both_versions
def test_an_exception_aborts_and_goes_on(version: int) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        async def fail() -> None:
            async with producer.transaction():
                await producer.send("t", b"1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert broker.ends == [False]
        async with producer.transaction():
            await producer.send("t", b"2")
        assert broker.ends == [False, True]

    with_producer(version, work)


@both_versions
def test_an_abort_drops_what_was_not_sent(version: int) -> None:
    """It must not be sent in the next transaction."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        producer.transactions.begin()
        await producer.send("t", b"first", partition=0)
        left = [producer.send("t", b"dropped", partition=0), producer.send("unknown topic", b"dropped")]
        await producer.transactions.abort()
        for future in left:
            with pytest.raises(DeliveryFailed, match="the transaction was aborted"):
                await future
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert broker.values() == [b"first", b"next"]

    with_producer(version, work)


@both_versions
def test_an_abort_leaves_no_warning_of_futures_that_nobody_awaited(version: int) -> None:
    """What was dropped is what was asked for; asyncio would print a traceback for each record."""
    complaints: list[dict[str, Any]] = []

    async def work(producer: Producer, _: Coordinating) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        producer.transactions.begin()
        producer.send("t", b"dropped", partition=0)
        await producer.transactions.abort()
        gc.collect()

    with_producer(version, work)
    assert complaints == []


# Failures that an abort mends.


@both_versions
def test_a_record_that_is_not_delivered_fails_the_transaction(version: int) -> None:
    """Otherwise the rest of it would be committed without it, although nobody looked at the future."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.INVALID_RECORD))
        with pytest.raises(TransactionFailed, match=r"INVALID_RECORD.*Abort it"):
            async with producer.transaction():
                unseen(producer, b"refused")
        assert broker.ends == [False]
        async with producer.transaction():
            await producer.send("t", b"good", partition=0)
        assert broker.ends == [False, True]
        assert broker.epochs() == [1], "nobody knows the sequence number in the old epoch"

    with_producer(version, work)


def test_before_version_2_a_lost_batch_takes_a_new_epoch_of_the_same_producer() -> None:
    """KIP-360: without naming who it was, it would fence itself only by chance, and others for no reason."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.OUT_OF_ORDER_SEQUENCE_NUMBER))
        with pytest.raises(TransactionFailed):
            async with producer.transaction():
                unseen(producer, b"refused")
        request = broker.asked(ApiKey.INIT_PRODUCER_ID)[-1]
        assert (request.body.producer_id, request.body.producer_epoch) == (PRODUCER_ID, 0)

    broker = with_producer(1, work)
    assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 2


@both_versions
def test_a_failed_transaction_takes_nothing_more(version: int) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        transactions = producer.transactions
        broker.answer_once(ApiKey.TXN_OFFSET_COMMIT, partial(broker.commit_offsets, error=Error.ILLEGAL_GENERATION))
        transactions.begin()
        with pytest.raises(TransactionFailed, match=r"group g.*ILLEGAL_GENERATION"):
            await transactions.send_offsets({T0: 1}, GROUP)
        with pytest.raises(TransactionFailed):
            producer.send("t", b"more")
        with pytest.raises(TransactionFailed):
            await transactions.commit()
        await transactions.abort()
        assert broker.ends == [False]

    with_producer(version, work)


def test_a_commit_after_the_time_is_over_says_so_and_can_be_aborted() -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.END_TXN, end_error(Error.INVALID_TXN_STATE))
        with pytest.raises(TransactionFailed, match="transaction_timeout_ms"):
            async with producer.transaction():
                await producer.send("t", b"late")
        assert broker.ends == [False]

    with_producer(2, work)


def test_before_version_2_an_abort_of_what_never_arrived_is_done() -> None:
    """No answer said whether the partitions were enlisted; the coordinator knows of no transaction."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        refusal = partial(broker.add_partitions, error=Error.TOPIC_AUTHORIZATION_FAILED)
        broker.answer_once(ApiKey.ADD_PARTITIONS_TO_TXN, refusal)
        broker.answer_once(ApiKey.END_TXN, end_error(Error.INVALID_TXN_STATE))
        with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            async with producer.transaction():
                unseen(producer, b"refused")
        async with producer.transaction():
            await producer.send("t", b"good")
        assert broker.epochs() == [1]

    with_producer(1, work)


# Fencing.


@both_versions
@pytest.mark.parametrize("error", [Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_told_so_and_stays_fenced(version: int, error: Error) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.END_TXN, end_error(error))
        with pytest.raises(ProducerFenced, match=r"transactional id id.*Another producer uses the id"):
            async with producer.transaction():
                await producer.send("t", b"1")
        with pytest.raises(ProducerFenced):
            producer.transactions.begin()
        with pytest.raises(ProducerFenced):
            producer.send("t", b"2")
        assert broker.ends == []

    with_producer(version, work)


@both_versions
def test_a_zombie_that_writes_learns_at_the_abort_that_it_is_fenced(version: int) -> None:
    """Where records are written an old epoch may also be that of a transaction which took too long."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.INVALID_PRODUCER_EPOCH))
        broker.answer_once(ApiKey.END_TXN, end_error(Error.PRODUCER_FENCED))
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                unseen(producer, b"zombie")

    with_producer(version, work)


def test_before_version_2_enlisting_tells_a_zombie_and_leaving_the_block_is_no_success() -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        broker.answer_once(ApiKey.ADD_PARTITIONS_TO_TXN, partial(broker.add_partitions, error=Error.PRODUCER_FENCED))

        async def write() -> None:
            async with producer.transaction():
                unseen(producer, b"zombie")
                await producer.flush()

        with pytest.raises(ProducerFenced):
            await write()
        assert broker.asked(ApiKey.PRODUCE) == []

    with_producer(1, work)


# Answers that do not come.


@both_versions
@pytest.mark.parametrize("lost", [CUT, SILENCE])
def test_an_end_whose_answer_is_lost_is_asked_for_again(version: int, lost: str) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        def decided_but_lost(request: Any) -> Any:
            broker.end_txn(request)
            return lost

        broker.answer_once(ApiKey.END_TXN, decided_but_lost)
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
        async with producer.transaction():
            await producer.send("t", b"2", partition=0)
        assert broker.values() == [b"1", b"2"]

    broker = with_producer(version, work)
    assert set(broker.ends) == {True}


@both_versions
def test_a_commit_without_an_answer_can_only_be_committed_again(version: int) -> None:
    """It may be decided: an abort would make what readers have seen undone."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        transactions = producer.transactions
        transactions.begin()
        await producer.send("t", b"1")
        broker.answer_once(ApiKey.END_TXN, *[lambda _: CUT] * 50)
        with pytest.raises(EndUnknown, match="Call `commit` again"):
            await transactions.commit()
        with pytest.raises(Misused, match="is being committed"):
            await transactions.abort()
        broker.instead.clear()
        await transactions.commit()
        assert broker.ends == [True]

    with_producer(version, work, api_timeout_ms=2_000)


@both_versions
def test_a_coordinator_that_moves_is_looked_up_again(version: int) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        before = len(broker.asked(ApiKey.FIND_COORDINATOR))
        broker.answer_once(ApiKey.END_TXN, end_error(Error.NOT_COORDINATOR))
        async with producer.transaction():
            await producer.send("t", b"1")
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == before + 1
        async with producer.transaction():
            await producer.send("t", b"2")
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == before + 1, "and remembered"

    with_producer(version, work)


@both_versions
def test_a_cancelled_block_is_aborted(version: int) -> None:
    async def work(producer: Producer, broker: Coordinating) -> None:
        entered = asyncio.Event()

        async def endless() -> None:
            async with producer.transaction():
                await producer.send("t", b"1")
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(endless())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker.ends == [False]

    with_producer(version, work)


@both_versions
def test_a_commit_that_is_cancelled_before_it_is_decided_is_an_abort(version: int) -> None:
    """While records are on their way the coordinator has not heard of it yet."""

    async def work(producer: Producer, broker: Coordinating) -> None:
        async def write() -> None:
            async with producer.transaction():
                unseen(producer, b"under way")

        broker.answer_once(ApiKey.PRODUCE, lambda _: SILENCE)
        task = asyncio.create_task(write())
        while not broker.asked(ApiKey.PRODUCE):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker.ends == [False]

    with_producer(version, work)


@both_versions
def test_closing_aborts_what_is_open(version: int) -> None:
    """Readers of committed records would otherwise wait for the coordinator's time-out."""

    async def work(producer: Producer, _: Coordinating) -> None:
        producer.transactions.begin()
        await producer.send("t", b"left open")

    assert with_producer(version, work).ends == [False]


# Misuse.


def test_what_makes_no_sense_is_refused_with_what_to_do() -> None:
    async def work(producer: Producer, _: Coordinating) -> None:
        transactions = producer.transactions
        with pytest.raises(Misused, match=r"no transaction is open. Begin one first"):
            producer.send("t", b"outside")
        with pytest.raises(Misused, match="no transaction is open"):
            await transactions.commit()
        with pytest.raises(Misused, match="no transaction is open"):
            await transactions.abort()
        transactions.begin()
        with pytest.raises(Misused, match="open already"):
            transactions.begin()

    with_producer(2, work)


def test_transactions_need_an_id_and_all_replicas() -> None:
    async def work(client: Client, _: FakeBroker) -> None:
        for options in ({"acks": 1}, {"idempotent": False}):
            with pytest.raises(Misused):
                Producer(client, transactional_id="id", **options)  # type: ignore[arg-type]
        with pytest.raises(Misused):
            Producer(client, transactional_id="")
        with pytest.raises(Misused, match="Give it a transactional_id"):
            Producer(client).transaction()
        with pytest.raises(Misused, match="call `init` first"):
            Producer(client, transactional_id="id").transactions.begin()

    simulated(work)


def test_an_id_that_cannot_be_had_fails_the_start() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        def refused(_: Any) -> Any:
            answer = Coordinating.init_producer_id(broker, _)  # type: ignore[arg-type]
            answer.error_code = Error.INVALID_TRANSACTION_TIMEOUT
            return answer

        broker.answer_once(ApiKey.INIT_PRODUCER_ID, refused)
        with pytest.raises(Declined, match=r"transactional id id.*Lower transaction_timeout_ms"):
            await Producer(client, transactional_id="id").__aenter__()

    simulated(work, broker=Coordinating(2))
