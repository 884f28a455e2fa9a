"""The PushTelemetry API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Bool, Bytes, Int8, Int16, Int32, Uuid


@message(api_key=72, versions=(0, 0), flexible=0, listeners=("broker",))
class PushTelemetryRequest:
    """A client pushes its metrics."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@message(api_key=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse:
    """Whether the metrics were taken."""

    throttle_time_ms: Int32
    error_code: Int16
