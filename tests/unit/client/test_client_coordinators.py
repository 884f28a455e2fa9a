"""Questions to coordinators: found, asked again, or left alone when nobody knows what became of them."""

from typing import Any

import pytest
from client_fakes import CUT, HOST, PORT, Answer, FakeBroker, simulated

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.group_offsets import Committed
from ottla.client.groups import GroupDescription, GroupMember
from ottla.client.partition_producers import ProducerState
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.api import ApiKey
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.wire.api.consumer_group_describe import DescribedGroup as NewGroup
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.list_groups import ListedGroup, ListGroupsResponse
from ottla.wire.api.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.wire.codec import encode
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.consumer_protocol import TopicPartition as Assigned
from ottla.wire.errors import Error
from ottla.wire.frame import Request

NODE = 1


class CoordinatingBroker(FakeBroker):
    """One that coordinates everything and remembers groups by what `groups` says."""

    def __init__(self) -> None:
        super().__init__({"t": 3})
        self.apis |= {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.LIST_GROUPS: lambda _: ListGroupsResponse(error_code=0, groups=[]),
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe_new,
            ApiKey.DESCRIBE_GROUPS: self.describe_classic,
            ApiKey.DELETE_GROUPS: self.delete_groups,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
        }

    def find_coordinator(self, request: Request) -> Answer:
        if request.version < 4:
            return FindCoordinatorResponse(node_id=NODE, host=HOST, port=PORT)
        return FindCoordinatorResponse(coordinators=[found(key) for key in request.body.coordinator_keys])

    def describe_new(self, request: Request) -> Answer:
        unknown = [
            NewGroup(
                error_code=Error.GROUP_ID_NOT_FOUND,
                group_id=name,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for name in request.body.group_ids
        ]
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=unknown)

    def describe_classic(self, request: Request) -> Answer:
        return DescribeGroupsResponse(groups=[classic(name) for name in request.body.groups])

    def delete_groups(self, request: Request) -> Answer:
        return deleted(request, Error.NONE)

    def offset_fetch(self, request: Request) -> Answer:
        if request.version < 8:
            one = OffsetFetchResponsePartition(partition_index=2, committed_offset=7, metadata=None, error_code=0)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[one])])
        topics = [
            OffsetFetchResponseTopics(
                name="t",
                partitions=[
                    OffsetFetchResponsePartitions(partition_index=2, committed_offset=7, metadata="m", error_code=0),
                    OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata="", error_code=0),
                ],
            )
        ]
        groups = [OffsetFetchResponseGroup(group_id=one.group_id, topics=topics) for one in request.body.groups]
        return OffsetFetchResponse(groups=groups)

    def write_txn_markers(self, request: Request) -> Answer:
        (marker,) = request.body.markers
        partitions = [WritableTxnMarkerPartitionResult(partition_index=0, error_code=0)]
        topics = [WritableTxnMarkerTopicResult(name="t", partitions=partitions)]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)])


def found(key: str, error: Error = Error.NONE) -> Coordinator:
    node = NODE if error is Error.NONE else -1
    return Coordinator(key=key, node_id=node, host=HOST, port=PORT, error_code=error, error_message=None)


def deleted(request: Request, error: Error) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=error) for name in request.body.groups_names]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def classic(name: str, assignment: bytes = b"", state: str = "Stable") -> DescribedGroup:
    member = DescribedGroupMember(
        member_id="m-1", client_id="c", client_host="/10.0.0.7", member_metadata=b"", member_assignment=assignment
    )
    return DescribedGroup(
        error_code=0,
        group_id=name,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[] if state == "Dead" else [member],
    )


def run(work: Any, broker: CoordinatingBroker | None = None, **options: Any) -> Any:
    return simulated(work, broker=broker or CoordinatingBroker(), **options)


@pytest.mark.parametrize("error", [Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS])
def test_coordinator_that_moved_or_loads_is_found_and_asked_again(error: Error) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.DELETE_GROUPS, lambda request: deleted(request, error))
        assert await Admin(client).delete_groups(["g"]) == {"g": None}
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        assert len(broker.asked(ApiKey.DELETE_GROUPS)) == 2

    run(work)


def test_only_what_is_not_settled_is_asked_again() -> None:
    """A second deletion would say that there is no such group."""

    def first(request: Request) -> Answer:
        answer = deleted(request, Error.NONE)
        answer.results[1].error_code = Error.NOT_COORDINATOR
        return answer

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.DELETE_GROUPS, first)
        assert await Admin(client).delete_groups(["a", "b"]) == {"a": None, "b": None}
        assert [request.body.groups_names for request in broker.asked(ApiKey.DELETE_GROUPS)] == [["a", "b"], ["b"]]

    run(work)


def test_change_without_an_answer_is_not_asked_for_again() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.DELETE_GROUPS, lambda _: CUT)
        outcome = (await Admin(client).delete_groups(["g"]))["g"]
        assert isinstance(outcome, ClientError)
        assert outcome.unknown_outcome
        assert len(broker.asked(ApiKey.DELETE_GROUPS)) == 1

    run(work)


