"""The AddOffsetsToTxn API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Int16, Int32, Int64, String


@message(api_key=25, versions=(0, 4), flexible=3, listeners=("broker",))
class AddOffsetsToTxnRequest:
    """Let a transaction commit the offsets of a consumer group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(api_key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Whether the group's offsets may now be part of the transaction."""

    throttle_time_ms: Int32
    error_code: Int16
