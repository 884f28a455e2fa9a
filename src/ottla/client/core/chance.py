"""Chance as an argument, so that a seed decides."""

from typing import Protocol


class Chance(Protocol):
    def randrange(self, stop: int, /) -> int:
        """A whole number from 0 up to, not including, `stop`."""
