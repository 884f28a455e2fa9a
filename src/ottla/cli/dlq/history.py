"""What was sent back before: by whom, and so which letters must not be sent again.

Rule 1: a redrive of some choice is a group. Its committed offsets, written in the transactions that send letters back,
        say how far it has come in each partition; their metadata say what the choice was.
Rule 2: a letter was sent back if the choice of any group takes it and the group has come past it. So a choice that
        overlaps with an earlier one sends the rest, and one that was interrupted goes on.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.dlq.letters import Choice, Letter
from ottla.client import Admin, Client, ClientError, TopicPartition
from ottla.client.group_offsets import settled_offsets

PREFIX: Final = "ottla.dlq.redrive"


@dataclass(frozen=True)
class Order:
    """What somebody wants sent back: a choice, where to, and whom to leave."""

    choice: Choice
    to: str | None
    redrives_max: int

    def sends(self, letter: Letter) -> bool:
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
    def read(cls, metadata: str) -> "Order | None":
        """None for what somebody else wrote."""
        try:
            told = json.loads(metadata)
            return cls(Choice.from_document(told["choice"]), told["to"], int(told["redrives_max"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


class History:
    """How far each order for a dead-letter topic has been carried out."""

    def __init__(self, done: dict[TopicPartition, list[tuple[Order, int]]]) -> None:
        self._done = done

    def has_sent(self, letter: Letter) -> bool:
        done = self._done.get(letter.place, ())
        return any(letter.record.offset < position and order.sends(letter) for order, position in done)

    def positions(self, order: Order) -> dict[TopicPartition, int]:
        """Where the order goes on."""
        return {place: position for place, done in self._done.items() for other, position in done if other == order}


async def history_of(client: Client, topic: str, partitions: Sequence[TopicPartition]) -> History:
    """What earlier orders have done with these partitions of a topic."""
    listed = await Admin(client).list_groups()
    groups: list[str] = []
    for outcome in listed.values():
        if isinstance(outcome, ClientError):
            raise outcome
        groups += [one.group_id for one in outcome if one.group_id.startswith(f"{PREFIX}.{topic}.")]
    done: dict[TopicPartition, list[tuple[Order, int]]] = {}
    for offsets in (await settled_offsets(client, groups, partitions)).values() if groups else ():
        if isinstance(offsets, ClientError):
            raise offsets
        for place, committed in offsets.items():
            order = Order.read(committed.metadata)
            if order is not None and place.topic == topic:
                done.setdefault(place, []).append((order, committed.offset))
    return History(done)
