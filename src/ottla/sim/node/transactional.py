"""Producers with a transactional id, of version 1 and 2 (KIP-890): correct ones, and those that die, delay or give up.

Rule 1: a transaction is committed only if all its writes were acknowledged.
Rule 2: a request without a response may still arrive. In version 2 the epoch, which changes with every transaction,
        makes it harmless; a producer of version 1 requests a new epoch before its next transaction.
Rule 3: a fenced producer drops its identity and requests another.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.group_history import Commit
from ottla.sim.node.group_offsets import Hindered
from ottla.sim.node.ledger import NO_LIFE, Key, Sent, name_of
from ottla.sim.node.members import NOT_READY, STALE, Member
from ottla.sim.node.old_coordinator import OldCoordinator
from ottla.sim.node.scene import OF_TRANSACTION, Line, Scene, record_of
from ottla.sim.node.senders import ALL, OutgoingBatch, answers_of, request_of, settle
from ottla.sim.node.swarm import AGING, OLD_COORDINATORS, TABLE, TABLE_WRITERS
from ottla.sim.node.transaction_history import RecordedTransaction
from ottla.sim.played import Violation
from ottla.sim.records import CODECS, TRANSACTIONAL, encode
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import Error

PRODUCE = {1: 11, 2: 12}
END = {1: 4, 2: 5}
OFFSETS = {1: 4, 2: 5}
ADD_PARTITIONS = 3
TIMEOUT_MS_MAX = 6_000
TIMEOUTS_MS = (3_000, TIMEOUT_MS_MAX)
_PATIENCE = 12
"""How often a request is repeated before the producer gives up."""
_AGAIN = (
    *NOT_READY,
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.KAFKA_STORAGE_ERROR,
    Error.UNSTABLE_OFFSET_COMMIT,
)
_PLAIN_REFUSALS = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)
"""After these errors it is certain that nothing was done."""
_FENCED = (
    Error.PRODUCER_FENCED,
    Error.INVALID_PRODUCER_EPOCH,
    Error.INVALID_PRODUCER_ID_MAPPING,
    Error.UNKNOWN_PRODUCER_ID,
)
_OVER = (Error.INVALID_TXN_STATE, Error.TRANSACTION_ABORTABLE, Error.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""The transaction cannot continue."""
_NOT_THERE = (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)


