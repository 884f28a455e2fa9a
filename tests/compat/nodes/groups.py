"""Groups of the consumer protocol that do in fractions of a second what takes five by default."""

from peers.broker import wait_until

from nodes.wire import Wire
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.errors import Error

GROUP_RESOURCE = 32


def hurry(wire: Wire, group: str, **configs: str) -> None:
    """Heartbeats and assignments of a group follow each other at once. More: `session_timeout_ms="1000"`."""
    wait_until(
        lambda: (
            wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code == Error.NONE
            and wire.call(DescribeGroupsRequest(groups=[group]), 0).groups[0].error_code == Error.NONE
        ),
        "the group has a coordinator",
    )
    given = {"consumer.heartbeat.interval.ms": "100", "consumer.assignment.interval.ms": "0"}
    given |= {f"consumer.{name.replace('_', '.')}": value for name, value in configs.items()}
    probe = f"{group}-probe"
    configure(wire, group, given)
    configure(wire, probe, given)
    wait_until(lambda: heartbeat_interval_ms(wire, probe, 0) == 100, "the settings of groups count")
    heartbeat_interval_ms(wire, probe, -1)


def configure(wire: Wire, group: str, configs: dict[str, str]) -> None:
    """Kafka answers before they count."""
    altered = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=altered)
    told = wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert told.responses[0].error_code == Error.NONE, told


def heartbeat_interval_ms(wire: Wire, group: str, epoch: int) -> int:
    """What a member is told that joins a group, with epoch 0, or leaves it, with -1."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="probe",
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["a-topic-that-nobody-has"],
        topic_partitions=[],
    )
    return int(wire.call(request, 1).heartbeat_interval_ms)
