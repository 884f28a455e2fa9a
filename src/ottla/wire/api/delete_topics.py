"""The DeleteTopics API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, String, Uuid


@struct
class DeleteTopicState:
    name: String | None = field(default=None)
    topic_id: Uuid


@message(api_key=20, versions=(1, 6), flexible=4, listeners=("broker", "controller"))
class DeleteTopicsRequest:
    """Delete topics, named or by id."""

    topics: list[DeleteTopicState] = field(since=6, default=[])
    topic_names: list[String] = field(until=5, default=[], ignorable=True)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    name: String | None = field(nullable_since=6)
    topic_id: Uuid = field(since=6, default=NO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None = field(since=5, default=None, ignorable=True)


@message(api_key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    """The outcome per topic."""

    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]