class ProducerSession:
    """One producer with a transactional id, and its open transaction."""

    def __init__(self, scene: Scene, line: Line, transactional_id: str, version: int, timeout_ms: int) -> None:
        self._scene = scene
        self._line = line
        self.transactional_id = transactional_id
        self._version = version
        self._timeout_ms = timeout_ms
        self._identity: tuple[int, int] | None = None
        self._is_new = True
        """Whether the identity was never returned before, by a coordinator that has lost that. Otherwise batches may be
        taken for duplicates of the earlier producer's."""
        self._sequences: dict[Key, int] = {}
        self._added: dict[Key | str, None] = {}
        self._unsure = False
        """Whether a request of this transaction may still arrive."""
        self.transaction: RecordedTransaction | None = None
        self._left_behind: list[EndTxnRequest | OutgoingBatch] = []
        """Requests sent before the current transaction that have become obsolete."""
        self.old_coordinator = OldCoordinator(scene, line)

    # Identity.

    async def begin(self) -> RecordedTransaction:
        """Begin a transaction, with a new identity if necessary. Raises ClientError, `Hindered`."""
        if self._identity is None or (self._unsure and self._version == 1):
            await self._init()
        self._added.clear()
        self._unsure = False
        self.transaction = self._scene.transactions.begin(self.transactional_id)
        self.transaction.is_void = not self._is_new
        return self.transaction

    async def _init(self) -> None:
        producer_id, epoch = self._identity or (-1, -1)
        self._identity = None
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        for _ in range(_PATIENCE):
            answer = await self._line.call(request)
            error = Error(answer.error_code)
            if error is Error.NONE:
                self._goes_on_as(answer)
                if AGING in self._scene.hazards and self._scene.random.random() < 0.5:
                    self._scene.age(self.transactional_id, self._scene.random.randrange(6))
                return
            if error in _FENCED:
                raise Hindered(error.name)
            if error not in _AGAIN:
                raise Violation("I10", f"InitProducerId of {self.transactional_id} was refused: {error.name}")
            await self._scene.pause(0.5)
        raise Hindered("nobody gives an identity")

    def _goes_on_as(self, answer: Any) -> None:
        if self._identity != (answer.producer_id, answer.producer_epoch):
            self._identity = answer.producer_id, answer.producer_epoch
            life = self._scene.ledger.lives
            is_new = self._scene.identities.setdefault(self._identity, life) == life
            self._is_new = is_new or not self._scene.has_lost
            self._sequences.clear()

    def crash(self) -> None:
        """End the session as a crashed process does: without a request, and without its identity."""
        self._line.hang_up()
        self._forget()

    def _forget(self) -> None:
        self._identity = None
        if self.transaction is not None:
            self.transaction.given_up()
            self.transaction = None

    # Writing.

    async def send(self, where: Key, records: Sequence[Sent], *, waits: bool = True) -> None:
        """Send records until they are acknowledged. Without `waits`, send them once and close the connection without
        waiting for the response."""
        assert self._identity is not None
        assert self.transaction is not None
        if self._version == 1 and where not in self._added:
            await self._add_partition(where)
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(records)
        data = encode(
            [record_of(sent, delta) for delta, sent in enumerate(records)],
            codec=self._scene.random.choice(CODECS),
            attributes=TRANSACTIONAL,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
        )
        batch = OutgoingBatch(where, list(records), data)
        if not waits:
            self._left_behind.append(batch)
            await self._attempt(batch, waits=False)
            raise Hindered("an answer was not waited for")
        for _ in range(_PATIENCE):
            try:
                error = await self._attempt(batch)
            except ClientError:
                self._unsure = True
                await self._scene.pause(0.5)
                continue
            if error is Error.NONE:
                self.old_coordinator.wrote(self.transaction, where, *self._identity)
                return
            self._check(error, f"a batch for {name_of(where)}", (*_OVER, *_NOT_THERE))
            await self._scene.pause(0.3)
        raise Hindered("no acknowledgement")

    async def _attempt(self, batch: OutgoingBatch, *, waits: bool = True, is_late: bool = False) -> Error:
        # A transaction that the coordinator has lost may be open in a partition, and accept late batches.
        counts = self._is_new and not (is_late and self._scene.has_lost)
        life = self._scene.ledger.lives if counts else NO_LIFE
        request = request_of(self._scene, [batch], ALL)
        request.transactional_id = self.transactional_id
        connection = await self._line.connection()
        for sent in batch.records:
            sent.attempts += 1
        if not waits:
            self._unsure = True
            await connection.tell(request, at_most=PRODUCE[self._version])
            self._line.hang_up()
            return Error.NONE
        answer = await connection.call(request, timeout_ms=2_500, at_most=PRODUCE[self._version])
        return settle(self._scene, batch, answers_of(answer)[0], life)

    async def _add_partition(self, where: Key) -> None:
        assert self._identity is not None
        topic = AddPartitionsToTxnTopic(name=self._scene.name_of(where[0]) or "", partitions=[where[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[topic],
        )

        def code_of(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        await self._until_done(request, code_of, (*_OVER, *_NOT_THERE), at_most=ADD_PARTITIONS)
        self._added[where] = None

    async def send_offsets(self, member: Member, topic: str, commits: Sequence[Commit]) -> None:
        assert self._identity is not None
        producer_id, epoch = self._identity
        if self._version == 1 and member.group not in self._added:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=member.group,
            )
            await self._until_done(add, lambda answer: int(answer.error_code), _OVER)
            self._added[member.group] = None
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=member.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=commit.where[1],
                            committed_offset=commit.offset,
                            committed_metadata=commit.id,
                        )
                        for commit in commits
                    ],
                )
            ],
        )

        def code_of(answer: Any) -> int:
            return max(int(one.error_code) for one in answer.topics[0].partitions)

        try:
            await self._until_done(request, code_of, (*_OVER, *STALE), at_most=OFFSETS[self._version])
        except Hindered:
            member.is_behind()
            raise
        for commit in commits:
            self._scene.groups.granted(commit, self._scene.now)

    async def _until_done(
        self, request: object, code_of: Any, hindrances: tuple[Error, ...], at_most: int = 99
    ) -> None:
        for _ in range(_PATIENCE):
            try:
                error = Error(code_of(await self._line.call(request, at_most=at_most)))
            except ClientError:
                self._unsure = True
                await self._scene.pause(0.5)
                continue
            if error is Error.NONE:
                return
            self._check(error, type(request).__name__, hindrances)
            await self._scene.pause(0.3)
        raise Hindered("no answer")

    def _check(self, error: Error, what: str, hindrances: tuple[Error, ...]) -> None:
        """Returns if the request is worth another attempt."""
        if error in _FENCED:
            self._forget()
            raise Hindered(error.name)
        if error in hindrances:
            self._unsure = True  # Sequences were used that the log does not know.
            raise Hindered(error.name)
        if error not in _AGAIN:
            raise Violation("I10", f"{what} of {self.transactional_id} was refused: {error.name}")
        if error not in _PLAIN_REFUSALS:
            self._unsure = True

    # Ending.

    async def end(self, *, commit: bool) -> bool:
        """End the transaction; returns whether it was certainly committed. Without a response the producer drops its
        identity."""
        transaction = self.transaction
        assert self._identity is not None
        assert transaction is not None
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        if not commit:
            transaction.aborted()
        was_refused = True
        for _ in range(_PATIENCE):
            transaction.commit_asked = transaction.commit_asked or commit
            try:
                answer = await self._line.call(request, at_most=END[self._version])
            except ClientError:
                self._unsure, was_refused = True, False
                await self._scene.pause(0.5)
                continue
            error = Error(answer.error_code)
            if error is Error.NONE:
                self._ended(transaction, request, answer)
                return commit
            if error in _FENCED or error in _OVER:
                if was_refused:
                    transaction.aborted()
                break
            if error not in _AGAIN:
                raise Violation("I10", f"the end of {transaction.name} was refused: {error.name}")
            was_refused = was_refused and error in _PLAIN_REFUSALS
            await self._scene.pause(0.3)
        self._forget()
        return False

    def _ended(self, transaction: RecordedTransaction, request: EndTxnRequest, answer: Any) -> None:
        if request.committed:
            transaction.committed(self._scene.now)
        self.transaction = None
        if self._version > 1:
            self._left_behind.append(request)  # In version 1 nothing but the client protects from it.
            self._goes_on_as(answer)

    async def arrive_late(self) -> None:
        """An obsolete request arrives now, on any connection: it must have no effect."""
        if self._left_behind:
            late = self._left_behind.pop(self._scene.random.randrange(len(self._left_behind)))
            if isinstance(late, OutgoingBatch):
                await self._attempt(late, is_late=True)
            else:
                await self._line.call(late, at_most=END[self._version])


