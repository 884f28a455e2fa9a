"""Members of consumer groups with their own implementation; shared by both protocols.

Rule 1: a member unknown to the group joins again, owning nothing.
Rule 2: a request without a response is repeated, except a join: it may still arrive, so the next join uses another
        name.
Rule 3: an assignment that arrives when the session may be over is ignored.
Rule 4: a static member that returns in time keeps its partitions. Two members may join under one instance id: the older
        is fenced, and continues under its own.
"""

from typing import Protocol

from ottla.sim.node.ledger import Key
from ottla.wire.errors import Error

HEARTBEAT_S = 0.7
CLOCK_STEP_S = 1.0
"""A coordinator does not notice smaller jumps of the wall clock: sessions may be shorter by that."""
NOT_READY = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
)
"""The coordinator is not available or uncertain: retry."""
STALE = (
    Error.ILLEGAL_GENERATION,
    Error.UNKNOWN_MEMBER_ID,
    Error.REBALANCE_IN_PROGRESS,
    Error.STALE_MEMBER_EPOCH,
    Error.FENCED_MEMBER_EPOCH,
    Error.FENCED_INSTANCE_ID,
)
"""Errors of a member that is behind its group."""


class Member(Protocol):
    group: str
    member_id: str
    instance: str | None
    """Of a static member."""
    generation: int
    owned: dict[Key, None]
    changes: int
    """Counts assignments: positions from before the last one are invalid."""
    heard_at: float
    """When the last request was sent that confirmed the membership."""

    is_sure: bool
    """Whether no join request without a response is in flight."""

    async def keep_up(self) -> None:
        """Join, or send a heartbeat, as due. Raises ClientError."""

    def is_behind(self) -> None:
        """Called when a commit was refused as stale: the member has to learn the current assignment."""

    async def leave(self) -> None: ...

    async def restart(self) -> None:
        """Leave properly, and return with the next `keep_up`: a static member keeps its place."""

    def begin_anew(self) -> None:
        """Drop all state, as a process that died and was restarted."""
