"""Late and wrong requests of transactions, and their markers: bugs of Kafka's past."""

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
    both_versions,
    eventually,
    passed,
    plain,
    produced,
    simulated,
)

from ottla.broker.coordinators.markers import TxnMarker, write_marker
from ottla.kernel import Record, build_batch
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error

TRANSACTION_NOT_ALLOWED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


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
        marker = TxnMarker(client.me, committed=True, coordinator_epoch=0, transaction_version=0)
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
