"""The BrokerRegistration API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, Int64, String, UInt16, Uuid


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


@message(api_key=62, versions=(0, 4), flexible=0, listeners=("controller",))
class BrokerRegistrationRequest:
    """A broker introduces itself to the controller when it starts."""

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None
    is_migrating_zk_broker: Bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=2, default=[], ignorable=True)
    previous_broker_epoch: Int64 = field(since=3, default=-1, ignorable=True)


@message(api_key=62, versions=(0, 4), flexible=0)
class BrokerRegistrationResponse:
    """The epoch under which the broker is registered."""

    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)
