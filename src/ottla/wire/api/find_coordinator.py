"""The FindCoordinator API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@message(api_key=10, versions=(0, 6), flexible=3, listeners=("broker",))
class FindCoordinatorRequest:
    """Ask which broker coordinates groups, transactions or share partitions."""

    key: String = field(until=3, default="")
    key_type: Int8 = field(since=1, default=0)  # 0 group, 1 transaction, 2 share partition.
    coordinator_keys: list[String] = field(since=4, default=[])


@struct
class Coordinator:
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None


@message(api_key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """The brokers that coordinate what was asked for."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16 = field(until=3, default=0)
    error_message: String | None = field(since=1, until=3, default="", ignorable=True)
    node_id: Int32 = field(until=3, default=0)
    host: String = field(until=3, default="")
    port: Int32 = field(until=3, default=0)
    coordinators: list[Coordinator] = field(since=4, default=[])
