"""Sync in a thread while the loop goes on writing.

Rule 1: a sync is begun on the loop, run in any thread, and settled on the loop.
Rule 2: a change is counted when it is made. It is durable when a sync begun after it has run and was settled. A sync
        that failed or was never settled leaves its changes counted as unsynced.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Sync(NamedTuple):
    """A prepared sync."""

    run: Callable[[], None]
    """Makes durable what was written before the sync was begun. Runs in any thread and changes nothing in memory."""
    settle: Callable[[], None]
    """Records that `run` has returned. Runs on the loop."""


class Changes:
    """Counts the changes of one file or directory, and how many of them are durable."""

    __slots__ = ("made", "synced")

    def __init__(self, *, unsynced: bool = False) -> None:
        self.made = int(unsynced)
        self.synced = 0

    def note(self) -> None:
        self.made += 1

    def settle(self, made: int) -> None:
        """The changes up to number `made` are durable."""
        self.synced = max(self.synced, made)

    def settle_all(self) -> None:
        self.synced = self.made

    @property
    def are_unsynced(self) -> bool:
        return self.made > self.synced


def together(syncs: Sequence[Sync]) -> Sync:
    """Combine syncs into one that runs them in order."""

    def run() -> None:
        for sync in syncs:
            sync.run()

    def settle() -> None:
        for sync in syncs:
            sync.settle()

    return Sync(run, settle)
