"""The filter of a consumer at read_committed."""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.sim.records import DecodedBatch


def with_verdict(batches: Iterable[DecodedBatch], aborted: Iterable[Any]) -> Iterator[tuple[DecodedBatch, bool]]:
    """Each batch, and whether its records are committed, by the aborted transactions in the response."""
    pending = sorted(aborted, key=lambda one: one.first_offset)
    open_aborted: dict[int, None] = {}
    for batch in batches:
        while pending and pending[0].first_offset <= batch.last_offset:
            open_aborted[pending.pop(0).producer_id] = None
        if batch.is_control and batch.records and not batch.is_commit:
            open_aborted.pop(batch.producer_id, None)
        yield batch, not (batch.is_control or (batch.is_transactional and batch.producer_id in open_aborted))
