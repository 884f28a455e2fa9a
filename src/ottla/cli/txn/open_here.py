"""Transactions that are open in partitions, and which of them hang.

Rule 1: a transaction hangs in a partition if no coordinator will write its marker there: none knows its producer id, or
        the partition is not part of the producer's transaction. It blocks the last stable offset, and with it every
        reader of committed records, forever.
Rule 2: missing information is no evidence: if one broker cannot be reached, no transaction is called hanging.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin import Admin, settled
from ottla.client.core.names import TopicPartition
from ottla.client.partition_producers import ProducerState
from ottla.client.transactions_admin import TransactionDescription
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error


class OpenTransaction(NamedTuple):
    """An open transaction of a producer in a partition, according to its leader, and its owner."""

    partition: TopicPartition
    producer: ProducerState
    owner: TransactionDescription | None  # None if no coordinator knows the producer.

    @property
    def hanging(self) -> bool:
        return self.owner is None or self.partition not in self.owner.partitions


async def open_transactions(
    admin: Admin, producers: Iterable[tuple[TopicPartition, ProducerState]]
) -> list[OpenTransaction]:
    """The open transactions with their coordinators' descriptions. Raises ClientError."""
    candidates = [(partition, one) for partition, one in producers if one.txn_start_offset is not None]
    owners = await _owners(admin, sorted({one.producer_id for _, one in candidates})) if candidates else {}
    return [OpenTransaction(partition, one, owners.get(one.producer_id)) for partition, one in candidates]


async def _owners(admin: Admin, producer_ids: list[int]) -> dict[int, TransactionDescription]:
    listed = settled(await admin.list_transactions(producer_ids=producer_ids))
    ids = [one.transactional_id for each in listed.values() for one in each if one.producer_id in producer_ids]
    owners: dict[int, TransactionDescription] = {}
    for outcome in (await admin.describe_transactions(ids)).values() if ids else ():
        if not isinstance(outcome, ClientError):
            owners[outcome.producer_id] = outcome
        elif not (isinstance(outcome, Declined) and outcome.error is Error.TRANSACTIONAL_ID_NOT_FOUND):
            raise outcome  # An id that expired since it was listed owns nothing.
    return owners
