"""The DescribeCluster API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


@message(api_key=60, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class DescribeClusterRequest:
    """Ask for the brokers or the controllers of the cluster."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field(since=1, default=1)
    include_fenced_brokers: Bool = field(since=2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Bool = field(since=2, default=False)


@message(api_key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """The cluster's id, its controller and its nodes."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field(since=1, default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-(2**31))
