"""The requests that brokers send to the controller on their own behalf, and UpdateFeatures.

Each request is one decision, because none of them is long.
"""

from typing import Final

from ottla.broker.controller.controller import ControllerCall
from ottla.core.metadata import brokers, features
from ottla.core.metadata.brokers import Placed, Registration
from ottla.core.metadata.features import FeatureUpdate
from ottla.core.metadata.image import BrokerEndpoint, FeatureRange, Image
from ottla.core.metadata.producer_ids import ProducerIdBlock, allocate
from ottla.core.runtime.decision import Decision
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.errors import Error, Refused

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_RESULTS_UNTIL: Final = 1


async def broker_registration(request: BrokerRegistrationRequest, call: ControllerCall) -> BrokerRegistrationResponse:
    registration = Registration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
        ),
        features=tuple(
            FeatureRange(one.name, one.min_supported_version, one.max_supported_version) for one in request.features
        ),
        rack=request.rack,
        directories=tuple(request.log_dirs),
    )
    try:
        epoch = await call.controller.decide_and_commit(
            lambda image: brokers.register(image, registration, call.controller.next_offset)
        )
    except Refused as refusal:
        return BrokerRegistrationResponse(throttle_time_ms=0, error_code=refusal.error)
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=Error.NONE, broker_epoch=epoch)


async def broker_heartbeat(request: BrokerHeartbeatRequest, call: ControllerCall) -> BrokerHeartbeatResponse:
    def beat(image: Image) -> Decision[brokers.BrokerState]:
        return brokers.heartbeat(
            image,
            brokers.Heartbeat(
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                metadata_offset=request.current_metadata_offset,
                wants_fence=request.want_fence,
                wants_stop=request.want_shut_down,
                offline_directories=tuple(request.offline_log_dirs),
            ),
        )

    try:
        state = await call.controller.decide_and_commit(beat)
    except Refused as refusal:
        return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=refusal.error, should_shut_down=False)
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=Error.NONE,
        is_caught_up=state.is_caught_up,
        is_fenced=state.is_fenced,
        should_shut_down=state.may_stop,
    )


async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, call: ControllerCall
) -> AssignReplicasToDirsResponse:
    placed = [
        Placed(topic.topic_id, partition.partition_index, directory.id)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    try:
        errors = await call.controller.decide_and_commit(
            lambda image: brokers.assign_directories(image, request.broker_id, request.broker_epoch, placed)
        )
    except Refused as refusal:
        return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=refusal.error, directories=[])
    outcome = iter(errors)
    directories = [
        ResponseDirectoryData(
            id=directory.id,
            topics=[
                ResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        ResponsePartitionData(partition_index=one.partition_index, error_code=next(outcome))
                        for one in topic.partitions
                    ],
                )
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
    return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=Error.NONE, directories=directories)


async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, call: ControllerCall
) -> AllocateProducerIdsResponse:
    error = Error.NONE
    try:
        block = await call.controller.decide_and_commit(
            lambda image: allocate(image, request.broker_id, request.broker_epoch)
        )
    except Refused as refusal:
        block, error = ProducerIdBlock(0, 0), refusal.error
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=error, producer_id_start=block.first, producer_id_len=block.size
    )


async def update_features(request: UpdateFeaturesRequest, call: ControllerCall) -> UpdateFeaturesResponse:
    """Apply all of the updates or none."""

    def updated(update: FeatureUpdateKey) -> FeatureUpdate:
        old_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
        upgrade_type = old_type if call.version == 0 else update.upgrade_type
        return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)

    updates = await call.budget.each(request.feature_updates[: features.UPDATES_MAX + 1], updated)
    try:
        refusal = await call.controller.decide_and_commit(
            lambda image: features.update_features(image, updates, validate_only=request.validate_only)
        )
    except Refused as refused:
        refusal = refused
    # Newer clients use the error of the whole response; older ones expect a result for each update that was made.
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
