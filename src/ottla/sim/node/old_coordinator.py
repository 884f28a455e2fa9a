"""A replaced transaction coordinator that sends its markers once more.

Rule 1: only for transactions that have certainly ended: their producer has written in the next one since.
Rule 2: it must be refused, however long the producer has been idle. Otherwise the coordinator epoch in the log would
        decrease, and an old marker would end a current transaction (KAFKA-9144).
"""

from typing import NamedTuple

from ottla.sim.node.ledger import Key, name_of
from ottla.sim.node.scene import Line, Scene
from ottla.sim.node.transaction_history import RecordedTransaction
from ottla.sim.played import Violation
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error

_BEFORE_ANY = -1
"""An epoch before that of every coordinator."""
_EPOCH_MAX = 2**15 - 1
_FENCED = (Error.TRANSACTION_COORDINATOR_FENCED, Error.INVALID_PRODUCER_EPOCH)
_NOT_NOW = (Error.NOT_LEADER_OR_FOLLOWER, Error.KAFKA_STORAGE_ERROR, Error.UNKNOWN_TOPIC_OR_PARTITION)


class _Ended(NamedTuple):
    producer_id: int
    epoch: int
    life: int


class OldCoordinator:
    """The old coordinator of one transactional id."""

    def __init__(self, scene: Scene, line: Line) -> None:
        self._scene = scene
        self._line = line
        self._transaction: RecordedTransaction | None = None
        self._written: dict[Key, _Ended] = {}
        """By the current transaction."""
        self._ended: dict[Key, _Ended] = {}

    def wrote(self, transaction: RecordedTransaction, where: Key, producer_id: int, epoch: int) -> None:
        """Records were acknowledged: the previous transaction's partitions have their markers."""
        if transaction is not self._transaction:
            self._transaction = transaction
            self._ended |= self._written
            self._written = {}
        plan = self._scene.ledger.partition(where).plan
        if plan.kept and not plan.compacts:
            self._written[where] = _Ended(producer_id, epoch, self._scene.ledger.lives)

    async def speak(self) -> None:
        """Send a marker as a coordinator that was replaced. The node must refuse it. Raises ClientError."""
        random, ledger = self._scene.random, self._scene.ledger
        candidates = [
            (where, one)
            for where, one in self._ended.items()
            if ledger.partition(where).plan.is_synced or one.life == ledger.lives
        ]
        if not candidates:
            return
        where, ended = random.choice(candidates)
        name = self._scene.name_of(where[0])
        assert name is not None
        marker = WritableTxnMarker(
            producer_id=ended.producer_id,
            # In version 2, and after a time-out, markers have the next epoch.
            producer_epoch=min(ended.epoch + random.randint(0, 1), _EPOCH_MAX),
            transaction_result=random.random() < 0.5,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[where[1]])],
            coordinator_epoch=_BEFORE_ANY,
        )
        life = ledger.lives
        answer = await self._line.call(WriteTxnMarkersRequest(markers=[marker]))
        error = Error(answer.markers[0].topics[0].partitions[0].error_code)
        self._scene.note(f"{self._line.name}: an old coordinator was told {error.name}")
        is_kept = ledger.partition(where).plan.is_synced or life == ledger.lives
        if error not in (*_FENCED, *_NOT_NOW) and is_kept:
            raise Violation(
                "I19",
                f"{name_of(where)}: producer {ended.producer_id} had a marker from an old coordinator: {error.name}",
            )
