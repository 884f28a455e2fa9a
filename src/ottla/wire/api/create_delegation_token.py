"""The CreateDelegationToken API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers:
    principal_type: String
    principal_name: String


@message(api_key=38, versions=(1, 3), flexible=2, listeners=("broker", "controller"))
class CreateDelegationTokenRequest:
    """Issue a token that stands for a principal for a while."""

    owner_principal_type: String | None = field(since=3, default="")
    owner_principal_name: String | None = field(since=3, default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


@message(api_key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse:
    """The token that was issued, and its secret."""

    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(since=3, default="")
    token_requester_principal_name: String = field(since=3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    throttle_time_ms: Int32
