"""The transactional ids of one partition of `__transaction_state`.

Rule 1: an id has one producer. InitProducerId fences the previous producer and aborts its open transaction.
Rule 2: a request is accepted if its producer id and epoch are those in the log. In version 2, an EndTxn with the
        previous epoch is a retry of the last one. An EndTxn with the current epoch is for the next transaction
        (KAFKA-17754).
Rule 3: while a prepared transaction waits for its markers, requests are answered CONCURRENT_TRANSACTIONS. That holds
        after a load as well.
Rule 4: transactions that exceed their time-out are aborted, and unused ids expire. As in Kafka, both are checked at
        intervals.

Not durable, and lost at a reload as in Kafka: the identity that the last change of epoch replaced (a retry of that
change gets the same result), and the markers of a prepared transaction that are already written.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin
from ottla.core.transactions.transaction import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    FLEXIBLE_STATE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOBODY,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.records.transactions import TransactionLogKey, TransactionLogValue

R = TypeVar("R")

_FORGOTTEN_BYTES_MAX: Final = 256 * 1024
"""Total length of the ids that expire in one batch of tombstones. The other ids follow in the next batch."""


class Rules(NamedTuple):
    """The current settings of the node and features of the cluster."""

    transaction_version: int
    timeout_ms_max: int
    id_expiration_ms: int
    abort_interval_ms: int
    expiry_interval_ms: int


class ProducerIdWanted(Exception):
    """The decision needs a new producer id: give the shard one (`spare_producer_ids`) and decide again."""


class Markers(NamedTuple):
    """The markers of a prepared transaction that are still to be written."""

    producer: ProducerIdentity
    committed: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int


class TransactionShard:
    def __init__(
        self, coordinator_epoch: int, rules: Callable[[], Rules], on_prepared: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_prepared` is called with every transactional id whose markers have to be written."""
        self.coordinator_epoch = coordinator_epoch
        self._rules = rules
        self._on_prepared = on_prepared
        self._is_loaded = False
        self.transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._unmarked: dict[str, dict[TopicPartition, None]] = {}
        """By transactional id of a prepared transaction: the partitions whose marker is not known to be written."""
        self._outdated: dict[str, None] = {}
        """Ids of prepared transactions for which a partition has seen a later epoch of the producer."""
        self._replaced: dict[str, ProducerIdentity] = {}
        self.spare_producer_ids: list[int] = []
        self._abort_check_ms: int | None = None
        self._expiry_check_ms: int | None = None

    # Requests.

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int
    ) -> Decision[ProducerIdentity | None]:
        """Give an identity to a producer that starts to use the id. The reply is None if the open transaction is being
        aborted: the producer must then send the request again.

        `expected` is the current identity of a producer that continues after an error (KIP-360). Its epoch is checked
        only when no transaction is open. The open transaction of another producer is aborted first, and the repeated
        request is fenced.
        """
        rules = self._rules()
        if not 0 < timeout_ms <= rules.timeout_ms_max:
            raise Refused(
                Error.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms={timeout_ms}; possible are 1 to {rules.timeout_ms_max} "
                "(the broker's transaction.max.timeout.ms)",
            )
        known = self.transactions.get(transactional_id)
        if known is None:
            # The expected identity has expired meanwhile. A new one serves as well.
            new = ProducerIdentity(self._new_producer_id(), 0)
            first = Transaction(new.producer_id, NO_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms)
            self._replaced[transactional_id] = NOBODY
            return self._decided(transactional_id, first.initialized(new, timeout_ms, now_ms), new)
        _check_not_prepared(transactional_id, known)
        is_same_id = expected is None or expected.producer_id == known.producer_id
        if known.state is TransactionState.ONGOING and is_same_id:
            # No producer gets the epoch that fences. The client gets the next epoch when it repeats the request.
            return self._decided(transactional_id, self._aborted_for(transactional_id, known, now_ms), None)
        if expected is not None and expected != known.producer:
            if known.state.is_idle and expected == self._replaced.get(transactional_id):
                # The producer missed the response, so it gets the same one again.
                return self._decided(
                    transactional_id, known.initialized(known.producer, timeout_ms, now_ms), known.producer
                )
            raise _fenced(transactional_id, expected, known)
        producer = ProducerIdentity(known.producer_id, known.producer_epoch + 1)
        if known.is_epoch_exhausted:
            producer = ProducerIdentity(self._new_producer_id(), 0)
        self._replaced[transactional_id] = NOBODY if expected is None else known.producer
        return self._decided(transactional_id, known.initialized(producer, timeout_ms, now_ms), producer)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Decision[None]:
        """Add partitions that the transaction will write to. The first ones open the transaction."""
        known = self._known(transactional_id)
        _check_not_prepared(transactional_id, known)
        _check_producer(transactional_id, known, producer)
        wanted = frozenset(partitions)
        if known.state is TransactionState.ONGOING and wanted <= known.partitions:
            return Decision(None)
        return self._decided(transactional_id, known.with_partitions(wanted, client_version, now_ms), None)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """Whether records of the transaction may be written to these partitions (KIP-890)."""
        known = self._known(transactional_id)
        _check_producer(transactional_id, known, producer)
        _check_not_prepared(transactional_id, known)
        return {one: Error.NONE if one in known.partitions else Error.TRANSACTION_ABORTABLE for one in partitions}

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, client_version: int, now_ms: int
    ) -> Decision[ProducerIdentity]:
        """Prepare to commit or abort the transaction. The reply is the identity that the client uses from then on."""
        known = self._known(transactional_id)
        if client_version >= EPOCH_PER_TRANSACTION:
            is_retry = _check_end_of_version_2(transactional_id, known, producer)
            is_done = _is_ended_in_version_2(transactional_id, known, is_retry=is_retry, commit=commit)
        else:
            _check_producer(transactional_id, known, producer)
            _check_not_prepared(transactional_id, known)
            is_done = _is_ended(transactional_id, known, commit=commit)
        if is_done:
            return Decision(known.producer)
        next_producer_id = NO_PRODUCER_ID
        if client_version >= EPOCH_PER_TRANSACTION:
            if known.is_epoch_exhausted:
                next_producer_id = self._new_producer_id()
            self._replaced[transactional_id] = known.producer
        prepared = known.prepared(
            commit=commit, client_version=client_version, next_producer_id=next_producer_id, fence=False, now_ms=now_ms
        )
        return self._decided(transactional_id, prepared, prepared.after_completion)

    def described(self, transactional_id: str) -> tuple[Transaction, tuple[TopicPartition, ...]] | None:
        """The transaction and its partitions. For a prepared transaction, only the partitions without their marker."""
        known = self.transactions.get(transactional_id)
        if known is None:
            return None
        return known, tuple(self._unmarked.get(transactional_id, known.partitions))

    # Ending.

    def markers(self, transactional_id: str) -> Markers | None:
        """The markers that are still to be written; None if the transaction is not prepared."""
        unmarked = self._unmarked.get(transactional_id)
        if unmarked is None:
            return None
        known = self.transactions[transactional_id]
        return Markers(known.producer, known.is_commit, tuple(unmarked), self.coordinator_epoch, known.client_version)

    def markers_written(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        *,
        outdated: Iterable[TopicPartition] = (),
    ) -> Decision[None]:
        """Note partitions that have their marker or do not exist any more. The last one completes the transaction.

        `outdated` partitions have seen a later epoch of the producer, so they accept no marker of this epoch any more.
        """
        unmarked, known = self._unmarked.get(transactional_id), self.transactions.get(transactional_id)
        if unmarked is None or known is None or known.producer != producer:
            return Decision(None)
        for partition in partitions:
            unmarked.pop(partition, None)
        for partition in outdated:
            self._outdated[transactional_id] = None
            unmarked.pop(partition, None)
        if unmarked:
            return Decision(None)
        is_outdated = transactional_id in self._outdated
        return self._decided(transactional_id, known.completed(now_ms, is_outdated=is_outdated), None)

    # Timers.

    def loaded(self, now_ms: int) -> Decision[None]:
        rules = self._rules()
        self._abort_check_ms = now_ms + rules.abort_interval_ms
        self._expiry_check_ms = now_ms + rules.expiry_interval_ms
        self._is_loaded = True
        for transactional_id in self._unmarked:
            self._on_prepared(transactional_id)
        return Decision(None)

    def next_deadline(self) -> int | None:
        if not self.transactions or self._abort_check_ms is None or self._expiry_check_ms is None:
            return None
        return min(self._abort_check_ms, self._expiry_check_ms) if self._ongoing else self._expiry_check_ms

    def clock_set(self, by_ms: int) -> None:
        """Move the times of the next checks after the clock was set. Start times of transactions are wall times from
        the log and do not move."""
        if self._abort_check_ms is not None and self._expiry_check_ms is not None:
            self._abort_check_ms += by_ms
            self._expiry_check_ms += by_ms

    def tick(self, now_ms: int) -> Decision[None]:
        records: list[CoordinatorRecord] = []
        rules = self._rules()
        if self._abort_check_ms is not None and now_ms >= self._abort_check_ms:
            self._abort_check_ms = now_ms + rules.abort_interval_ms
            records += self._abort_timed_out(now_ms)
        if self._expiry_check_ms is not None and now_ms >= self._expiry_check_ms:
            forgotten = self._forget_unused(now_ms - rules.id_expiration_ms)
            records += forgotten
            self._expiry_check_ms = now_ms + (1 if forgotten else rules.expiry_interval_ms)
        return Decision(None, records)

    def _abort_timed_out(self, now_ms: int) -> list[CoordinatorRecord]:
        records = []
        for transactional_id in self._ongoing:
            known = self.transactions[transactional_id]
            if known.is_timed_out(now_ms):
                try:
                    records.append(self._record(transactional_id, self._aborted_for(transactional_id, known, now_ms)))
                except ProducerIdWanted:
                    continue  # The caller provides an id because of `wants_producer_id`. The next check uses it.
        return records

    @property
    def wants_producer_id(self) -> bool:
        """Whether aborting an open transaction after its time-out would need a new producer id."""
        return not self.spare_producer_ids and any(self.transactions[one].is_epoch_exhausted for one in self._ongoing)

    def _forget_unused(self, before_ms: int) -> list[CoordinatorRecord]:
        records, size = [], 0
        for transactional_id, known in self.transactions.items():
            if known.state.is_idle and known.last_update_ms <= before_ms and size < _FORGOTTEN_BYTES_MAX:
                size += len(transactional_id)
                records.append(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))
        return records

    # Durable state.

    def replay(self, record: CoordinatorRecord, origin: RecordOrigin) -> None:  # noqa: ARG002
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self._ongoing.pop(transactional_id, None)
        self._unmarked.pop(transactional_id, None)
        self._outdated.pop(transactional_id, None)
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._replaced.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        known = self.transactions[transactional_id] = Transaction.from_value(value)
        if known.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = None
        elif known.state.is_prepared:
            self._unmarked[transactional_id] = dict.fromkeys(sorted(known.partitions))
            if self._is_loaded:
                self._on_prepared(transactional_id)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Does nothing: no transactions write to this topic."""

    # Parts of decisions.

    def _known(self, transactional_id: str) -> Transaction:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise Refused(
                Error.INVALID_PRODUCER_ID_MAPPING,
                f"nothing is known of transactional id {transactional_id!r}: call InitProducerId first",
            )
        return known

    def _aborted_for(self, transactional_id: str, known: Transaction, now_ms: int) -> Transaction:
        """Abort an open transaction that its producer did not end, and fence the producer."""
        version = self._rules().transaction_version
        raises_always = version >= EPOCH_PER_TRANSACTION
        next_producer_id = self._new_producer_id() if raises_always and known.is_epoch_exhausted else NO_PRODUCER_ID
        self._replaced[transactional_id] = known.producer if raises_always else NOBODY
        return known.prepared(
            commit=False,
            client_version=version if raises_always else 0,
            next_producer_id=next_producer_id,
            fence=True,
            now_ms=now_ms,
        )

    def _new_producer_id(self) -> int:
        if not self.spare_producer_ids:
            raise ProducerIdWanted
        return self.spare_producer_ids.pop()

    def _decided(self, transactional_id: str, after: Transaction, reply: R) -> Decision[R]:
        return Decision(reply, [self._record(transactional_id, after)])

    def _record(self, transactional_id: str, after: Transaction) -> CoordinatorRecord:
        version = 1 if self._rules().transaction_version >= FLEXIBLE_STATE else 0
        return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), after.as_value(version), version)


# Checks of requests.


def _check_producer(transactional_id: str, known: Transaction, producer: ProducerIdentity) -> None:
    if producer.producer_id != known.producer_id:
        raise _other_producer(transactional_id, known, producer)
    if producer.epoch != known.producer_epoch:
        raise _fenced(transactional_id, producer, known)


def _check_not_prepared(transactional_id: str, known: Transaction) -> None:
    if known.state.is_prepared:
        raise Refused(
            Error.CONCURRENT_TRANSACTIONS,
            f"{transactional_id}: the markers of its last transaction are being written ({known.state.label})",
        )


def _check_end_of_version_2(transactional_id: str, known: Transaction, producer: ProducerIdentity) -> bool:
    """Whether an EndTxn repeats the last one. Raises Refused if it is neither a retry nor of the current epoch."""
    # Checked first, because the client of a prepared transaction may already know its new producer id.
    _check_not_prepared(transactional_id, known)
    has_new_id = (
        known.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
        and known.producer_id != producer.producer_id
    )
    if producer.producer_id != known.producer_id and not has_new_id:
        raise _other_producer(transactional_id, known, producer)
    is_retry = has_new_id or known.producer_epoch == producer.epoch + 1
    is_ended = known.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    if not (producer.epoch == known.producer_epoch or (is_retry and is_ended)):
        raise _fenced(transactional_id, producer, known)
    return is_retry


def _is_ended_in_version_2(transactional_id: str, known: Transaction, *, is_retry: bool, commit: bool) -> bool:
    """Whether the transaction has already ended this way. Raises Refused if it ended the other way or was never open.

    If no transaction is open, a commit is an error. An abort raises the epoch, because the client cannot know whether
    its requests have opened a transaction.
    """
    if known.state is TransactionState.ONGOING:
        return False
    if is_retry:
        if known.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
            return True
    elif not commit:
        return False
    raise _cannot_end(transactional_id, known, commit=commit)


def _is_ended(transactional_id: str, known: Transaction, *, commit: bool) -> bool:
    """Whether the transaction has already ended this way. Before version 2 all transactions have the same epoch, so an
    EndTxn with the result of the last one counts as its retry."""
    if known.state is TransactionState.ONGOING:
        return False
    if known.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return True
    raise _cannot_end(transactional_id, known, commit=commit)


def _fenced(transactional_id: str, producer: ProducerIdentity, known: Transaction) -> Refused:
    return Refused(
        Error.PRODUCER_FENCED,
        f"{transactional_id}: producer {producer.producer_id} epoch {producer.epoch} was replaced by "
        f"producer {known.producer_id} epoch {known.producer_epoch}",
    )


def _other_producer(transactional_id: str, known: Transaction, producer: ProducerIdentity) -> Refused:
    return Refused(
        Error.INVALID_PRODUCER_ID_MAPPING,
        f"{transactional_id} belongs to producer {known.producer_id}, not to {producer.producer_id}",
    )


def _cannot_end(transactional_id: str, known: Transaction, *, commit: bool) -> Refused:
    wish = "commit" if commit else "abort"
    return Refused(Error.INVALID_TXN_STATE, f"{transactional_id}: nothing to {wish}, its state is {known.state.label}")
