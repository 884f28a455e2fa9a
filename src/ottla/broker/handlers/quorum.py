"""DescribeQuorum and UpdateFeatures."""

from ottla.broker.dispatch import Call
from ottla.core.log.files import METADATA_TOPIC
from ottla.core.metadata import features
from ottla.core.metadata.features import FeatureUpdate
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

_DIRECTORIES_SINCE = _NODES_SINCE = 2
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_RESULTS_UNTIL = 1


def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    quorum, now_ms = call.node.metadata, call.node.clock.wall_ms()
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
    """The metadata log is the only one that has a quorum, and has to be asked for alone."""
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
    """All of the updates or none."""

    def updated(update: FeatureUpdateKey) -> FeatureUpdate:
        old_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
        upgrade_type = old_type if call.version == 0 else update.upgrade_type
        return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)

    updates = await call.budget.each(request.feature_updates[: features.UPDATES_MAX + 1], updated)
    try:
        refusal = await call.node.metadata.propose(
            lambda image: features.update_features(image, updates, validate_only=request.validate_only)
        )
    except Refused as refused:
        refusal = refused
    # Newer clients take the one error for all of them; older ones look for each update that was made.
    tells_each = refusal is None and call.version <= _RESULTS_UNTIL
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=refusal.error if refusal else Error.NONE,
        error_message=refusal.text if refusal else None,
        results=[
            UpdatableFeatureResult(feature=update.name, error_code=Error.NONE, error_message=Error.NONE.name)
            for update in (updates if tells_each else ())
        ],
    )
