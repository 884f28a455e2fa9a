"""The ApiVersions API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, Int64, String


@message(api_key=18, versions=(0, 4), flexible=3, listeners=("broker", "controller"))
class ApiVersionsRequest:
    """Ask which requests the server answers, in which versions; the first message of a connection."""

    client_software_name: String = field(since=3, default="", ignorable=True)
    client_software_version: String = field(since=3, default="", ignorable=True)


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: String
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The requests and features the server has, in which versions."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(since=3, tag=0, default=[], ignorable=True)
    finalized_features_epoch: Int64 = field(since=3, tag=1, default=-1, ignorable=True)  # -1: not known.
    finalized_features: list[FinalizedFeatureKey] = field(since=3, tag=2, default=[], ignorable=True)
    zk_migration_ready: Bool = field(since=3, tag=3, default=False, ignorable=True)
