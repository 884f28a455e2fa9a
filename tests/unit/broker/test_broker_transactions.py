"""Transactions as clients meet them, on a node in virtual time: atomic, fenced, ended in time, whole after a crash."""

import asyncio
from itertools import count
from typing import Any

import pytest
from broker_transaction_samples import (
    GROUP,
    ID,
    TIMEOUT_MS,
    TOPIC,
    VERSION_1,
    VERSION_2,
    Broker,
    Client,
    all_or_nothing,
    eventually,
    passed,
    plain,
    produced,
    simulated,
)

from ottla.broker.markers import Marker, write_marker
from ottla.core.transactions.transaction import ProducerIdentity
from ottla.kernel import Record, build_batch
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error

TRANSACTION_NOT_ALLOWED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
both_versions = pytest.mark.parametrize("versions", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])


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
        admit, asked, answered = broker.node.transactions.admit, count(), asyncio.Event()

        async def admit_slowly(*given: Any, **named: Any) -> Any:
            await (answered.wait() if next(asked) == slow else asyncio.sleep(0.01))
            return await admit(*given, **named)

        broker.node.transactions.admit = admit_slowly  # type: ignore[method-assign]
        sent = [asyncio.create_task(client.send_batch(client.batch(f"{n}", n), 0)) for n in range(2)]
        await asyncio.sleep(1)
        sent.append(asyncio.create_task(client.send_batch(client.batch("2", 2), 0)))
        await asyncio.sleep(0.01)
        answered.set()
        assert await asyncio.gather(*sent) == [Error.NONE] * 3
        assert await broker.read(committed=False) == ["0", "1", "2"]

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


# Bugs of the past.


@both_versions
def test_a_transaction_that_is_left_open_is_aborted_with_a_new_epoch(versions: dict[str, int]) -> None:
    """KAFKA-6119, I24: nobody waits longer than the time-out and the interval of looking for it."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, versions)
        await client.take_over()
        await client.write("left")
        assert not broker.is_stable()
        await passed(TIMEOUT_MS + 10_000 + 1_000)
        assert broker.is_stable()
        assert await broker.read() == []
        assert await client.send("late") is Error.INVALID_PRODUCER_EPOCH

    simulated(scenario)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(10, Error.INVALID_TXN_STATE), (11, Error.TRANSACTION_ABORTABLE), (12, Error.INVALID_PRODUCER_EPOCH)],
)
def test_a_late_batch_of_a_transaction_that_is_over_is_refused(version: int, expected: Error) -> None:
    """KAFKA-14402: it would open a transaction that nobody ends, or join the next one. Clients hear what they know."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2 if version >= 12 else VERSION_1)
        await client.take_over()
        await client.write("in time")
        late = client.batch("late", 1)
        assert await client.end(commit=False) is Error.NONE
        await eventually(broker.is_stable)
        assert await client.send_batch(late, 0, version=version) is expected
        assert broker.is_stable()

    simulated(scenario)


def test_in_version_2_a_late_batch_does_not_join_the_next_transaction() -> None:
    """Before, nothing tells it from one of the next transaction: hence the epoch per transaction."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("in time")
        late = client.batch("late", 1)
        assert await client.end(commit=False) is Error.NONE
        await client.write("next")
        assert await client.send_batch(late, 0) is Error.INVALID_PRODUCER_EPOCH
        assert await client.end(commit=True) is Error.NONE
        await eventually(broker.is_stable)
        assert await broker.read() == ["next"]

    simulated(scenario)


@pytest.mark.parametrize("verified", ["true", "false"])
def test_records_of_a_transaction_need_its_id_in_the_request(verified: str) -> None:
    """Otherwise anybody could hold back the last stable offset for ever, without a right to any transactional id
    (CVE-2018-17196). Nothing else in the request is appended either."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        strays = [
            build_batch([Record(0, 1, None, b"stray")], transactional=True),
            client.batch("of an idle transaction", 0),
        ]
        for stray in strays:
            for version in (3, 9, 12):
                assert await produced(broker, [stray], version=version) == [TRANSACTION_NOT_ALLOWED]
                assert await produced(broker, [plain("good"), stray], version=version) == [TRANSACTION_NOT_ALLOWED] * 2
        await client.write("first")
        assert await produced(broker, [client.batch("second", 1)], version=12) == [TRANSACTION_NOT_ALLOWED]
        assert await client.end(commit=True) is Error.NONE
        await eventually(broker.is_stable)
        assert await broker.read() == ["first"]

    simulated(scenario, transaction_partition_verification_enable=verified)


