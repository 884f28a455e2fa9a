"""How long to wait before trying again.

Twice as long each time, up to a limit, and spread at random so that many clients do not march in step.
"""

from dataclasses import dataclass

from ottla.client.core.chance import Chance

_SPREAD_PERCENT = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    first_ms: int
    max_ms: int

    def wait_ms(self, failures: int, chance: Chance) -> int:
        """The wait after so many failures in a row, 20 percent shorter to 20 percent longer than the plan."""
        if failures <= 0:
            return 0
        planned = min(self.max_ms, self.first_ms << min(failures - 1, 30))
        return max(1, planned * (100 - _SPREAD_PERCENT + chance.randrange(2 * _SPREAD_PERCENT + 1)) // 100)
