"""Groups of the consumer protocol that do in fractions of a second what takes five by default."""

from peers.broker import wait_until

from nodes.wire import Wire
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
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[AlterableConfig(name=name, config_operation=0, value=value) for name, value in given.items()],
    )
    told = wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert told.responses[0].error_code == Error.NONE, told
