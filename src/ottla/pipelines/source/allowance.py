"""How many records the next epoch may read: a limit for a batch, and a limit for a second.

Rule 1: the rate limit saves up at most one second's worth, so that a pause is not followed by a burst.
Rule 2: only records that were read are deducted.
"""

from typing import Final

_SECOND_MS: Final = 1_000


class Allowance:
    def __init__(self, per_batch: int, per_second: int | None) -> None:
        self._per_batch = per_batch
        self._per_second = per_second
        self._saved = 0  # In thousandths of a record, so that milliseconds count exactly.
        self._counted_at_ms: int | None = None

    def limit(self, now_ms: int) -> int:
        if self._per_second is None:
            return self._per_batch
        full = self._per_second * _SECOND_MS
        passed_ms = _SECOND_MS if self._counted_at_ms is None else max(0, now_ms - self._counted_at_ms)
        self._saved = min(full, self._saved + passed_ms * self._per_second)
        self._counted_at_ms = now_ms
        return min(self._per_batch, self._saved // _SECOND_MS)

    def wait_ms(self) -> int:
        """How long after the last `limit` one record may be read again."""
        if self._per_second is None:
            return 0
        return -(-max(0, _SECOND_MS - self._saved) // self._per_second)

    def spend(self, records: int) -> None:
        self._saved -= records * _SECOND_MS
