"""AlterConfigs and IncrementalAlterConfigs, decided by the controller.

Each resource has its own outcome. Long requests are decided in slices that give way to other requests.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from ottla.broker.controller.controller import ControllerCall
from ottla.core.metadata import configs
from ottla.core.metadata.configs import CHANGES_MAX, ConfigChange, ConfigOperation, ResourceChange, ResourceOutcome
from ottla.core.metadata.image import Image
from ottla.core.runtime.decision import Decision
from ottla.wire.api import alter_configs as replacing
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.errors import Error, Refused

_CHANGES_PER_DECISION: Final = 64
_CHANGE_COST: Final = 8
"""Checking, writing and replaying a setting costs as much budget as reading this many elements."""


async def alter_configs(request: replacing.AlterConfigsRequest, call: ControllerCall) -> replacing.AlterConfigsResponse:
    changes = await call.budget.each(request.resources, replaced, cost=lambda resource: 1 + len(resource.configs))
    outcomes = await _alter(changes, call, validate_only=request.validate_only)
    responses = await call.budget.each(
        outcomes,
        lambda outcome: replacing.AlterConfigsResourceResponse(
            error_code=outcome.refusal.error if outcome.refusal else Error.NONE,
            error_message=outcome.refusal.text if outcome.refusal else None,
            resource_type=outcome.resource_type,
            resource_name=outcome.resource_name,
        ),
    )
    return replacing.AlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, call: ControllerCall
) -> incremental.IncrementalAlterConfigsResponse:
    changes = await call.budget.each(request.resources, changed, cost=lambda resource: 1 + len(resource.configs))
    outcomes = await _alter(changes, call, validate_only=request.validate_only)
    responses = await call.budget.each(
        outcomes,
        lambda outcome: incremental.AlterConfigsResourceResponse(
            error_code=outcome.refusal.error if outcome.refusal else Error.NONE,
            error_message=outcome.refusal.text if outcome.refusal else None,
            resource_type=outcome.resource_type,
            resource_name=outcome.resource_name,
        ),
    )
    return incremental.IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def replaced(resource: replacing.AlterConfigsResource) -> ResourceChange:
    """The change of a resource in AlterConfigs: settings that it does not name are removed."""
    changes = [
        ConfigChange(config.name, ConfigOperation.SET, config.value) for config in resource.configs[: CHANGES_MAX + 1]
    ]
    return ResourceChange(resource.resource_type, resource.resource_name, changes, replaces=True)


def changed(resource: incremental.AlterConfigsResource) -> ResourceChange:
    """The change of a resource in IncrementalAlterConfigs."""
    changes = [
        ConfigChange(config.name, config.config_operation, config.value)
        for config in resource.configs[: CHANGES_MAX + 1]
    ]
    return ResourceChange(resource.resource_type, resource.resource_name, changes)


async def _alter(changes: list[ResourceChange], call: ControllerCall, *, validate_only: bool) -> list[ResourceOutcome]:
    controller, budget, named = call.controller, call.budget, Counter[tuple[int, str]]()
    async for part in budget.parts(changes):
        named.update((one.resource_type, one.resource_name) for one in part)
    outcomes: list[ResourceOutcome] = []

    def alter(few: Sequence[ResourceChange], image: Image) -> Decision[list[ResourceOutcome]]:
        return configs.alter(image, few, named=named, config=controller.config, validate_only=validate_only)

    try:
        for few in _few_at_a_time(changes):
            altered = controller.decide(partial(alter, few))
            outcomes += altered
            if budget.is_spent(_CHANGE_COST * sum(1 + len(one.changes) for one in few)):
                await budget.give_way()
        await controller.committed()
    except Refused as refused:
        refusal = refused  # Python deletes the name of an exception after its block.
        return await budget.each(changes, lambda one: ResourceOutcome(one.resource_type, one.resource_name, refusal))
    return outcomes


def _few_at_a_time(changes: list[ResourceChange]) -> Iterator[list[ResourceChange]]:
    """The resources in groups that are decided together."""
    few: list[ResourceChange] = []
    weight = 0
    for one in changes:
        few.append(one)
        weight += 1 + len(one.changes)
        if weight >= _CHANGES_PER_DECISION:
            yield few
            few, weight = [], 0
    if few:
        yield few
