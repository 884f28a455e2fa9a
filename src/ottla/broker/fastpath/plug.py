"""The lanes of a node as its connections see them (`network/shortcuts`).

The modules of the lanes are imported when the first request was decoded that a lane could take, as handlers are. A node
starts without them.
"""

from typing import TYPE_CHECKING

from ottla.broker.network.connection import SHARED_BUFFER_BYTES
from ottla.broker.network.dispatch import Frame, Parked
from ottla.wire.api import ApiKey
from ottla.wire.frame import Request

if TYPE_CHECKING:
    from ottla.broker.fastpath.appends import Appends
    from ottla.broker.fastpath.fetch_lane import FetchLanes
    from ottla.broker.fastpath.known_topics import KnownTopics
    from ottla.broker.fastpath.produce_lane import ProduceLane
    from ottla.broker.network.connection import Connection
    from ottla.broker.node import Node


class LaneFastPath:
    """Creates the lanes of a node's connections, and holds the state that they share."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self._topics: KnownTopics | None = None
        self._appends: Appends | None = None

    def shortcuts(self, listener: str, /) -> "Lanes":
        return Lanes(self, listener)

    def write(self) -> None:
        if self._appends is not None:
            self._appends.write()

    def produce_lane(self) -> "ProduceLane":
        """A Produce lane for one connection. All connections share the known topics, and the batches to write."""
        from ottla.broker.fastpath.appends import Appends
        from ottla.broker.fastpath.known_topics import KnownTopics
        from ottla.broker.fastpath.produce_lane import ProduceLane

        if self._topics is None or self._appends is None:
            self._topics = KnownTopics(self.node)
            self._appends = Appends(self._topics, self.node.clock)
        return ProduceLane(self._topics, self._appends)

    def fetch_lanes(self, listener: str) -> "FetchLanes":
        from ottla.broker.fastpath.fetch_lane import FetchLanes

        return FetchLanes(self.node, listener)


class Lanes:
    """The lanes of one connection. The lanes of an API are created when its first request was decoded."""

    __slots__ = ("_fast_path", "_fetch", "_listener", "_produce", "takes_fetch", "takes_produce")

    def __init__(self, fast_path: LaneFastPath, listener: str) -> None:
        self.takes_produce = self.takes_fetch = False
        self._fast_path, self._listener = fast_path, listener
        self._produce: ProduceLane | None = None
        self._fetch: FetchLanes | None = None

    def take_produce(self, connection: "Connection", data: memoryview, position: int, /) -> int | None:
        assert self._produce is not None
        return self._produce.take(connection, data, position)

    def take_fetch(self, frame: memoryview, /) -> Frame | Parked | None:
        assert self._fetch is not None
        return self._fetch.take(frame)

    def learn(self, frame: memoryview, request: Request, /) -> None:
        if request.api_key == ApiKey.PRODUCE:
            if self._produce is None:
                if self._fast_path.node.request_bytes_max < SHARED_BUFFER_BYTES:
                    return  # Lanes take all that has arrived, and would not notice that a request is too large.
                self._produce, self.takes_produce = self._fast_path.produce_lane(), True
            self._produce.learn(request.body, request.version)
        elif request.api_key == ApiKey.FETCH:
            if self._fetch is None:
                self._fetch, self.takes_fetch = self._fast_path.fetch_lanes(self._listener), True
            self._fetch.learn(frame, request.body, request.version)

    def version_of(self, api_key: int, /) -> int:
        lanes = self._produce if api_key == ApiKey.PRODUCE else self._fetch
        return -1 if lanes is None else lanes.version
