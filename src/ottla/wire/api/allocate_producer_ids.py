"""The AllocateProducerIds API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Int16, Int32, Int64


@message(api_key=67, versions=(0, 0), flexible=0, listeners=("controller",))
class AllocateProducerIdsRequest:
    """A broker asks the controller for a block of producer ids to hand out."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@message(api_key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    """The block of producer ids that is now the broker's."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
