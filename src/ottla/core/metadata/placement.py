"""Chooses the brokers for the replicas of new partitions.

Rule 1: no two replicas of a partition are on one broker. The first one, which leads, is on a broker that is not fenced.
Rule 2: replicas are placed round-robin over the racks, and over the brokers within a rack. Each partition starts one
        rack and one broker after the previous partition. Both start positions are random, so that the partitions of
        small topics do not all go to the first broker.
Rule 3: the orders are shuffled each time every broker has led once. Otherwise, when a broker fails, the same neighbour
        would take over all its partitions.
Rule 4: fenced brokers come last within their rack, and get replicas only if the others do not suffice.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from ottla.core.metadata.image import UNASSIGNED_DIRECTORY, Broker, Image
from ottla.wire.errors import Error, Refused

T = TypeVar("T")


class PlacementRandom(Protocol):
    def randrange(self, stop: int, /) -> int: ...


class Usable:
    """The brokers that may get replicas, by rack."""

    def __init__(self, brokers: Iterable[Broker], chance: PlacementRandom) -> None:
        listed = sorted((broker for broker in brokers if _usable(broker)), key=lambda broker: broker.broker_id)
        racks: dict[str | None, _Rack] = {}
        for broker in listed:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.alive).brokers.append(broker.broker_id)
        self.total = len(listed)
        self.alive = sum(not broker.fenced for broker in listed)
        self._racks = [racks[name] for name in sorted(racks, key=lambda name: (name is not None, name or ""))]
        self._chance = chance
        self._offset = chance.randrange(len(self._racks)) if self._racks else 0
        self._epoch = 0
        for rack in self._racks:
            rack.start_by(chance)

    def place(self, replication_factor: int) -> list[int]:
        """The brokers for the replicas of the next partition, the leader first."""
        self._check(replication_factor)
        if self._epoch and self._epoch % self.alive == 0:
            _shuffle(self._racks, self._chance)
            for rack in self._racks:
                _shuffle(rack.alive.brokers, self._chance)
                _shuffle(rack.fenced.brokers, self._chance)
        self._offset %= len(self._racks)
        first_rack, leader = self._leader()
        replicas, turn = [leader], self._offset
        skip: int | None = first_rack  # Skipped once in the first round, because it already has the leader.
        while len(replicas) < replication_factor:
            if turn == skip:
                skip = None
            else:
                broker = self._racks[turn].next(self._epoch)
                if broker is not None:
                    replicas.append(broker)
            turn = (turn + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return replicas

    def _leader(self) -> tuple[int, int]:
        turn = self._offset
        while True:
            broker = self._racks[turn].alive.next(self._epoch)
            if broker is not None:
                return turn, broker
            turn = (turn + 1) % len(self._racks)

    def _check(self, replication_factor: int) -> None:
        if self.alive == 0:
            raise Refused(
                Error.INVALID_REPLICATION_FACTOR, "no broker can take replicas: all are fenced, stopping or cordoned"
            )
        if replication_factor > self.total:
            raise Refused(
                Error.INVALID_REPLICATION_FACTOR,
                f"{replication_factor} replicas need as many brokers, and {self.total} can take any",
            )


class _Ring:
    """Brokers in round-robin order. A partition, identified by `epoch`, gets each broker at most once."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._epoch = 0
        self._taken = 0
        self._offset = 0

    def start_by(self, chance: PlacementRandom) -> None:
        if self.brokers:
            self._offset = chance.randrange(len(self.brokers))

    def next(self, epoch: int) -> int | None:
        if self._epoch != epoch:
            self._epoch, self._taken = epoch, 0
            self._offset += 1
        if self._taken >= len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._offset + self._taken - 1) % len(self.brokers)]


class _Rack:
    def __init__(self) -> None:
        self.alive = _Ring()
        self.fenced = _Ring()

    def start_by(self, chance: PlacementRandom) -> None:
        self.alive.start_by(chance)
        self.fenced.start_by(chance)

    def next(self, epoch: int) -> int | None:
        broker = self.alive.next(epoch)
        return broker if broker is not None else self.fenced.next(epoch)


def default_directory(image: Image, broker_id: int) -> bytes:
    """The directory of a broker's new replica: its only directory, or else UNASSIGNED_DIRECTORY."""
    broker = image.brokers.get(broker_id)
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return UNASSIGNED_DIRECTORY


def _usable(broker: Broker) -> bool:
    all_cordoned = bool(broker.cordoned) and all(one in (broker.cordoned or ()) for one in broker.directories)
    return not broker.in_controlled_shutdown and not all_cordoned


def _shuffle(items: list[T], chance: PlacementRandom) -> None:
    for index in range(len(items) - 1, 0, -1):
        other = chance.randrange(index + 1)
        items[index], items[other] = items[other], items[index]
