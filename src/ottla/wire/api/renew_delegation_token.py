"""The RenewDelegationToken API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bytes, Int16, Int32, Int64


@message(api_key=39, versions=(1, 2), flexible=2, listeners=("broker", "controller"))
class RenewDelegationTokenRequest:
    """Let a delegation token live longer."""

    hmac: Bytes = field(secret=True)
    renew_period_ms: Int64


@message(api_key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse:
    """When the delegation token now ends."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
