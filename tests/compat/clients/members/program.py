"""A member of a group as a program: orders come in by lines, what happens goes out by lines of JSON.

Rule 1: a member commits what it polled before it gives a partition up, so that whoever gets the partition
        goes on exactly there.
Rule 2: it ends when it is told to leave, when nobody is left to give orders, or with its client's error, told first.
"""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from queue import Empty, Queue
from threading import Thread

from members.clients import client_of
from members.interface import Joining, Listener, Member, Polled

LEAVE, COMMIT, GO_ON = "leave", "commit", "go on"
PRODUCED, OFFSETS_SENT = "produced", "offsets sent"
"""Points inside a transaction where a program may be told to stand still."""


def tell(event: str, what: object = None) -> None:
    print(json.dumps([event, what]), flush=True)


class Orders:
    """Lines from whoever started the program; the end of them is the order to leave."""

    def __init__(self) -> None:
        self._waiting: Queue[str] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._waiting.put(line.strip())
        self._waiting.put(LEAVE)

    def next(self) -> str | None:
        try:
            return self._waiting.get_nowait()
        except Empty:
            return None

    def wait(self) -> str:
        return self._waiting.get()


class Part:
    """A member and how far it has read."""

    def __init__(self, client: str, joining: Joining) -> None:
        self.positions: dict[int, int] = {}
        self._owned: set[int] = set()
        self._member: Member | None = None
        self._member = client_of(client).join(
            joining, Listener(self._polled, self._assigned, self._revoked, self._lost)
        )

    @property
    def member(self) -> Member:
        assert self._member is not None, "partitions came before the member was made"
        return self._member

    def poll(self) -> list[Polled]:
        return self.member.poll()

    def commit(self) -> None:
        if self.positions:
            self.member.commit(self.positions)

    def _polled(self, records: Sequence[Polled]) -> None:
        self.positions |= {one.partition: one.offset + 1 for one in records if one.partition in self._owned}

    def _assigned(self, partitions: Sequence[int]) -> None:
        self._owned |= set(partitions)
        tell("assigned", list(partitions))

    def _revoked(self, partitions: Sequence[int]) -> None:
        read = self._forget(partitions)
        if read:
            self.member.commit(read)
        tell("revoked", list(partitions))

    def _lost(self, partitions: Sequence[int]) -> None:
        self._forget(partitions)
        tell("lost", list(partitions))

    def _forget(self, partitions: Sequence[int]) -> Mapping[int, int]:
        self._owned -= set(partitions)
        return {one: self.positions.pop(one) for one in partitions if one in self.positions}


def take_part(orders: Orders, client: str, joining: Joining) -> None:
    """Read; commit when told to, and before partitions go."""
    part = Part(client, joining)
    while True:
        order = orders.next()
        if order == COMMIT:
            part.commit()
            tell("committed")
        elif order == LEAVE:
            part.commit()
            part.positions.clear()
            part.member.close()
            return
        records = part.poll()
        if records:
            tell("got", records)


def transform(
    orders: Orders, client: str, joining: Joining, target: str, transactional_id: str, stand_still: Sequence[object]
) -> None:
    """Carry records to another topic, each poll in a transaction together with the offsets read.

    Stands still, if told to, at a point of the transaction of a number, until it is told to go on.
    """
    writer = client_of(client).writer(joining.bootstrap, transactional_id)
    tell("ready")
    part = Part(client, joining)
    transaction = 0

    def reached(point: str) -> None:
        if [transaction, point] == stand_still:
            tell("still")
            orders.wait()

    while orders.next() != LEAVE:
        records = part.poll()
        if not records:
            continue
        writer.begin()
        for record in records:
            writer.send(target, record.value)
        writer.flush()
        reached(PRODUCED)
        if not part.positions:
            writer.abort()  # The partitions went in mid-transaction: their next owner reads these records.
            continue
        writer.send_offsets(joining.topic, part.positions, part.member.metadata())
        reached(OFFSETS_SENT)
        writer.commit()
        tell("committed", len(records))
        transaction += 1
    part.positions.clear()
    part.member.close()
    writer.close()


def main() -> int:
    task, client, joining, *rest = json.loads(sys.argv[1])
    logging.disable()  # Nodes are killed on purpose: that a client lost its connection is no news.
    tasks = {"take part": take_part, "transform": transform}
    try:
        tasks[task](Orders(), client, Joining(*joining), *rest)
    except Exception as error:
        tell("failed", repr(error))
        return 1
    tell("left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
