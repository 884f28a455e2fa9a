"""Consumer groups on a node in virtual time: kept over kills, told of new topics, there or not as settings have it."""

import asyncio
from typing import Any

import pytest
from broker_transaction_samples import GROUP, TOPIC, Broker, eventually, passed, simulated

from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import Error

GROUP_RESOURCE = 32


async def beat(broker: Broker, epoch: int, member_id: str = "m", **fields: Any) -> Any:
    asked: dict[str, Any] = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        asked |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    return await broker.send(ConsumerGroupHeartbeatRequest(**(asked | fields)))


def owned(told: Any) -> int:
    return sum(len(one.partitions) for one in told.assignment.topic_partitions)


async def described(broker: Broker) -> Any:
    told = await broker.send(ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True))
    return told.groups[0]


def test_a_member_outlives_a_kill_of_the_broker() -> None:
    async def scenario(broker: Broker) -> None:
        told = await beat(broker, 0)
        assert (told.error_code, told.member_epoch, owned(told)) == (Error.NONE, 2, 2)
        again = await broker.restarted()
        await eventually(lambda: not again.node.groups.is_loading)
        told = await beat(again, 2)
        assert (told.error_code, told.member_epoch, told.assignment) == (Error.NONE, 2, None)
        group = await described(again)
        assert (group.group_state, group.group_epoch, [one.member_id for one in group.members]) == ("Stable", 2, ["m"])
        assert group.members[0].client_host.startswith("/")
        assert group.authorized_operations > 0

    simulated(scenario)


def test_a_silent_member_goes_when_its_session_is_over() -> None:
    async def scenario(broker: Broker) -> None:
        await beat(broker, 0)
        await passed(50_000)
        assert (await described(broker)).group_state == "Empty"
        assert (await beat(broker, 2)).error_code == Error.UNKNOWN_MEMBER_ID

    simulated(scenario)


def test_partitions_and_topics_that_come_later_are_given_out() -> None:
    async def scenario(broker: Broker) -> None:
        await beat(broker, 0, subscribed_topic_names=[TOPIC, "later"])
        grown = CreatePartitionsTopic(name=TOPIC, count=5, assignments=None)
        await broker.send(CreatePartitionsRequest(topics=[grown], timeout_ms=1_000, validate_only=False))
        await passed(2_000)
        assert owned(await beat(broker, 2, topic_partitions=[])) == 5
        made = CreatableTopic(name="later", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        await broker.send(CreateTopicsRequest(topics=[made]))
        await passed(2_000)
        assert owned(await beat(broker, 3, topic_partitions=[])) == 6

    simulated(scenario)


def test_a_pattern_is_resolved_between_two_heartbeats() -> None:
    async def scenario(broker: Broker) -> None:
        told = await beat(broker, 0, subscribed_topic_names=None, subscribed_topic_regex=f"{TOPIC}|unknown")
        assert owned(told) == 0
        await passed(10)
        assert owned(await beat(broker, told.member_epoch, topic_partitions=[])) == 2
        refused = await beat(broker, 0, "n", subscribed_topic_names=None, subscribed_topic_regex="(")
        assert (refused.error_code, "(" in refused.error_message) == (Error.INVALID_REGULAR_EXPRESSION, True)

    simulated(scenario)


def test_commits_of_a_member_need_its_epoch() -> None:
    async def scenario(broker: Broker) -> None:
        await beat(broker, 0)
        for epoch, error in ((2, Error.NONE), (1, Error.STALE_MEMBER_EPOCH), (3, Error.STALE_MEMBER_EPOCH)):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
            request = OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=epoch,
                member_id="m",
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            )
            told = await broker.send(request, 9)
            assert told.topics[0].partitions[0].error_code == error

    simulated(scenario)


def test_tools_find_the_group_as_what_it_is() -> None:
    async def scenario(broker: Broker) -> None:
        await beat(broker, 0)
        listed = await broker.send(ListGroupsRequest(types_filter=["Consumer"]))
        assert [(one.group_id, one.group_type, one.group_state) for one in listed.groups] == [
            (GROUP, "consumer", "Stable")
        ]
        assert (await broker.send(ListGroupsRequest(types_filter=["classic"]))).groups == []
        classic = (await broker.send(DescribeGroupsRequest(groups=[GROUP]))).groups[0]
        assert (classic.error_code, classic.group_state) == (Error.GROUP_ID_NOT_FOUND, "Dead")

    simulated(scenario)


def test_who_waits_to_join_a_classic_group_hears_that_it_has_changed() -> None:
    """Its answer is due in minutes; the group that would give it is gone."""

    async def scenario(broker: Broker) -> None:
        subscription = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=300_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        waiting = asyncio.ensure_future(broker.send(request, 3))
        await passed(100)
        assert not waiting.done()
        assert (await beat(broker, 0)).error_code == Error.NONE
        assert (await waiting).error_code == Error.REBALANCE_IN_PROGRESS
        assert sorted(one.member_type for one in (await described(broker)).members) == [0, 1]

    simulated(scenario)


def test_a_group_may_have_an_interval_of_its_own() -> None:
    async def scenario(broker: Broker) -> None:
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=GROUP,
            configs=[AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="7000")],
        )
        told = await broker.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert told.responses[0].error_code == Error.NONE
        assert (await beat(broker, 0)).heartbeat_interval_ms == 7_000

    simulated(scenario)


@pytest.mark.parametrize("by", ["setting", "feature"])
def test_where_the_protocol_is_off_it_is_refused(by: str) -> None:
    async def scenario(broker: Broker) -> None:
        if by == "feature":
            update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
            assert (await broker.send(UpdateFeaturesRequest(feature_updates=[update]))).error_code == Error.NONE
        assert (await beat(broker, 0)).error_code == Error.UNSUPPORTED_VERSION
        assert (await described(broker)).error_code == Error.UNSUPPORTED_VERSION

    settings = {"group_coordinator_rebalance_protocols": "classic"} if by == "setting" else {}
    simulated(scenario, **settings)
