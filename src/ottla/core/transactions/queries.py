"""Which transactions ListTransactions tells of."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.core.patterns import compile_pattern
from ottla.core.transactions.transaction import STATE_BY_LABEL, Transaction


class Filters(NamedTuple):
    """What is empty does not restrict."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    """By the time since the start; one that has not begun counts as begun at the beginning of time, as in Kafka."""
    pattern: str = ""

    def unknown_states(self) -> frozenset[str]:
        return self.states - STATE_BY_LABEL.keys()

    def matcher(self) -> Callable[[str, Transaction, int], bool]:
        """Refused with INVALID_REGULAR_EXPRESSION if the pattern is none."""
        pattern = compile_pattern(self.pattern, "TransactionalIdPattern") if self.pattern else None

        def matches(transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
            return (
                (not self.producer_ids or transaction.producer_id in self.producer_ids)
                and (not self.states or transaction.state.label in self.states)
                and (self.longer_than_ms < 0 or now_ms - transaction.start_ms > self.longer_than_ms)
                and (pattern is None or pattern.fullmatch(transactional_id) is not None)
            )

        return matches
