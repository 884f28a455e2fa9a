"""Syncing in a thread while the loop goes on writing.

Rule 1: a sync is begun on the loop, run in any thread, and settled on the loop again.
Rule 2: a change is noted when it is made. It counts as durable when a sync that began after it has run and was settled;
        one that failed, or was never settled, leaves everything noted that it should have made durable.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Sync(NamedTuple):
    run: Callable[[], None]
    """Makes durable what was written before the sync was begun. In any thread; changes nothing in memory."""
    settle: Callable[[], None]
    """Takes note that `run` has returned. On the loop."""


class Changes:
    """Of one thing on disk: whether it is durable as it is."""

    __slots__ = ("made", "synced")

    def __init__(self, *, unsynced: bool = False) -> None:
        self.made = int(unsynced)
        self.synced = 0

    def note(self) -> None:
        self.made += 1

    def settle(self, made: int) -> None:
        """Those up to number `made` are durable."""
        self.synced = max(self.synced, made)

    def settle_all(self) -> None:
        self.synced = self.made

    @property
    def are_unsynced(self) -> bool:
        return self.made > self.synced


def together(syncs: Sequence[Sync]) -> Sync:
    """Some syncs as one, in their order."""

    def run() -> None:
        for sync in syncs:
            sync.run()

    def settle() -> None:
        for sync in syncs:
            sync.settle()

    return Sync(run, settle)
