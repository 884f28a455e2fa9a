"""Requests that are answered without being decoded: the interface of a fast path to connections.

Rule 1: a shortcut gives the response that the handler would have given, or declines. Then the request is decoded and
        handled, and passed to `learn`.
Rule 2: Produce requests that were taken are written and answered by `FastPath.write`. Nothing else changes a partition,
        and nothing else is answered on the connection, before that.
Rule 3: a node works without a fast path: `NO_FAST_PATH` declines everything.
"""

from typing import TYPE_CHECKING, Protocol

from ottla.broker.network.dispatch import Frame, Parked
from ottla.wire.frame import Request

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection


class Shortcuts(Protocol):
    """The shortcuts of one connection."""

    takes_produce: bool
    """Whether any Produce request can be taken; set by the fast path when it has learnt one."""
    takes_fetch: bool

    def take_produce(self, connection: "Connection", data: memoryview, position: int, /) -> int | None:
        """Take the Produce requests from `position` on, where the size of the first is.

        Returns where they end; None if the first is not taken.
        """

    def take_fetch(self, frame: memoryview, /) -> Frame | Parked | None:
        """The response, or a Parked that yields it; None if the request is not taken."""

    def learn(self, frame: memoryview, request: Request, /) -> None:
        """Called after a request was decoded, so that a shortcut can take similar ones later."""

    def version_of(self, api_key: int, /) -> int:
        """The version of the requests that are taken, for the log."""


class FastPath(Protocol):
    """The fast path of a node."""

    def shortcuts(self, listener: str, /) -> Shortcuts:
        """Shortcuts for a new connection."""

    def write(self) -> None:
        """Append the batches that were taken, and answer them."""


class _NoShortcuts:
    takes_produce = False
    takes_fetch = False

    def take_produce(self, _connection: "Connection", _data: memoryview, _position: int, /) -> int | None:
        return None

    def take_fetch(self, _frame: memoryview, /) -> Frame | Parked | None:
        return None

    def learn(self, frame: memoryview, request: Request, /) -> None:
        """Does nothing: there are no shortcuts that could learn."""

    def version_of(self, _api_key: int, /) -> int:
        return -1


class _NoFastPath:
    _shortcuts = _NoShortcuts()

    def shortcuts(self, _listener: str, /) -> Shortcuts:
        return self._shortcuts

    def write(self) -> None:
        """Does nothing: without shortcuts no request was taken."""


NO_FAST_PATH: FastPath = _NoFastPath()
