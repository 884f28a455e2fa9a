"""Groups as clients meet them, on a node in virtual time: found, kept over restarts, given up when they must be."""

import asyncio
from collections.abc import Awaitable
from itertools import accumulate
from typing import Any

import pytest
from broker_transaction_samples import GROUP, ID, TOPIC, Broker, eventually, passed, simulated

from ottla.core.metadata.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.kernel import Record, build_batch, scan
from ottla.observe.trace import Event, names, recording
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, EMFILE, Fault
from ottla.sim.machine.loop import run
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error
from ottla.wire.uuids import uuid_to_text


async def commit(broker: Broker, offset: int, member_id: str = "", generation: int = -1, group: str = GROUP) -> Error:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=1, committed_metadata="m"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    told = await broker.send(request, 9)
    return Error(told.topics[0].partitions[0].error_code)


async def committed(broker: Broker, group: str = GROUP) -> int | Error:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (told,) = (await broker.send(asked, 9)).groups
    if told.error_code:
        return Error(told.error_code)
    return int(told.topics[0].partitions[0].committed_offset) if told.topics else -1


def join(broker: Broker, member_id: str = "", version: int = 9) -> Awaitable[Any]:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return broker.send(request, version)


async def begin_to_join(broker: Broker) -> tuple[str, asyncio.Future[Any]]:
    """A member that has its id and waits for the group to begin."""
    told = await join(broker)
    waiting = asyncio.ensure_future(join(broker, told.member_id))
    await asyncio.sleep(0)
    return str(told.member_id), waiting


async def become_member(broker: Broker) -> str:
    """The only one, in the first generation."""
    told = await join(broker, version=3)
    assignments = [SyncGroupRequestAssignment(member_id=told.member_id, assignment=b"all")]
    synced = await broker.send(
        SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=told.member_id, assignments=assignments), 3
    )
    assert (told.generation_id, synced.assignment) == (1, b"all")
    return str(told.member_id)


async def heartbeat(broker: Broker, member_id: str, generation: int = 1) -> Error:
    told = await broker.send(HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id))
    return Error(told.error_code)


# What is refused.


def test_a_join_that_is_too_large_leaves_no_group() -> None:
    """ListGroups would show a group that no log has, until the coordinator is loaded again."""

    async def scenario(broker: Broker) -> None:
        request = JoinGroupRequest(
            group_id="large",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(2_000_000))],
        )
        assert (await broker.send(request, 9)).error_code == Error.UNKNOWN_SERVER_ERROR
        assert (await broker.send(ListGroupsRequest())).groups == []

    simulated(scenario)


def test_an_assignment_that_the_log_refuses_changes_nothing() -> None:
    """The setting was lowered since the group began: the leader is told, and its group still waits for it."""

    async def scenario(broker: Broker) -> None:
        told = await join(broker, version=3)
        log = broker.node.groups._hosted(broker.node.groups.partition_of(GROUP)).partition.log
        before, log.state.config = log.state.config, log.state.config.for_topic({"max.message.bytes": "500"})
        assignments = [SyncGroupRequestAssignment(member_id=told.member_id, assignment=bytes(5_000))]
        request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=told.member_id, assignments=assignments)
        assert (await broker.send(request, 3)).error_code == Error.UNKNOWN_SERVER_ERROR
        (described,) = (await broker.send(DescribeGroupsRequest(groups=[GROUP]))).groups
        assert described.group_state == "CompletingRebalance"
        log.state.config = before
        assert (await broker.send(request, 3)).assignment == bytes(5_000)

    simulated(scenario)


# Finding.


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(("key_type", "topic"), [(0, CONSUMER_OFFSETS), (1, TRANSACTION_STATE)])
def test_who_is_first_asked_for_makes_the_topic(version: int, key_type: int, topic: str) -> None:
    async def main() -> None:
        broker = await Broker(SimClock()).start()
        if version < 4:
            told = await broker.send(FindCoordinatorRequest(key="k", key_type=key_type if version else 0), version)
            assert (told.error_code, told.node_id, told.host, told.port) == (Error.NONE, 1, "node", 9092)
        else:
            told = await broker.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k", "l"]), version)
            assert [(one.key, one.error_code, one.node_id, one.port) for one in told.coordinators] == [
                ("k", Error.NONE, 1, 9092),
                ("l", Error.NONE, 1, 9092),
            ]
        if version == 0 and key_type == 1:
            return  # It knows groups only.
        (made,) = broker.node.metadata.image.topics
        assert made == topic
        config = broker.node.topic_config(topic)
        assert [len(state.replicas) for _, _, state in broker.node.metadata.image.partitions()] == [1, 1]
        assert {"cleanup.policy", "segment.bytes"} <= broker.node.metadata.image.config(2, topic).keys()
        assert config is not None

    run(lambda _: main(), 0, SimClock())


