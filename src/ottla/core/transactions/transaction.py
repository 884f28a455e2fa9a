"""The state of one transactional id: its producer, its transaction, and the steps between the states.

    Empty ----------+--> Ongoing --+--> PrepareCommit --> CompleteCommit
    CompleteCommit -+              |
    CompleteAbort --+--------------+--> PrepareAbort ---> CompleteAbort

Rule 1: a step returns a new value and changes nothing in place. The value after the step is written to the log.
Rule 2: Prepare is final: only the markers and then Complete can follow, whichever broker is the coordinator.
Rule 3: a transaction that its producer did not end is aborted with a higher epoch, so that the producer cannot continue
        as if it were still open (KAFKA-6119). Version 2 raises the epoch at every end (KIP-890). A late request of one
        transaction can then never be taken for a request of the next.
Rule 4: clients never get the largest epoch, which is reserved for fencing. A producer that has used all other epochs
        gets a new producer id: in version 2 at the end of its transaction, otherwise at its next InitProducerId.
Rule 5: version 1 of the record also contains the producer ids before and after a step. A client that missed the
        response to a change of producer id can then get it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.wire.records.transactions import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 2**15 - 1
NO_TIMEOUT: Final = 2**31 - 1
"""The time-out of a transaction that an external coordinator ends (KIP-939). It never expires."""

FLEXIBLE_STATE: Final = 1
"""Transaction version from which on the log contains more than one producer id."""
EPOCH_PER_TRANSACTION: Final = 2
"""Transaction version from which on every end raises the epoch (KIP-890)."""

TopicPartition = tuple[str, int]


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


class TransactionState(IntEnum):
    """The log contains the number, and responses to clients the label (`PrepareCommit`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id expires. Never written, because the record is a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced. Never written, because fencing and the abort that follows are one step."""

    @property
    def label(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or prepared."""
        return self in _IDLE


_IDLE: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
STATE_BY_LABEL: Final = {state.label: state for state in TransactionState}
_COMES_FROM: Final[dict[TransactionState, tuple[TransactionState, ...]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: (TransactionState.ONGOING, *_IDLE),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (TransactionState.ONGOING, *_IDLE),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id in the log."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the client uses from then on. The markers still need the old id."""
    client_version: int = 0
    """Transaction version that the client uses."""

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether clients may get no later epoch than this one."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def is_commit(self) -> bool:
        """Whether a prepared transaction commits."""
        return self.state is TransactionState.PREPARE_COMMIT

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT
            and self.start_ms + self.timeout_ms < now_ms
        )

    # Steps.

    def initialized(self, producer: ProducerIdentity, timeout_ms: int, now_ms: int) -> "Transaction":
        """The step after InitProducerId: a producer starts to use the transactional id."""
        return self._step(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        """Add partitions to the transaction. The first ones open it."""
        return self._step(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(added),
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, commit: bool, client_version: int, next_producer_id: int, fence: bool, now_ms: int
    ) -> "Transaction":
        """Prepare to commit or abort. `fence` means that the producer did not request it."""
        raises = fence or client_version >= EPOCH_PER_TRANSACTION
        return self._step(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            # At the largest epoch only an abort is possible, and the epoch cannot be raised.
            producer_epoch=min(self.producer_epoch + raises, EPOCH_MAX),
            next_producer_id=next_producer_id,
            # An abort without an open transaction gets a start time, as its record needs one.
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int, *, is_outdated: bool = False) -> "Transaction":
        """Complete the transaction after all markers are written.

        `is_outdated` means that a partition has seen a later epoch of the producer, which the coordinator lost in a
        power loss. The epochs that would come next cannot be trusted, so they count as used.
        """
        producer = self.after_completion
        epoch = max(producer.epoch, EPOCH_MAX - 1) if is_outdated and producer == self.producer else producer.epoch
        return self._step(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    @property
    def after_completion(self) -> ProducerIdentity:
        """The identity that the client uses after a prepared transaction is completed."""
        if self.client_version >= EPOCH_PER_TRANSACTION and self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.producer

    def _step(self, to: TransactionState, now_ms: int, **changes: Any) -> "Transaction":
        assert self.state in _COMES_FROM[to], f"{self.state.label} cannot become {to.label}"
        return replace(self, state=to, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # The log.

    def as_value(self, value_version: int) -> TransactionLogValue:
        """The value of the record. Version 0 contains only one producer id."""
        is_flexible = value_version >= 1
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic(self.partitions).items()
        ]
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if is_flexible else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if is_flexible else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            next_producer_epoch=NO_EPOCH,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is TransactionState.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version if is_flexible else 0,
        )

    @classmethod
    def from_value(cls, value: TransactionLogValue) -> "Transaction":
        return cls(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=TransactionState(value.transaction_status),
            last_update_ms=value.transaction_last_update_timestamp_ms,
            partitions=frozenset(
                (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            client_version=value.client_transaction_version,
        )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics
