"""DescribeQuorum and UpdateFeatures."""

from ottla.broker.network.dispatch import Call
from ottla.core.log.files import METADATA_TOPIC
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

_DIRECTORIES_SINCE = _NODES_SINCE = 2


def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    quorum, now_ms = call.node.raft_log, call.node.clock.wall_ms()
    is_known = len(request.topics) == 1 and request.topics[0].topic_name == METADATA_TOPIC
    if not is_known or [one.partition_index for one in request.topics[0].partitions[:2]] != [0]:
        return _no_quorum(request)
    tells_directories = quorum.kraft_version > 0 and call.version >= _DIRECTORIES_SINCE
    voters = [
        ReplicaState(
            replica_id=voter.node_id,
            replica_directory_id=voter.directory_id if tells_directories else NO_UUID,
            log_end_offset=quorum.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in quorum.voters
    ]
    partition = ResponsePartitionData(
        partition_index=0,
        error_code=Error.NONE,
        error_message="",
        leader_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
        observers=[],
    )
    nodes = [
        Node(
            node_id=voter.node_id,
            listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        )
        for voter in (quorum.voters if call.version >= _NODES_SINCE else ())
    ]
    topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(error_code=Error.NONE, error_message="", topics=[topic], nodes=nodes)


def _no_quorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The response to a request for anything but partition 0 of the metadata log: no other partition has a quorum."""
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                ResponsePartitionData(
                    partition_index=one.partition_index,
                    error_code=error,
                    error_message=error.text,
                    leader_id=0,
                    leader_epoch=0,
                    high_watermark=0,
                    current_voters=[],
                    observers=[],
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_code=Error.NONE, error_message="", topics=topics)


async def update_features(request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    """Update the levels of features; the controller decides."""
    response: UpdateFeaturesResponse = await call.node.controller.send(
        request, version=call.version, budget=call.budget
    )
    return response
