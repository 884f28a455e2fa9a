"""Admission of records and offsets to a transaction, by the broker that is to write them (KIP-890).

Rule 1: nothing is written to a partition in a transaction before the coordinator knows the partition: otherwise the
        marker would not reach it.
Rule 2: while the markers of the previous transaction are being written (CONCURRENT_TRANSACTIONS), the broker asks the
        coordinator again. For the client, sending the records again would cost more than waiting.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordinators.transactions import check_name
from ottla.config import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
)
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


async def admit(
    node: "Node",
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    *,
    adds: bool,
) -> Mapping[TopicPartition, Error]:
    """Check whether a producer's records may be written to partitions. Returns those that may not, with the error.

    `adds`: the partitions are added to the transaction first. Clients of version 2 leave that to the broker; others
    have done it themselves.
    """
    check_name(transactional_id)
    wanted = tuple(partitions)
    if not adds:
        return await node.peers.verify_partitions(transactional_id, producer, wanted)
    config, clock = node.config, node.clock
    patience_ms = min(config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS], config[REQUEST_TIMEOUT_MS])
    until_ms = clock.monotonic_ms() + patience_ms
    while True:
        try:
            await node.peers.add_partitions(transactional_id, producer, wanted)
        except Refused as refusal:
            if refusal.error is not Error.CONCURRENT_TRANSACTIONS or clock.monotonic_ms() >= until_ms:
                raise
            await asyncio.sleep(config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS] / 1000)
        else:
            return {}


def told_to_writer(error: Error, *, knows_abortable: bool) -> Error:
    """The error for a client whose records or offsets were not admitted to its transaction.

    A fenced writer gets INVALID_PRODUCER_EPOCH, as in all versions. `knows_abortable`: the client's version has the
    error TRANSACTION_ABORTABLE, after which it can abort and go on.
    """
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and not knows_abortable:
        return Error.INVALID_TXN_STATE
    return error