def test_an_unknown_kind_of_coordinator_is_refused() -> None:
    async def scenario(broker: Broker) -> None:
        share = f"g:with:colons:{uuid_to_text(bytes(16))}:0"
        for key_type, version, key, error in (
            (2, 5, share, Error.INVALID_REQUEST),
            (2, 6, share, Error.COORDINATOR_NOT_AVAILABLE),
            (2, 6, "k", Error.INVALID_REQUEST),
            (2, 6, f"g:{uuid_to_text(bytes(16))}:x", Error.INVALID_REQUEST),
            (2, 6, "g:not-an-id:0", Error.INVALID_REQUEST),
            (2, 6, f" :{uuid_to_text(bytes(16))}:0", Error.INVALID_REQUEST),
            (7, 6, "k", Error.INVALID_REQUEST),
        ):
            told = await broker.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), version)
            assert (told.coordinators[0].error_code, told.coordinators[0].node_id) == (error, -1)

    simulated(scenario)


def test_before_anyone_asked_nobody_coordinates() -> None:
    async def main() -> None:
        broker = await Broker(SimClock()).start()
        told = await join(broker)
        assert told.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert await committed(broker) is Error.NOT_COORDINATOR
        assert (await broker.send(ListGroupsRequest())).groups == []

    run(lambda _: main(), 0, SimClock())


# Keeping.


def test_groups_and_offsets_survive_kill_and_stop() -> None:
    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        for offset in range(20):
            assert await commit(broker, offset, member, 1) is Error.NONE
        again = await broker.restarted()
        await eventually(lambda: not again.node.groups.is_loading)
        assert await committed(again) == 19
        assert await heartbeat(again, member) is Error.NONE
        assert await commit(again, 20, member, 1) is Error.NONE
        await again.node.stop()
        last = await Broker(again.clock, again.disk.after_kill()).start()
        await eventually(lambda: not last.node.groups.is_loading)
        assert await committed(last) == 20
        assert await heartbeat(last, member) is Error.NONE

    simulated(scenario)


def load_anew(broker: Broker, *faults: Fault) -> None:
    """As after a write that failed. No file is open then, and nothing of it in memory."""
    for hosted in list(broker.node.groups._shards.values()):
        log = hosted.partition.log
        log.flush()
        log.here.release()
        log._reading.forget()
    broker.disk.faults += faults
    for hosted in list(broker.node.groups._shards.values()):
        hosted._fail("it could not be written")


def test_while_a_group_is_loaded_clients_are_told_to_wait() -> None:
    """A heartbeat is welcome all the same: nobody lost its place."""

    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        assert await commit(broker, 7, member, 1) is Error.NONE
        again = await broker.restarted()
        load_anew(again)
        assert again.node.groups.is_loading
        assert await committed(again) is Error.COORDINATOR_LOAD_IN_PROGRESS
        assert await heartbeat(again, member) is Error.NONE
        assert (await again.send(ListGroupsRequest())).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        await eventually(lambda: not again.node.groups.is_loading)
        assert await committed(again) == 7

    simulated(scenario)


def test_a_group_that_cannot_be_loaded_for_want_of_descriptors_is_loaded_when_there_are_some() -> None:
    """It was answered NOT_COORDINATOR until the next restart."""

    async def scenario(broker: Broker) -> None:
        assert await commit(broker, 7) is Error.NONE
        again = await broker.restarted()
        await eventually(lambda: not again.node.groups.is_loading)
        with recording() as events:
            load_anew(again, Fault(EMFILE, ("open",), rate=1.0))
            await asyncio.sleep(10)
        assert "coordinator.not_loaded" in names(events)
        assert await committed(again) is Error.COORDINATOR_LOAD_IN_PROGRESS
        again.disk.faults.clear()
        await eventually(lambda: not again.node.groups.is_loading)
        assert await committed(again) == 7

    simulated(scenario)


def log_of(disk: SimDisk, topic: str) -> tuple[str, bytes]:
    """The one log of an internal topic that has something in it."""
    [found] = [
        (path, data)
        for path, data in disk.contents().items()
        if f"/{topic}-" in path and path.endswith(".log") and data
    ]
    return found


async def after_damage(broker: Broker, disk: SimDisk) -> tuple[Broker, list[Event]]:
    with recording() as events:
        again = await Broker(broker.clock, disk).start()
        await eventually(lambda: not again.node.groups.is_loading)
    return again, events


