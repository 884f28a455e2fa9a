"""Allocates producer ids to brokers in blocks, so that a broker can assign most ids without a request.

Rule 1: no id is ever allocated twice. A block belongs to the broker as soon as its record is committed. The ids that
        the broker has not used when it stops are lost.
"""

from typing import Final, NamedTuple

from ottla.core.metadata.image import Image
from ottla.core.runtime.decision import Decision
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_LONG_MAX: Final = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    first: int
    size: int = BLOCK_SIZE


def allocate(image: Image, broker_id: int, broker_epoch: int) -> Decision[ProducerIdBlock]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise Refused(
            Error.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, the request is from {broker_epoch}"
        )
    first = image.next_producer_id
    if first > _LONG_MAX - BLOCK_SIZE:
        raise Refused(Error.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return Decision(ProducerIdBlock(first), [record])
