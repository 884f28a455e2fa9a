"""The timers of groups, and the effects of one step of a group."""

from enum import StrEnum
from typing import NamedTuple

from ottla.core.runtime.deadlines import Deadlines
from ottla.core.runtime.decision import Token
from ottla.core.runtime.shard import CoordinatorRecord


class Due(StrEnum):
    """Why a deadline was set."""

    SESSION = "session"
    """The session of a classic member is over."""
    JOIN = "join"
    """The time for the members of a classic group to join is over."""
    SYNC = "sync"
    """The time for the members of a classic group to sync is over."""
    EXPIRY = "expiry"
    """The next search for expired offsets and groups is due."""


class Timer(NamedTuple):
    due: str
    group_id: str = ""
    member_id: str = ""


class GroupEffects:
    """The effects of one step of a group: records to write, parked requests to answer, deadlines to set."""

    __slots__ = ("_timers", "records", "wake")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.wake: list[tuple[Token, object]] = []
        self._timers: dict[Timer, int | None] = {}

    def set_timer(self, timer: Timer, at_ms: int) -> None:
        self._timers.pop(timer, None)  # Timers with the same deadline fire in the order in which they were last set.
        self._timers[timer] = at_ms

    def cancel_timer(self, timer: Timer) -> None:
        self._timers[timer] = None

    def apply_timers(self, deadlines: Deadlines[Timer]) -> None:
        """Set the deadlines of the step once it is accepted."""
        for timer, at_ms in self._timers.items():
            if at_ms is None:
                deadlines.cancel(timer)
            else:
                deadlines.set(timer, at_ms)
        self._timers.clear()