def test_question_without_an_answer_is_asked_again() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.OFFSET_FETCH, lambda _: CUT)
        offsets = await Admin(client).committed_offsets(["g"])
        assert offsets == {"g": {TopicPartition("t", 2): Committed(7, -1, "m")}}

    run(work)


def test_coordinator_that_never_comes_is_an_outcome_of_its_keys_alone() -> None:
    def half(request: Request) -> Answer:
        keys = request.body.coordinator_keys
        errors = [Error.COORDINATOR_NOT_AVAILABLE if key == "lost" else Error.NONE for key in keys]
        return FindCoordinatorResponse(coordinators=[found(*one) for one in zip(keys, errors, strict=True)])

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.apis[ApiKey.FIND_COORDINATOR] = half
        outcomes = await Admin(client).delete_groups(["g", "lost"])
        assert outcomes["g"] is None
        lost = outcomes["lost"]
        assert isinstance(lost, Declined)
        assert (lost.error, lost.subject) == (Error.COORDINATOR_NOT_AVAILABLE, "group lost")
        assert len(broker.asked(ApiKey.DELETE_GROUPS)) == 1

    run(work, api_timeout_ms=3_000)


def test_old_broker_is_asked_for_one_key_at_a_time_and_by_older_forms() -> None:
    broker = CoordinatingBroker()
    broker.versions |= {ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.OFFSET_FETCH: (1, 7)}

    async def work(client: Client, _: FakeBroker) -> None:
        outcomes = await Admin(client).committed_offsets(["a", "b"])
        assert outcomes == {key: {TopicPartition("t", 2): Committed(7, -1, "")} for key in ["a", "b"]}
        assert [request.body.key for request in broker.asked(ApiKey.FIND_COORDINATOR)] == ["a", "b"]

    run(work, broker)


def test_classic_group_is_described_when_the_new_protocol_does_not_know_it() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic="t", partitions=[1, 0])])
    data = b"\0\1" + encode(assignment, 1)

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[classic("g", data)]))
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        member = GroupMember("m-1", None, "c", "10.0.0.7", partitions)
        expected = GroupDescription("g", "classic", "Stable", NODE, "consumer", "range", [member])
        assert await Admin(client).describe_groups(["g"]) == {"g": expected}

    run(work)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\0\5", b"\xff\xff", b"\0\0\xff\xff\xff\xff"])
def test_assignment_that_makes_no_sense_is_none(data: bytes) -> None:
    """Members may put there what they like: the broker passes it on unread."""

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[classic("g", data)]))
        group = (await Admin(client).describe_groups(["g"]))["g"]
        assert isinstance(group, GroupDescription)
        assert group.members[0].assignment == []

    run(work)


def test_dead_group_of_an_old_broker_does_not_exist() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(
            ApiKey.DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[classic("g", state="Dead")])
        )
        outcome = (await Admin(client).describe_groups(["g"]))["g"]
        assert isinstance(outcome, Declined)
        assert outcome.error is Error.GROUP_ID_NOT_FOUND

    run(work)


def test_broker_too_old_to_filter_says_so() -> None:
    """It would list all groups, as if all were of that type."""
    broker = CoordinatingBroker()
    broker.versions[ApiKey.LIST_GROUPS] = (0, 4)

    async def work(client: Client, _: FakeBroker) -> None:
        outcome = (await Admin(client).list_groups(types=["classic"]))[NODE]
        assert isinstance(outcome, ClientError)
        assert "too old to list groups by state or type" in outcome.what
        assert (await Admin(client).list_groups(states=["Empty"]))[NODE] == []

    run(work, broker)


def test_groups_of_every_broker_are_listed() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="Classic")
        broker.answer_once(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse(error_code=0, groups=[listed]))
        outcome = await Admin(client).list_groups()
        assert outcome == {NODE: [("g", "classic", "Stable", "consumer", NODE)]}

    run(work)


def test_fencing_waits_until_the_transaction_is_aborted() -> None:
    """The coordinator answers CONCURRENT_TRANSACTIONS until the markers are written."""

    def busy(_: Request) -> Answer:
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=Error.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1
        )

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.INIT_PRODUCER_ID, busy, busy)
        await Admin(client).fence_producer("id", timeout_ms=1_234)
        asked = broker.asked(ApiKey.INIT_PRODUCER_ID)
        assert [(one.body.transactional_id, one.body.transaction_timeout_ms) for one in asked] == [("id", 1_234)] * 3
        assert [one.body.key_type for one in broker.asked(ApiKey.FIND_COORDINATOR)] == [1] * 3

    run(work)


def test_marker_is_written_once_and_never_with_an_epoch_below_zero() -> None:
    producer = ProducerState(9, 3, 0, 5_000, -1, 40)

    async def work(client: Client, broker: FakeBroker) -> None:
        await Admin(client).write_abort_marker(TopicPartition("t", 0), producer)
        broker.answer_once(ApiKey.WRITE_TXN_MARKERS, lambda _: CUT)
        with pytest.raises(ClientError):
            await Admin(client).write_abort_marker(TopicPartition("t", 0), producer)
        first, _ = broker.asked(ApiKey.WRITE_TXN_MARKERS)
        (marker,) = first.body.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (9, 3, 0)
        assert marker.transaction_result is False

    run(work)
