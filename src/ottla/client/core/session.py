"""Fetch sessions (KIP-227): requests contain only changed partitions, responses only partitions with news.

Rule 1: epoch 0 with all partitions opens a session; the response names it, and each request increments the epoch.
Rule 2: a partition that is not wanted any more is listed as forgotten, or the broker would go on sending it.
Rule 3: an error of a whole response, or a lost response, ends the session: the next request opens a new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.core.names import TopicPartition

NO_SESSION: Final = 0
NEW: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class PartitionFetch(NamedTuple):
    """The entry of one partition in a fetch request."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """The partitions to put into the next request."""

    session_id: int
    epoch: int
    partitions: dict[TopicPartition, PartitionFetch]  # To be sent, in the order to be served.
    forgotten: dict[TopicPartition, PartitionFetch]


@dataclass(slots=True)
class FetchSession:
    """A fetch session with one broker."""

    session_id: int = NO_SESSION
    epoch: int = NEW
    # The partitions that the broker's session has.
    known: dict[TopicPartition, PartitionFetch] = field(default_factory=dict)

    def request(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> SessionRequest:
        """The request that makes the broker serve exactly `wanted`."""
        if self.epoch == NEW:
            self.known = dict(wanted)
            return SessionRequest(NO_SESSION, NEW, dict(wanted), {})
        changed = {partition: asked for partition, asked in wanted.items() if self.known.get(partition) != asked}
        # A topic re-created under its old name has another id: the broker must forget the old one.
        forgotten = {
            partition: asked
            for partition, asked in self.known.items()
            if partition not in wanted or wanted[partition].topic_id != asked.topic_id
        }
        self.known = dict(wanted)
        return SessionRequest(self.session_id, self.epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request succeeded; the broker may have declined to keep a session."""
        if session_id == NO_SESSION:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = NEW
        self.known = {}
