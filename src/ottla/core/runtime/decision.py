"""The decision of a replicated state machine: records to write, and replies to be sent when they are committed.

Rule 1: deciding changes nothing. `replay` is the only mutator of what is durable, live and at load; what is not durable
        (parked requests, deadlines, a rebalance under way) is changed by `accept`. A decision may be dropped, because
        its records do not fit into a batch, and leaves no trace then.
Rule 2: the records of one decision are written in one batch: all of them count or none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, NewType, TypeVar

R = TypeVar("R")

Token = NewType("Token", int)
"""Identifies a request that is being handled, so that a later decision can answer it."""

PARKED: Final[Any] = object()
"""The reply of a decision that does not answer its request: a later decision does, by the token in its `wake`."""


class Decision(NamedTuple, Generic[R]):
    """Records and replies of one request or timer."""

    reply: R
    """Sent when the records are committed; or PARKED."""
    records: Sequence[Any] = ()
    """`CoordinatorRecord`s, or instances of the classes of `wire/records/metadata`."""
    wake: Sequence[tuple[Token, object]] = ()
    """Answers to parked requests, sent together with the reply."""
    accept: Callable[[], None] | None = None
    """Called once the records are replayed, before anything else is decided: changes what is not durable."""
