"""Produce in a transaction: the coordinator admits the partitions before anything is appended (KIP-890).

Rule 1: the broker asks the coordinator before the first batch of a transaction in a partition, and not again while the
        transaction is open there.
Rule 2: clients from Produce version 12 on leave it to the broker to add partitions to the transaction. For other
        clients the broker asks the coordinator whether they added them.
Rule 3: older clients know fewer errors: an error that they do not know is replaced by one that they can handle.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from ottla.broker.coordinators.admission import admit, told_to_writer
from ottla.broker.network.backlog import at_once
from ottla.broker.network.dispatch import Call
from ottla.config import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from ottla.core.log.producers import Verification
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.kernel import BatchHeader, CorruptBatch, read_header
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.codec import Steps
from ottla.wire.errors import Error, Refused

Admission = Verification | Refused | None
"""The verification that the append needs, or why nothing may be appended; None if the transaction is open already."""
Admissions = Mapping[TopicPartition, Admission]

TOPIC_IDS_SINCE: Final = 13
BATCHES_PER_STEP: Final = 32
_ADDS_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11
_ASK_AGAIN: Final = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


def admissions(request: ProduceRequest, call: Call) -> Admissions | Awaitable[Admissions]:
    """The admission of each partition that the request writes to in its transaction. The result is awaitable only if
    the coordinator has to be asked.

    Raises Refused if the request as a whole cannot be accepted."""
    return at_once(admissions_in_steps(request, call))


def admissions_in_steps(request: ProduceRequest, call: Call) -> Steps[Admissions | Awaitable[Admissions]]:
    transactional_id = request.transactional_id
    adds = call.version >= _ADDS_SINCE
    if transactional_id is None or not (adds or call.node.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]):
        return {}
    batches = yield from _transactional_batches(request, call)
    producers = {ProducerIdentity(one.producer_id, one.producer_epoch) for one in batches.values()}
    if len(producers) > 1:
        raise Refused(Error.INVALID_PRODUCER_ID_MAPPING, "one request with transactional batches of several producers")
    begun: dict[TopicPartition, Admission] = {}
    for partition, header in batches.items():
        begun[partition] = _begin(partition, header, call, adds=adds)
        if len(begun) % BATCHES_PER_STEP == 0:
            yield
    wanted = [partition for partition, admission in begun.items() if isinstance(admission, Verification)]
    if not wanted:
        return begun
    return _ask(transactional_id, producers.pop(), begun, wanted, call)


def _transactional_batches(request: ProduceRequest, call: Call) -> Steps[dict[TopicPartition, BatchHeader]]:
    found: dict[TopicPartition, BatchHeader] = {}
    count = 0
    for topic in request.topic_data:
        name = call.node.topic_name(topic.topic_id) if call.version >= TOPIC_IDS_SINCE else topic.name
        for data in topic.partition_data:
            count += 1
            if count % BATCHES_PER_STEP == 0:
                yield
            if data.records is None or name is None or call.node.metadata.image.partition(name, data.index) is None:
                continue  # The append refuses it.
            try:
                header = read_header(data.records)
            except CorruptBatch:
                continue
            if header.is_transactional and header.producer_id >= 0:
                found[name, data.index] = header
    return found


def _begin(where: TopicPartition, header: BatchHeader, call: Call, *, adds: bool) -> Admission:
    try:
        producers = call.node.partition(*where).log.state.producers
        return producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            raises_epoch=adds,
            now_ms=call.node.clock.wall_ms(),
        )
    except Refused as refusal:
        return refusal


async def _ask(
    transactional_id: str,
    producer: ProducerIdentity,
    begun: dict[TopicPartition, Admission],
    wanted: list[TopicPartition],
    call: Call,
) -> Admissions:
    try:
        errors = await admit(call.node, transactional_id, producer, wanted, adds=call.version >= _ADDS_SINCE)
    except Refused as refusal:
        return begun | dict.fromkeys(wanted, _told(refusal.error, refusal.text, call.version))
    text = f"the partition is not part of the transaction of {transactional_id!r}"
    return begun | {partition: _told(error, text, call.version) for partition, error in errors.items()}


def _told(error: Error, text: str, version: int) -> Refused:
    if error in _ASK_AGAIN or (error is Error.CONCURRENT_TRANSACTIONS and version < _ADDS_SINCE):
        # After this error every client retries with the same broker.
        return Refused(Error.NOT_ENOUGH_REPLICAS, f"the transaction's coordinator cannot be asked now: {text}")
    return Refused(told_to_writer(error, knows_abortable=version >= _ABORTABLE_SINCE), text)
