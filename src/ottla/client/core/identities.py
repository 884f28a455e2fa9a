"""Producer ids and sequence numbers, by which a broker detects a batch that is sent twice.

Rule 1: a sequence is used up when its batch is acknowledged. A refused batch was not written, so the next one takes the
        same number; a retried batch keeps its number.
Rule 2: after a batch with unknown outcome, no number is right for the next one. The partition gets a new producer id
        and starts at 0; other partitions keep theirs.
"""

from dataclasses import dataclass

from ottla.client.core.accumulator import Batch, Stamp
from ottla.client.core.names import TopicPartition
from ottla.kernel import increment_sequence


@dataclass(slots=True)
class PartitionIdentity:
    """Producer id, epoch and next sequence of one partition."""

    producer_id: int
    producer_epoch: int
    sequence: int = 0


class Identities:
    """The identity of each partition; `current` is given to partitions that have none."""

    def __init__(self, *, transactional: bool = False) -> None:
        self.current: tuple[int, int] | None = None
        self._transactional = transactional
        self._by_partition: dict[TopicPartition, PartitionIdentity] = {}

    def stamp(self, batch: Batch) -> bool:
        """Stamp the batch with its identity; false if a producer id must be requested first."""
        if batch.stamp is not None:
            return True
        identity = self._by_partition.get(batch.partition)
        if identity is None:
            if self.current is None:
                return False
            identity = self._by_partition[batch.partition] = PartitionIdentity(*self.current)
        batch.stamp = Stamp(identity.producer_id, identity.producer_epoch, identity.sequence, self._transactional)
        return True

    def acknowledged(self, batch: Batch) -> None:
        identity = self._by_partition.get(batch.partition)
        used = batch.stamp
        if identity is not None and used is not None and used[:2] == (identity.producer_id, identity.producer_epoch):
            identity.sequence = increment_sequence(used.sequence, len(batch.drafts))

    def restart(self, current: tuple[int, int]) -> None:
        """All partitions start at sequence 0, with an identity that none of them has used."""
        self.current = current
        self._by_partition.clear()

    def renew(self, partition: TopicPartition) -> None:
        """The partition's next batch needs a producer id that it has not used yet."""
        used = self._by_partition.pop(partition, None)
        if used is not None and self.current == (used.producer_id, used.producer_epoch):
            self.current = None