def test_a_client_cannot_add_an_internal_topic_to_its_transaction() -> None:
    """The markers of transactions would be written to where coordinators keep their state."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_1)
        await client.take_over()
        for topics, errors in (
            (["__consumer_offsets"], [Error.TOPIC_AUTHORIZATION_FAILED]),
            (["__transaction_state", TOPIC], [Error.TOPIC_AUTHORIZATION_FAILED, Error.OPERATION_NOT_ATTEMPTED]),
            (["absent", TOPIC], [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.OPERATION_NOT_ATTEMPTED]),
        ):
            told = await broker.send(_addition(client, topics), 3)
            results = {one.name: one.results_by_partition[0] for one in told.results_by_topic_v3_and_below}
            assert [results[topic].partition_error_code for topic in topics] == errors
        assert await client.end(commit=True) is Error.INVALID_TXN_STATE

    simulated(scenario)


def _addition(client: Client, topics: list[str]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=client.me.producer_id,
        v3_and_below_producer_epoch=client.me.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
    )


def test_without_verification_old_clients_are_believed() -> None:
    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_1)
        await client.take_over()
        assert await client.send("unannounced") is Error.NONE
        assert not broker.is_stable()

    simulated(scenario, transaction_partition_verification_enable="false")


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("first")
        late = client.end_request(commit=True)
        assert await client.end(commit=True) is Error.NONE
        await client.write("second")
        assert (await broker.send(late)).error_code == Error.PRODUCER_FENCED
        assert not broker.is_stable()
        assert await client.end(commit=False) is Error.NONE
        await eventually(broker.is_stable)
        assert await broker.read() == ["first"]

    simulated(scenario)


def test_offsets_can_be_seen_when_the_marker_is_acknowledged() -> None:
    """KAFKA-17507: whoever reads its offsets after the transaction's end must not get the old ones (I12)."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_1)
        await client.take_over()
        assert await client.send_offset(7) is Error.NONE
        index = broker.node.groups.partition_of(GROUP)
        topics = [WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index])]
        marker = WritableTxnMarker(
            producer_id=client.me.producer_id,
            producer_epoch=client.me.epoch,
            transaction_result=True,
            topics=topics,
            coordinator_epoch=0,
        )
        told = await broker.send(WriteTxnMarkersRequest(markers=[marker]))
        assert told.markers[0].topics[0].partitions[0].error_code == Error.NONE
        assert await broker.offset() == 7

    simulated(scenario)


