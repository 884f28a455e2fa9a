"""The source of random numbers, passed as an argument so that the simulator's seed decides."""

from typing import Protocol


class RandomNumbers(Protocol):
    """The part of `random.Random` that is used."""

    def randrange(self, stop: int, /) -> int:
        """An integer from 0 up to `stop` (exclusive)."""