@pytest.mark.parametrize("batch", range(4))
@pytest.mark.parametrize("at", [8, 16, 17, 70], ids=["length", "magic", "crc", "record"])
def test_a_damaged_batch_of_offsets_costs_what_is_in_it_and_no_more(batch: int, at: int) -> None:
    """One flipped byte, and all groups of that partition were answered NOT_COORDINATOR for ever."""

    async def scenario(broker: Broker) -> None:
        for offset in range(4):
            assert await commit(broker, offset, group=f"{GROUP}-{offset}") is Error.NONE
        await broker.node.stop()
        disk = broker.disk.after_kill()
        path, data = log_of(disk, CONSUMER_OFFSETS)
        starts = list(accumulate((header.size for header in scan(data).headers), initial=0))
        assert len(starts) == 5
        disk.flip_bit(path, 8 * (starts[batch] + at))
        if batch == 3 and at in (8, 16):
            return  # Nobody knows where that log ends: it is refused (test_storage_evidence.py).
        again, events = await after_damage(broker, disk)
        told = [event.fields for event in events if event.name == "coordinator.batch_left_out"]
        assert {(fields["from_offset"], fields["to_offset"]) for fields in told} == {(batch, batch)}
        for offset in range(4):
            assert await committed(again, f"{GROUP}-{offset}") == (-1 if offset == batch else offset)
        assert await commit(again, 7, group=f"{GROUP}-{batch}") is Error.NONE
        last = await again.restarted()
        await eventually(lambda: not last.node.groups.is_loading)
        assert await committed(last, f"{GROUP}-{batch}") == 7

    simulated(scenario, offsets_topic_num_partitions="1")


