"""Transactional ids that are about to run out of epochs, when a new producer id takes over."""

from contextlib import suppress
from dataclasses import replace

from ottla.broker.node import Node
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.core.transactions.shard import TransactionShard
from ottla.core.transactions.transaction import EPOCH_MAX, FLEXIBLE_STATE
from ottla.wire.errors import Refused
from ottla.wire.records.transactions import TransactionLogKey

_OLD = 1_000


async def age(node: Node, transactional_id: str, *, epochs_left: int) -> None:
    """Write the record that a coordinator's log has after many thousand transactions, if none is open."""

    def aged(shard: TransactionShard, _now_ms: int) -> Decision[None]:
        known = shard.transactions.get(transactional_id)
        if known is None or not known.state.is_idle or known.producer_epoch > _OLD:
            return Decision(None)
        old = replace(known, producer_epoch=EPOCH_MAX - 1 - epochs_left)
        key, value = TransactionLogKey(transactional_id=transactional_id), old.as_value(FLEXIBLE_STATE)
        return Decision(None, [CoordinatorRecord(key, value, FLEXIBLE_STATE)])

    with suppress(Refused):
        await node.transactions.decide(transactional_id, aged)
