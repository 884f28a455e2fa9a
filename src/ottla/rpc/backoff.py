"""Exponential back-off with a limit and random jitter, so that many clients do not retry at the same time."""

from dataclasses import dataclass

from ottla.rpc.chance import RandomNumbers

_SPREAD_PERCENT = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """The parameters of a back-off."""

    first_ms: int
    max_ms: int

    def wait_ms(self, failures: int, chance: RandomNumbers) -> int:
        """The wait after `failures` failures in a row, with 20 percent jitter."""
        if failures <= 0:
            return 0
        planned = min(self.max_ms, self.first_ms << min(failures - 1, 30))
        return max(1, planned * (100 - _SPREAD_PERCENT + chance.randrange(2 * _SPREAD_PERCENT + 1)) // 100)
