"""The partition of a record.

Rule 1: records of equal keys go to the same partition, the one Kafka's own clients choose: murmur2 of the key's bytes,
        without its sign, modulo the number of partitions. Only adding partitions moves keys.
Rule 2: records without a key stay with one partition until a batch's worth of bytes went there, then move to another
        drawn at random (KIP-794): batches are full, and the partitions' shares even out.
Rule 3: only records without a key avoid partitions without a leader; the partition of a key never depends on
        availability.
"""

from collections.abc import Sequence

from ottla.kernel import murmur2
from ottla.rpc.chance import RandomNumbers


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


class StickyPartition:
    """The current partition for a topic's records without a key."""

    def __init__(self, stick_bytes: int, chance: RandomNumbers) -> None:
        self._stick_bytes = stick_bytes
        self._chance = chance
        self._current: int | None = None
        self._filled = 0

    def choose(self, available: Sequence[int], size: int) -> int:
        """The partition for a record of `size` bytes; `available` are those with a leader, at least one."""
        if self._current is None or self._current not in available or self._filled >= self._stick_bytes:
            others = [partition for partition in available if partition != self._current] or available
            self._current = others[self._chance.randrange(len(others))]
            self._filled = 0
        self._filled += size
        return self._current
