"""Members of consumer groups that speak for themselves: what those of both protocols have in common.

Rule 1: a member that is told that the group does not know it begins anew, with nothing.
Rule 2: whoever gets no answer asks again; a request to join that had none is not repeated in the same name, because it
        may still arrive.
Rule 3: an assignment that comes when the session may be over is none.
Rule 4: a static member that comes back in time has what it had. Two may come in the name of one instance: the older is
        fenced, and goes on as an instance of its own.
"""

from typing import Protocol

from ottla.sim.node.ledger import Key
from ottla.wire.errors import Error

HEARTBEAT_S = 0.7
CLOCK_STEP_S = 1.0
"""A coordinator does not notice when the wall clock is set by less: sessions may be shorter by that."""
NOT_READY = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
)
"""The coordinator is not there, or not for sure: ask again."""
STALE = (
    Error.ILLEGAL_GENERATION,
    Error.UNKNOWN_MEMBER_ID,
    Error.REBALANCE_IN_PROGRESS,
    Error.STALE_MEMBER_EPOCH,
    Error.FENCED_MEMBER_EPOCH,
    Error.FENCED_INSTANCE_ID,
)
"""What a member hears that is behind its group."""


class Member(Protocol):
    group: str
    member_id: str
    instance: str | None
    """Of a static member."""
    generation: int
    owned: dict[Key, None]
    changes: int
    """Counts assignments: positions from before the last one are worth nothing."""
    heard_at: float
    """When the last request was sent whose answer said that it is a member."""

    is_sure: bool
    """No request to join is under way that nobody waits for."""

    async def keep_up(self) -> None:
        """Join, or stay in the group, as is due. Raises ClientError."""

    def is_behind(self) -> None:
        """A commit said so."""

    async def leave(self) -> None: ...

    async def restart(self) -> None:
        """Go in good order, and come back with the next `keep_up`: a static member keeps its place."""

    def begin_anew(self) -> None:
        """Forget everything, as a process that died and was started again."""
