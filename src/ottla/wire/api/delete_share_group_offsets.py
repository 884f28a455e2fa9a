"""The DeleteShareGroupOffsets API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, Uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: String


@message(api_key=92, versions=(0, 0), flexible=0, listeners=("broker",))
class DeleteShareGroupOffsetsRequest:
    """Let an empty share group forget topics."""

    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: String | None = field(default=None)


@message(api_key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """The outcome per topic."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]
