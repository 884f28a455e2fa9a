"""The fast path of Produce requests.

One call of the kernel reads the frames that have arrived together, checks, numbers and stamps their batches and encodes
their responses. The batches are written a little later, together with those of other connections.

Rule 1: the kernel takes a request only if it is ordinary (`kernel/reference/produce_request`), and only for topics for
        which a request was decoded before (`known_topics`).
Rule 2: conditions that may have changed since then are checked again: whether this broker still leads the partition,
        whether its disk works, and which rules its batches are checked by.
Rule 3: all other requests are handled the normal way (`handlers/produce`): transactions, batches that were sent before
        or are refused, topics whose records are synced before they are acknowledged, partitions with too few replicas
        in sync, batches that open a new segment. Nothing of a request is written before this is decided.
Rule 4: the response is the same as that of the normal way. It is sent when the batches are written (`appends`).
"""

from typing import TYPE_CHECKING

from ottla.wire.api.produce import ProduceRequest

if TYPE_CHECKING:
    from ottla.broker.fastpath.appends import Appends, Asker
    from ottla.broker.fastpath.known_topics import KnownTopics

_BATCHES_MAX = 256
"""At most this many batches are taken at a time, so that other connections are served too."""


class ProduceLane:
    """The Produce lane of one connection."""

    def __init__(self, topics: "KnownTopics", appends: "Appends") -> None:
        self._topics = topics
        self._appends = appends
        self.version = -1

    def take(self, asker: "Asker", data: memoryview, position: int) -> int | None:
        """Take the requests from `position` on, which is where the size of the first is.

        Returns where they end; None if the first has to be handled the normal way."""
        return self._appends.take(asker, data, position, _BATCHES_MAX)

    def learn(self, request: ProduceRequest, version: int) -> None:
        """Note a request that was handled the normal way, so that the lane can take later ones for its topics."""
        self.version = version
        if request.transactional_id is None:
            self._topics.learn(request, version)
