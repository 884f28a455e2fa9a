"""The transactional ids of one partition of `__transaction_state`.

Rule 1: an id has one producer: InitProducerId takes it over, ends what the one before left open, and fences it.
Rule 2: a request counts if it names the producer id and epoch that the log knows. In version 2 an EndTxn with the epoch
        before is the last one sent again; with the same epoch it is about the next transaction (KAFKA-17754).
Rule 3: while a prepared transaction waits for its markers, whoever wants anything is told to come back. What was
        prepared when the shard was loaded waits for its markers like everything else.
Rule 4: transactions that take too long are aborted, ids that nobody uses are forgotten; both are looked for at
        intervals, as Kafka does.

Not durable, and gone at a reload as in Kafka: the identity that the last change of epoch replaced (who asks for the
same change again is told its outcome), and which markers of a prepared transaction are written.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from ottla.core.coordination import CoordinatorRecord, Decision, Origin
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
"""Of ids in one batch of tombstones; the others follow in the next."""


class Rules(NamedTuple):
    """What the node's settings and the cluster's features say at the moment."""

    transaction_version: int
    timeout_ms_max: int
    id_expiration_ms: int
    abort_interval_ms: int
    expiry_interval_ms: int


class ProducerIdWanted(Exception):
    """The decision needs a new producer id: give the shard one (`spare_producer_ids`) and decide again."""


class Markers(NamedTuple):
    """The markers that a prepared transaction still lacks."""

    producer: ProducerIdentity
    committed: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int


class TransactionShard:
    def __init__(
        self, coordinator_epoch: int, rules: Callable[[], Rules], on_prepared: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_prepared` is told of every transactional id whose markers are to be written."""
        self.coordinator_epoch = coordinator_epoch
        self._rules = rules
        self._on_prepared = on_prepared
        self._is_loaded = False
        self.transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._unmarked: dict[str, dict[TopicPartition, None]] = {}
        """Of each prepared transaction, the partitions whose marker is not known to be written."""
        self._outdated: dict[str, None] = {}
        """Prepared transactions of which some partition has seen a later epoch."""
        self._replaced: dict[str, ProducerIdentity] = {}
        self.spare_producer_ids: list[int] = []
        self._abort_check_ms: int | None = None
        self._expiry_check_ms: int | None = None

    # Requests.

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int
    ) -> Decision[ProducerIdentity | None]:
        """A producer begins to use the id. None: what was left open is being aborted now, and it must ask again.

        `expected`: the identity that a producer had which goes on after an error (KIP-360). Whether its epoch is
        outdated is asked when nothing is open: what another has open is aborted first, and who asks again is fenced.
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
            # The expected identity is one that was forgotten meanwhile: a new one is as good.
            new = ProducerIdentity(self._new_producer_id(), 0)
            first = Transaction(new.producer_id, NO_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms)
            self._replaced[transactional_id] = NOBODY
            return self._decided(transactional_id, first.initialized(new, timeout_ms, now_ms), new)
        _check_not_prepared(transactional_id, known)
        is_same_id = expected is None or expected.producer_id == known.producer_id
        if known.state is TransactionState.ONGOING and is_same_id:
            # The epoch that fences is nobody's: the client gets the one after it when it asks again.
            return self._decided(transactional_id, self._aborted_for(transactional_id, known, now_ms), None)
        if expected is not None and expected != known.producer:
            if known.state.is_idle and expected == self._replaced.get(transactional_id):
                # It missed the answer: the same again.
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
        """The transaction is about to write to these partitions; the first of them open it."""
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
        """Decide how the transaction ends; the reply is whom the client goes on as."""
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
        """The transaction and its partitions; of a prepared one, those that lack their marker."""
        known = self.transactions.get(transactional_id)
        if known is None:
            return None
        return known, tuple(self._unmarked.get(transactional_id, known.partitions))

    # Ending.

    def markers(self, transactional_id: str) -> Markers | None:
        """What is still to be written for a prepared transaction, if it is one."""
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
        """Partitions have their marker, or do not exist any more. The transaction is over when none is lacking.

        `outdated` are those that have seen a later epoch of the producer: they take no marker of this one any more.
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

    # Time.

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
        """Only when to look is moved: how long a transaction has been open is told by the log, in wall time."""
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
                    continue  # Whoever runs this shard sees that it wants one, and the next look finds it.
        return records

    @property
    def wants_producer_id(self) -> bool:
        """Whether a transaction that may time out could not be aborted without a new producer id."""
        return not self.spare_producer_ids and any(self.transactions[one].is_epoch_exhausted for one in self._ongoing)

    def _forget_unused(self, before_ms: int) -> list[CoordinatorRecord]:
        records, size = [], 0
        for transactional_id, known in self.transactions.items():
            if known.state.is_idle and known.last_update_ms <= before_ms and size < _FORGOTTEN_BYTES_MAX:
                size += len(transactional_id)
                records.append(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))
        return records

    # Durable state.

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:  # noqa: ARG002
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
        """Nothing is written to this topic in transactions."""

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
        """An open transaction is ended without its producer's doing, which is fenced by it."""
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


# What a request must hold up to.


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
    """Whether an EndTxn is the last one sent again; it is refused if it is neither that nor about what is open now."""
    # First: with a prepared transaction the client may know its new producer id already.
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
    """Whether the transaction has ended this way already; refused if it has ended the other, or was never open.

    Without a transaction open, a commit is a mistake; an abort raises the epoch, because the client cannot know
    whether what it sent has opened one.
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
    """Before version 2 the same epoch serves all transactions: an end like the last one is taken for that one."""
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
