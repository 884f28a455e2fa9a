"""The DescribeDelegationToken API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int16, Int32, Int64, String


@struct
class DescribeDelegationTokenOwner:
    principal_type: String
    principal_name: String


@message(api_key=41, versions=(1, 3), flexible=2, listeners=("broker", "controller"))
class DescribeDelegationTokenRequest:
    """List the delegation tokens of owners."""

    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String
    principal_name: String


@struct
class DescribedDelegationToken:
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(since=3, default="")
    token_requester_principal_name: String = field(since=3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    renewers: list[DescribedDelegationTokenRenewer]


@message(api_key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse:
    """The delegation tokens one may see."""

    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32
