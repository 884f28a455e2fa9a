"""The ControllerRegistration API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Bool, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class Feature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(api_key=70, versions=(0, 0), flexible=0, listeners=("controller",))
class ControllerRegistrationRequest:
    """A controller introduces itself to the active controller."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: list[Listener]
    features: list[Feature]


@message(api_key=70, versions=(0, 0), flexible=0)
class ControllerRegistrationResponse:
    """Whether the controller was registered."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
