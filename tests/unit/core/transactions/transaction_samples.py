"""A shard and the log it writes, for tests."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin, RecordTypes, encode_record
from ottla.core.transactions.shard import Rules, TransactionShard
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition, Transaction, TransactionState
from ottla.wire.errors import Error, Refused
from ottla.wire.records import transactions as records
from ottla.wire.records.transactions import TransactionLogKey

NOW = 1_700_000_000_000
TIMEOUT_MS = 60_000
P0, P1 = ("a", 0), ("b", 1)
ID = "id"
_TYPES = RecordTypes(records)


def refusal(ask: Callable[[], object]) -> Error:
    with pytest.raises(Refused) as refused:
        ask()
    return refused.value.error


class Desk:
    """Has a shard decide, and replays what it decided from its bytes, as the broker does."""

    def __init__(
        self,
        *,
        version: int = 2,
        producer_ids: list[int] | None = None,
        expiration_ms: int = 7 * 86_400_000,
        log: list[CoordinatorRecord] | None = None,
    ) -> None:
        self.rules = Rules(version, 900_000, expiration_ms, 10_000, 3_600_000)
        self.prepared: list[str] = []
        self.log = log or []
        self.shard = TransactionShard(3, lambda: self.rules, self.prepared.append)
        self.shard.spare_producer_ids = [1000] if producer_ids is None else list(reversed(producer_ids))
        for offset, record in enumerate(self.log):
            self.shard.replay(record, RecordOrigin(offset, NOW))
        self.shard.loaded(NOW)

    def reloaded(self, prefix: int | None = None) -> "Desk":
        return Desk(version=self.rules.transaction_version, log=self.log[:prefix])

    @property
    def known(self) -> Transaction:
        return self.shard.transactions[ID]

    def state(self) -> TransactionState:
        return self.known.state

    def apply(self, decision: Decision) -> object:  # type: ignore[type-arg]
        for record in decision.records:
            read = _TYPES.decode(*encode_record(record))
            assert read == record, "what is written is read again"
            self.shard.replay(read, RecordOrigin(len(self.log), NOW))
            self.log.append(read)
        return decision.reply

    # Requests.

    def shard_init(
        self, *, expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS, name: str = ID
    ) -> ProducerIdentity | None:
        reply = self.apply(self.shard.init_producer_id(name, timeout_ms, expected, NOW))
        assert reply is None or isinstance(reply, ProducerIdentity)
        return reply

    def init(self, *, expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS) -> ProducerIdentity:
        reply = self.shard_init(expected=expected, timeout_ms=timeout_ms)
        assert reply is not None, "a transaction was open"
        return reply

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, at_ms: int = NOW, version: int = 2) -> None:
        self.apply(self.shard.add_partitions(ID, producer, partitions, version, at_ms))

    def verify(self, producer: ProducerIdentity, *partitions: TopicPartition) -> dict[TopicPartition, Error]:
        return self.shard.verify_partitions(ID, producer, partitions)

    def end(self, producer: ProducerIdentity, *, commit: bool, version: int = 2) -> ProducerIdentity:
        reply = self.apply(self.shard.end(ID, producer, commit=commit, client_version=version, now_ms=NOW))
        assert isinstance(reply, ProducerIdentity)
        return reply

    # Ends.

    def written(self, *partitions: TopicPartition, at_ms: int = NOW, name: str = ID) -> None:
        producer = self.shard.transactions[name].producer
        self.apply(self.shard.markers_written(name, producer, partitions, at_ms))

    def write_markers(self, *, at_ms: int = NOW, name: str = ID) -> None:
        markers = self.shard.markers(name)
        assert markers is not None, "nothing is prepared"
        self.written(*markers.partitions, at_ms=at_ms, name=name)

    def tick(self, now_ms: int) -> None:
        self.apply(self.shard.tick(now_ms))

    # Short cuts to states that take long to reach.

    def replaced(self, transaction: Transaction) -> None:
        key = TransactionLogKey(transactional_id=ID)
        self.apply(Decision(None, [CoordinatorRecord(key, transaction.as_value(1), 1)]))

    def at_epoch(self, epoch: int) -> ProducerIdentity:
        self.replaced(replace(self.known, producer_epoch=epoch))
        return self.known.producer
