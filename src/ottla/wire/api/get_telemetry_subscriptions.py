"""The GetTelemetrySubscriptions API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Bool, Int8, Int16, Int32, String, Uuid


@message(api_key=71, versions=(0, 0), flexible=0, listeners=("broker",))
class GetTelemetrySubscriptionsRequest:
    """A client asks which metrics it should push."""

    client_instance_id: Uuid


@message(api_key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse:
    """The metrics wanted, how often, and how compressed."""

    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: list[String]
