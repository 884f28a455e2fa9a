"""Fetch sessions (KIP-227): only what changed is sent, only what has news is answered.

Rule 1: epoch 0 with all partitions opens a session; the broker's answer names it, and each request counts one up.
Rule 2: a partition that is not asked for any more is named as forgotten, or the broker would go on sending it.
Rule 3: any error of a whole answer, and any lost answer, ends the session: the next request opens a new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.core.names import TopicPartition

NO_SESSION: Final = 0
NEW: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class Asked(NamedTuple):
    """What a fetch says of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    partitions: dict[TopicPartition, Asked]  # To be sent, in the order to be served.
    forgotten: dict[TopicPartition, Asked]


@dataclass(slots=True)
class FetchSession:
    session_id: int = NO_SESSION
    epoch: int = NEW
    known: dict[TopicPartition, Asked] = field(default_factory=dict)  # What the broker has of us.

    def request(self, wanted: Mapping[TopicPartition, Asked]) -> SessionRequest:
        """What to send so that the broker serves exactly `wanted`."""
        if self.epoch == NEW:
            self.known = dict(wanted)
            return SessionRequest(NO_SESSION, NEW, dict(wanted), {})
        changed = {partition: asked for partition, asked in wanted.items() if self.known.get(partition) != asked}
        # A topic made anew under its old name has another id: the broker must forget the old.
        forgotten = {
            partition: asked
            for partition, asked in self.known.items()
            if partition not in wanted or wanted[partition].topic_id != asked.topic_id
        }
        self.known = dict(wanted)
        return SessionRequest(self.session_id, self.epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request was answered without an error; the broker may have declined to keep a session."""
        if session_id == NO_SESSION:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = NEW
        self.known = {}