def test_a_damaged_batch_of_transactions_is_coordinated_by_nobody() -> None:
    """An older state is not good enough: what was to commit would be aborted."""

    async def scenario(broker: Broker) -> None:
        producer = await broker.send(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
        assert producer.error_code == Error.NONE
        await broker.node.stop()
        disk = broker.disk.after_kill()
        path, _ = log_of(disk, TRANSACTION_STATE)
        disk.flip_bit(path, 8 * 70)
        again, events = await after_damage(broker, disk)
        await eventually(lambda: not again.node.transactions.coordinator.is_loading)
        assert "coordinator.not_loaded" in names(events)
        told = await again.send(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
        assert told.error_code == Error.NOT_COORDINATOR

    simulated(scenario)


def test_a_commit_that_cannot_be_written_is_not_answered_and_the_group_is_given_up() -> None:
    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        assert await commit(broker, 7, member, 1) is Error.NONE
        other = (await join(broker)).member_id
        waiting = asyncio.ensure_future(join(broker, other))
        await asyncio.sleep(0)
        broker.disk.faults.append(Fault(EIO, ("write",), ".log", nth=1, lasting=True))
        with pytest.raises(ConnectionAbortedError):
            await commit(broker, 8, member, 1)
        assert (await waiting).error_code == Error.NOT_COORDINATOR
        assert await heartbeat(broker, member) is Error.NOT_COORDINATOR
        broker.disk.faults.clear()
        again = await broker.restarted()
        await eventually(lambda: not again.node.groups.is_loading)
        assert await committed(again) == 7

    simulated(scenario)


def test_a_coordinator_whose_topic_cannot_be_made_says_so_once() -> None:
    """The broker's setting has no bound of its own, the topic's has: as in Kafka, nobody coordinates then."""

    clock = SimClock()

    async def main(_: Any) -> None:
        broker = await Broker(clock, offsets_topic_segment_bytes="4000").start()
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        with recording() as events:
            for _ in range(3):
                found = await broker.send(asked)
                assert found.coordinators[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
        (told,) = [event for event in events if event.warning]
        assert (told.name, told.fields["topic"]) == ("internal_topic.not_made", CONSUMER_OFFSETS)
        assert "segment.bytes" in told.fields["reason"]
        assert told.fields["change"] == "offsets.topic.*"

    run(main, 0, clock)


def test_where_the_topic_asks_for_a_sync_nobody_hears_of_a_commit_before_it() -> None:
    async def scenario(broker: Broker) -> None:
        for index in range(2):
            partition = broker.node.partition(CONSUMER_OFFSETS, index)
            partition.log.reconfigure(broker.node.config.for_topic({"flush.messages": "1"}))
        sent = asyncio.ensure_future(commit(broker, 7))
        await asyncio.sleep(0)
        assert not sent.done()
        assert await committed(broker) == 7, "what was read waits for the same sync"
        assert await sent is Error.NONE
        lost = Broker(broker.clock, broker.disk.after_power_loss(broker.random))
        await lost.start()
        await eventually(lambda: not lost.node.groups.is_loading)
        assert await committed(lost) == 7

    simulated(scenario)


def test_a_new_leader_epoch_ends_what_waits() -> None:
    """Its offsets may be another leader's (KAFKA-20634); clients look for the coordinator and join again."""

    async def scenario(broker: Broker) -> None:
        member_id, waiting = await begin_to_join(broker)
        index = broker.node.groups.partition_of(GROUP)
        partition = broker.node.partition(CONSUMER_OFFSETS, index)
        partition.lead(partition.leader_epoch + 1)
        with recording() as events:
            broker.node.groups.align()
        assert (await waiting).error_code == Error.NOT_COORDINATOR
        assert await heartbeat(broker, member_id) is Error.NOT_COORDINATOR
        assert [event.fields["partition"] for event in events if event.name == "coordinator.ended"] == [partition.name]

    simulated(scenario)


def test_a_coordinator_that_was_closed_loads_nothing_any_more() -> None:
    """While a node stops its metadata changes once more: a coordinator that came back wrote to closed logs."""

    async def scenario(broker: Broker) -> None:
        assert await commit(broker, 7) is Error.NONE
        broker.node.groups.close()
        broker.node.groups.align()
        assert not broker.node.groups.is_loading
        assert await committed(broker) is Error.NOT_COORDINATOR

    simulated(scenario)


def test_a_node_that_stops_refuses_who_waits_and_does_not_log_every_partition() -> None:
    async def scenario(broker: Broker) -> None:
        _, waiting = await begin_to_join(broker)
        with recording() as events:
            await broker.node.stop()
        assert (await waiting).error_code == Error.NOT_COORDINATOR
        assert "coordinator.ended" not in {event.name for event in events}

    simulated(scenario)


def test_clients_do_not_write_to_the_topics_of_coordinators() -> None:
    """What they wrote would be replayed as a decision that nobody made."""

    async def scenario(broker: Broker) -> None:
        batch = build_batch([Record(0, 0, b"key", b"value")])
        data = PartitionProduceData(index=0, records=bytearray(batch))
        topic = TopicProduceData(name=CONSUMER_OFFSETS, partition_data=[data])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=[topic])
        told = await broker.send(request, 9)
        assert told.responses[0].partition_responses[0].error_code == Error.INVALID_TOPIC_EXCEPTION
        assert await commit(broker, 7) is Error.NONE

    simulated(scenario)


# Time.


def test_a_member_that_is_silent_is_gone_without_anybody_asking() -> None:
    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        await passed(9_000)
        assert await heartbeat(broker, member) is Error.NONE
        await passed(10_001)
        assert await heartbeat(broker, member) is Error.UNKNOWN_MEMBER_ID
        told = await broker.send(DescribeGroupsRequest(groups=[GROUP]))
        assert told.groups[0].group_state == "Empty"

    simulated(scenario)


def test_a_clock_that_is_set_throws_nobody_out() -> None:
    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        broker.clock.jump(86_400_000)
        assert await heartbeat(broker, member) is Error.NONE
        broker.clock.jump(-2 * 86_400_000)
        await passed(9_000)
        assert await heartbeat(broker, member) is Error.NONE
        await passed(10_001)
        assert await heartbeat(broker, member) is Error.UNKNOWN_MEMBER_ID

    simulated(scenario)


def test_offsets_expire_on_a_node_that_does_nothing_else() -> None:
    async def scenario(broker: Broker) -> None:
        assert await commit(broker, 7) is Error.NONE
        await passed(5 * 60_000 - 1_000)
        assert await committed(broker) == 7
        await passed(3 * 60_000)
        assert await committed(broker) == -1
        assert (await broker.send(ListGroupsRequest())).groups == []

    simulated(scenario, offsets_retention_minutes="5", offsets_retention_check_interval_ms="60000")


def test_offsets_go_with_their_topic() -> None:
    async def scenario(broker: Broker) -> None:
        assert await commit(broker, 7) is Error.NONE
        await broker.delete_topic()
        assert await committed(broker) == -1
        again = await broker.restarted()
        await eventually(lambda: not again.node.groups.is_loading)
        assert await committed(again) == -1

    simulated(scenario)


def test_one_leaves_and_the_other_is_told_at_once() -> None:
    async def scenario(broker: Broker) -> None:
        tokens = [await join(broker) for _ in range(2)]
        ids = [told.member_id for told in tokens]
        joined = await asyncio.gather(*(join(broker, member_id) for member_id in ids))
        assert {told.generation_id for told in joined} == {1}
        assert {len(told.members) for told in joined} == {0, 2}
        left = await broker.send(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=ids[0])]))
        assert left.members[0].error_code == Error.NONE
        assert await heartbeat(broker, ids[1]) is Error.REBALANCE_IN_PROGRESS
        assert (await join(broker, ids[1])).generation_id == 2

    simulated(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_older_leavers_are_told_in_one_word(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        member = await become_member(broker)
        for expected in (Error.NONE, Error.UNKNOWN_MEMBER_ID):
            told = await broker.send(LeaveGroupRequest(group_id=GROUP, member_id=member), version)
            assert told.error_code == expected

    simulated(scenario)
