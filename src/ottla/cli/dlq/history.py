"""Finds which dead letters earlier redrives have sent back, so that none is sent twice.

Rule 1: every redrive order has a consumer group. Its committed offsets are written in the transactions that send
        letters back and hold its position in each partition. Their metadata hold the order.
Rule 2: a letter was sent back if the order of any group includes it and the group's position is past it. So an order
        that overlaps with an earlier one sends only the rest, and one that was interrupted continues.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.dlq.letters import DeadLetter, LetterFilter
from ottla.client import Admin, Client, ClientError, TopicPartition
from ottla.client.group_offsets import settled_offsets

PREFIX: Final = "ottla.dlq.redrive"


@dataclass(frozen=True)
class RedriveOrder:
    """Which letters to send back, where to, and how often a record may have been sent back before."""

    choice: LetterFilter
    to: str | None
    redrives_max: int

    def sends(self, letter: DeadLetter) -> bool:
        origin = letter.origin
        return (
            self.choice.takes(letter) and (self.to or origin.topic) is not None and origin.redrives < self.redrives_max
        )

    @property
    def metadata(self) -> str:
        document = {"choice": self.choice.document(), "to": self.to, "redrives_max": self.redrives_max}
        return json.dumps(document, separators=(",", ":"), sort_keys=True)

    def group_id(self, topic: str) -> str:
        digest = hashlib.sha256(self.metadata.encode()).hexdigest()
        return f"{PREFIX}.{topic}.{digest[:12]}"

    @classmethod
    def read(cls, metadata: str) -> "RedriveOrder | None":
        """None if the metadata are not a redrive order."""
        try:
            told = json.loads(metadata)
            return cls(LetterFilter.from_document(told["choice"]), told["to"], int(told["redrives_max"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


class RedriveHistory:
    """The position of each redrive order in the partitions of a dead-letter topic."""

    def __init__(self, done: dict[TopicPartition, list[tuple[RedriveOrder, int]]]) -> None:
        self._done = done

    def has_sent(self, letter: DeadLetter) -> bool:
        done = self._done.get(letter.place, ())
        return any(letter.record.offset < position and order.sends(letter) for order, position in done)

    def positions(self, order: RedriveOrder) -> dict[TopicPartition, int]:
        """The offsets at which the order continues."""
        return {place: position for place, done in self._done.items() for other, position in done if other == order}


async def history_of(client: Client, topic: str, partitions: Sequence[TopicPartition]) -> RedriveHistory:
    """The history of these partitions of a dead-letter topic. Raises ClientError."""
    listed = await Admin(client).list_groups()
    groups: list[str] = []
    for outcome in listed.values():
        if isinstance(outcome, ClientError):
            raise outcome
        groups += [one.group_id for one in outcome if one.group_id.startswith(f"{PREFIX}.{topic}.")]
    done: dict[TopicPartition, list[tuple[RedriveOrder, int]]] = {}
    for offsets in (await settled_offsets(client, groups, partitions)).values() if groups else ():
        if isinstance(offsets, ClientError):
            raise offsets
        for place, committed in offsets.items():
            order = RedriveOrder.read(committed.metadata)
            if order is not None and place.topic == topic:
                done.setdefault(place, []).append((order, committed.offset))
    return RedriveHistory(done)
