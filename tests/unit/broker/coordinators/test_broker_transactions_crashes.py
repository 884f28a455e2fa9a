"""Transactions after a crash, and when markers cannot be written."""

import pytest
from broker_transaction_samples import (
    ID,
    TOPIC,
    VERSION_2,
    Broker,
    Client,
    all_or_nothing,
    both_versions,
    eventually,
    passed,
    simulated,
)

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.loop import run
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error


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
        assert broker.node.partition(TOPIC, 0).log.state.end_offset == 2, "one marker, not one per attempt"

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
