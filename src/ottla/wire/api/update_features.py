"""The UpdateFeatures API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


@struct
class FeatureUpdateKey:
    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field(until=0, default=False)
    upgrade_type: Int8 = field(since=1, default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade.


@message(api_key=57, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class UpdateFeaturesRequest:
    """Raise or lower the versions of the cluster's features."""

    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field(since=1, default=False)


@struct
class UpdatableFeatureResult:
    feature: String
    error_code: Int16
    error_message: String | None


@message(api_key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """The outcome per feature."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = field(until=1, default=[], ignorable=True)
