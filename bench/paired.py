"""The ratio of two alternating timings, and its confidence."""

from collections.abc import Sequence
from itertools import accumulate
from math import comb
from statistics import median
from typing import NamedTuple, Self

_CERTAINTY = 0.95


class TimesAsLong(NamedTuple):
    """Of consecutive rounds, so that what slows the machine for a while slows both."""

    median: float
    least: float
    most: float
    """The true median is between these two with the confidence above, whatever the distribution. With fewer than six
    rounds it is their whole range."""

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
        aside = _outside(len(ratios))
        return cls(median(ratios), ratios[aside], ratios[-1 - aside])

    def verdict(self, aim: float) -> str:
        if self.median <= aim:
            found = "met"
        elif self.least <= aim:
            found = "no difference to be seen"
        else:
            found = "MISSED"
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f}), aim {aim:.2f}: {found}"


def _outside(rounds: int) -> int:
    """How many of the smallest and of the largest can be left out: each round is on either side of the median with
    probability one half."""
    fewer = accumulate(comb(rounds, heads) for heads in range(rounds))
    allowed = sum(2 * ways <= (1 - _CERTAINTY) * (1 << rounds) for ways in fewer)
    return max(allowed - 1, 0)
