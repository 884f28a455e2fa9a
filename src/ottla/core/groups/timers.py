"""What groups wait for, by name."""

from enum import StrEnum
from typing import NamedTuple

from ottla.core.coordination import CoordinatorRecord, Token


class Due(StrEnum):
    """Why a deadline was set."""

    SESSION = "session"
    """A classic member was silent."""
    JOIN = "join"
    """A classic group has waited long enough for its members to join."""
    SYNC = "sync"
    """A classic group has waited long enough for its members to sync."""
    EXPIRY = "expiry"
    """It is time to look for offsets and groups to forget."""


class Timer(NamedTuple):
    due: str
    group_id: str = ""
    member_id: str = ""


class Outcome:
    """What a step of a group leads to: records to write, requests to answer."""

    __slots__ = ("records", "wake")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.wake: list[tuple[Token, object]] = []
