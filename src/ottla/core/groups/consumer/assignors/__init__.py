"""The assignors, which distribute a group's partitions among its members, by name (`group.consumer.assignors`)."""

from typing import Final

from ottla.core.groups.consumer.assignors.balance import Balance
from ottla.core.groups.consumer.assignors.range_assignor import assign_ranges
from ottla.core.groups.consumer.assignors.spec import NOTHING, Assignment, Assignor, GroupSpec, MemberSpec
from ottla.core.groups.consumer.assignors.uniform import assign_uniformly

UNIFORM: Final = "uniform"
ASSIGNORS: Final[dict[str, Assignor]] = {UNIFORM: assign_uniformly, "range": assign_ranges}

__all__ = [
    "ASSIGNORS",
    "NOTHING",
    "UNIFORM",
    "Assignment",
    "Assignor",
    "Balance",
    "GroupSpec",
    "MemberSpec",
    "assign_ranges",
    "assign_uniformly",
]