def test_a_marker_for_a_group_is_written_though_nobody_waits_for_it() -> None:
    """Whoever is stopped between two markers has written both, and leaves nothing half-run behind."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_1)
        await client.take_over()
        assert await client.send_offset(7) is Error.NONE
        index = broker.node.groups.partition_of(GROUP)
        marker = Marker(client.me, committed=True, coordinator_epoch=0, transaction_version=0)
        write_marker(broker.node, marker, ("__consumer_offsets", index))
        assert await broker.offset() == 7

    simulated(scenario)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(3, Error.INVALID_TXN_STATE), (4, Error.TRANSACTION_ABORTABLE), (5, Error.NONE)],
)
def test_offsets_of_no_transaction_are_refused_in_words_that_the_client_knows(version: int, expected: Error) -> None:
    """From version 5 on they open it; a fenced client is told as it is when it writes records."""

    async def scenario(broker: Broker) -> None:
        zombie, client = Client(broker, VERSION_1), Client(broker, VERSION_1)
        await zombie.take_over()
        await client.take_over()
        assert await client.commit_offset(7, version) is expected
        assert await zombie.commit_offset(8, version) is Error.INVALID_PRODUCER_EPOCH
        assert await client.commit_offset(9, version, transactional_id="") is Error.INVALID_REQUEST

    simulated(scenario)


def test_markers_of_a_coordinator_that_was_replaced_are_refused() -> None:
    """KAFKA-9144: also when the producer has been silent since, as long as it is remembered."""

    async def scenario(broker: Broker) -> None:
        def marker(coordinator_epoch: int, index: int = 0) -> WriteTxnMarkersRequest:
            one = WritableTxnMarker(
                producer_id=4711,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[index])],
                coordinator_epoch=coordinator_epoch,
            )
            return WriteTxnMarkersRequest(markers=[one])

        async def told(request: WriteTxnMarkersRequest) -> int:
            error: int = (await broker.send(request)).markers[0].topics[0].partitions[0].error_code
            return error

        assert await told(marker(5)) == Error.NONE
        await passed(3_600_000)
        assert await told(marker(4)) == Error.TRANSACTION_COORDINATOR_FENCED
        assert await told(marker(5)) == Error.NONE
        assert await told(marker(5, index=9)) == Error.UNKNOWN_TOPIC_OR_PARTITION

    simulated(scenario)


# Crashes.


def _disks(versions: dict[str, int], commit: bool) -> list[SimDisk]:
    """The disk as it was before every single write of a transaction, and after all of them."""
    clock, copies = SimClock(), list[SimDisk]()

    async def main(_: object) -> None:
        broker = await Broker(clock).start()
        await broker.prepare()
        client = Client(broker, versions)
        await client.take_over()

        def copy(_step: int, operation: str, _path: str) -> None:
            if operation == "write":
                copies.append(broker.disk.copy())

        broker.disk.observer = copy
        await client.write("a", "b")
        await client.send_offset(7)
        await client.end(commit=commit)
        await eventually(lambda: broker.is_stable(0) and broker.is_stable(1))
        await passed(1_000)
        broker.disk.observer = None
        copies.append(broker.disk.copy())

    run(main, 0, clock)
    return copies


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_a_crash_at_any_write_leaves_a_transaction_whole_or_gone(versions: dict[str, int], commit: bool) -> None:
    """Whoever comes up next completes what was decided, and aborts the rest when the id is taken over or time is up."""
    outcomes = []
    for disk in _disks(versions, commit):
        clock = SimClock()

        async def main(_: object, disk: SimDisk = disk, clock: SimClock = clock) -> None:
            disk.clock = clock
            broker = await Broker(clock, disk).start()
            heir = Client(broker, versions)
            await heir.take_over()
            await eventually(lambda: broker.is_stable(0) and broker.is_stable(1))
            found = (await broker.read(0), await broker.read(1), await broker.offset())
            outcomes.append(all_or_nothing(found, (["a"], ["b"], 7), ([], [], -1)))
            await heir.write("c", "d")
            assert await heir.end(commit=True) is Error.NONE
            await eventually(lambda: broker.is_stable(0) and broker.is_stable(1))
            assert (await broker.read(0))[-1:] == ["c"]

        run(main, 0, clock)
    assert outcomes == sorted(outcomes), "once it is decided it stays so"
    assert outcomes[-1] == commit
    assert not outcomes[0]


def test_what_was_prepared_is_completed_without_anybody_asking() -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        broker = await Broker(clock).start()
        await broker.prepare()
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("a", "b")
        # The decision is written and nothing after it.
        decided = broker.disk.copy()

        def copy(_step: int, operation: str, path: str) -> None:
            nonlocal decided
            if operation == "write" and f"/{TOPIC}-" in path:
                decided = broker.disk.copy()
                broker.disk.observer = None

        broker.disk.observer = copy
        assert await client.end(commit=True) is Error.NONE
        await eventually(broker.is_stable)
        again = await Broker(clock, decided).start()
        await eventually(lambda: again.is_stable(0) and again.is_stable(1))
        assert (await again.read(0), await again.read(1)) == (["a"], ["b"])

    run(main, 0, clock)


def test_a_marker_that_cannot_be_written_is_tried_again() -> None:
    """The other partitions have theirs meanwhile; the producer cannot begin anew before all have."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, VERSION_2)
        await client.take_over()
        await client.write("a", "b")
        stuck = broker.node.partition(TOPIC, 1)
        in_sync, stuck.isr = stuck.isr, ()
        assert await client.end(commit=True) is Error.NONE
        await passed(10_000)
        told = await broker.send(DescribeTransactionsRequest(transactional_ids=[ID]))
        [state] = told.transaction_states
        assert state.transaction_state == "PrepareCommit"
        assert [(one.topic, one.partitions) for one in state.topics] == [(TOPIC, [1])]
        assert (await broker.read(0), await broker.read(1)) == (["a"], [])
        assert await client.init() is Error.CONCURRENT_TRANSACTIONS
        stuck.isr = in_sync
        await eventually(lambda: broker.is_stable(1))
        assert (await broker.read(0), await broker.read(1)) == (["a"], ["b"])
        assert broker.node.partition(TOPIC, 0).log.log.end_offset == 2, "one marker, not one per attempt"

    simulated(scenario)


@both_versions
def test_an_id_whose_log_lost_its_end_can_be_used_again(versions: dict[str, int]) -> None:
    """Where nothing is synced, a power loss may take epochs from the coordinator that partitions have seen. Kafka's
    tells every later producer CONCURRENT_TRANSACTIONS, for ever."""

    async def scenario(broker: Broker) -> None:
        client = Client(broker, versions)
        await client.take_over()
        await client.write("a")
        ahead = WritableTxnMarker(
            producer_id=client.me.producer_id,
            producer_epoch=client.me.epoch + 5,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        await broker.send(WriteTxnMarkersRequest(markers=[ahead]))
        assert await client.end(commit=False) is Error.NONE
        heir = Client(broker, versions)
        await heir.take_over()
        assert heir.me.producer_id != client.me.producer_id
        await heir.write("b")
        assert await heir.end(commit=True) is Error.NONE
        await eventually(lambda: broker.is_stable(0))
        assert await broker.read(0) == ["b"]

    simulated(scenario)


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


# Looking.


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
