"""The filters of ListTransactions."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.core.patterns import compile_pattern
from ottla.core.transactions.transaction import STATE_BY_LABEL, Transaction


class Filters(NamedTuple):
    """The filters of a request. An empty filter does not restrict the list."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    """Minimum time since the start, in ms. As in Kafka, the start of an id without a transaction is time 0."""
    pattern: str = ""

    def unknown_states(self) -> frozenset[str]:
        return self.states - STATE_BY_LABEL.keys()

    def matcher(self) -> Callable[[str, Transaction, int], bool]:
        """Raises Refused with INVALID_REGULAR_EXPRESSION if the pattern cannot be compiled."""
        pattern = compile_pattern(self.pattern, "TransactionalIdPattern") if self.pattern else None

        def matches(transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
            return (
                (not self.producer_ids or transaction.producer_id in self.producer_ids)
                and (not self.states or transaction.state.label in self.states)
                and (self.longer_than_ms < 0 or now_ms - transaction.start_ms > self.longer_than_ms)
                and (pattern is None or pattern.fullmatch(transactional_id) is not None)
            )

        return matches