class TransactionalProducer:
    """Writes to any topics; two of these may share a transactional id, and fence each other."""

    def __init__(self, scene: Scene, name: str) -> None:
        random = scene.random
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)
        self._timeout_ms = random.choice(TIMEOUTS_MS)
        id_ = f"txn-{random.randrange(3)}"
        self._session = ProducerSession(scene, self._line, id_, random.choice((1, 2, 2)), self._timeout_ms)
        self._fails = random.choice((0.0, 0.1, 0.2))

    async def run(self) -> None:
        await self._line.find_coordinator(self._session.transactional_id, OF_TRANSACTION)
        while not self._scene.ending:
            try:
                await self._session.begin()
                await self._transaction()
            except (ClientError, Hindered) as error:
                self._scene.note(f"{self._name}: {error}")
                with suppress(ClientError):
                    await self._give_up()
                await self._scene.pause(2)
            await self._scene.pause(0.3)
        self._session.crash()

    async def _transaction(self) -> None:
        random = self._scene.random
        for _ in range(random.randint(1, 3)):
            where = random.choice(self._places())
            records = self._records(where)
            await self._session.send(where, records, waits=random.random() >= self._fails)
            if random.random() < 2 * self._fails:
                await self._session.arrive_late()
            if OLD_COORDINATORS in self._scene.hazards and random.random() < 0.3:
                await self._session.old_coordinator.speak()
            if random.random() < self._fails:
                await self._scene.pause(2 * self._timeout_ms / 1000)
        if random.random() < self._fails or self._scene.ending:
            self._session.crash()
            return
        await self._session.end(commit=random.random() < 0.7)

    def _places(self) -> list[Key]:
        keys = self._scene.all_keys(fleeting=False)
        if TABLE_WRITERS in self._scene.hazards and self._scene.random.random() < 0.7:
            return [key for key in keys if self._scene.name_of(key[0]) == TABLE]
        return keys

    def _records(self, where: Key) -> list[Sent]:
        return new_writes(self._scene, where, self._name, self._session.transaction, self._scene.random.randint(1, 3))

    async def _give_up(self) -> None:
        """Abort the open transaction, or crash without ending it."""
        if self._session.transaction is None:
            return
        if self._scene.random.random() < 0.3:
            self._session.crash()
        else:
            await self._session.end(commit=False)
            await self._session.arrive_late()


def new_writes(scene: Scene, where: Key, name: str, transaction: RecordedTransaction | None, count: int) -> list[Sent]:
    """Records that belong to a transaction."""
    assert transaction is not None
    records = [scene.new_record(where, name) for _ in range(count)]
    for sent in records:
        sent.transaction = transaction
    transaction.writes += records
    return records
