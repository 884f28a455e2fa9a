"""Checks that a coordinator's durable state equals a replay of its log.

That holds for any log: after a power loss (I22), and after cleaning (I20). Volatile state (parked requests, sessions)
is not compared.
"""

from typing import Any

from ottla.broker.coordinators.coordinator import Coordinator
from ottla.broker.coordinators.hosted_shard import HostedShard
from ottla.broker.node import Node
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.shard import GroupShard
from ottla.core.runtime.shard import Shard
from ottla.core.transactions.shard import TransactionShard
from ottla.kernel import scan
from ottla.sim.node.state import log_data
from ottla.sim.played import Violation


def check_replayed(node: Node) -> None:
    coordinators: list[Coordinator[Any]] = [node.groups, node.transactions.coordinator]
    for coordinator in coordinators:
        for hosted in coordinator._shards.values():
            # A directory that went offline during a swap may have temporary names until the next start.
            is_online = hosted.partition.log.directory.failure is None
            if is_online and hosted.is_active and not hosted.is_over and not hosted._queue:
                _check(node, coordinator, hosted)


def _check(node: Node, coordinator: Coordinator[Any], hosted: HostedShard[Any]) -> None:
    again: Shard = coordinator._new_shard(hosted.index, hosted.leader_epoch)
    data = log_data(node, hosted.partition)
    view, position = memoryview(data), 0
    for header in scan(data).headers:
        if header.base_offset >= hosted.partition.log.state.log_start_offset:
            coordinator._replay_batch(again, view[position : position + header.size], header)
        position += header.size
    live, replayed = _durable(hosted.shard), _durable(again)
    for what in live.keys() | replayed.keys():
        if live.get(what) != replayed.get(what):
            raise Violation(
                "I22",
                f"{hosted.partition.name}: {what} is {live.get(what)}; the log says {replayed.get(what)}",
            )


def _durable(shard: Shard) -> dict[object, object]:
    if isinstance(shard, TransactionShard):
        return {("transaction", one): known for one, known in shard.transactions.items()}
    assert isinstance(shard, GroupShard)
    state: dict[object, object] = {
        ("offset", group, place): committed
        for group, places in shard.offsets.by_group.items()
        for place, committed in places.items()
    }
    for producer_id, groups in shard.offsets.pending.items():
        for group, places in groups.items():
            state |= {("pending", producer_id, group, place): committed for place, committed in places.items()}
    for group_id, known in shard.groups.items():
        if isinstance(known, ClassicGroup):
            state["group", group_id] = known.written
        elif isinstance(known, ConsumerGroup):
            state["group", group_id] = (known.epoch, known.assignment_epoch, known.members, known.target)
    return {what: value for what, value in state.items() if value is not None}
