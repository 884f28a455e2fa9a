"""The DescribeUserScramCredentials API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@struct
class UserName:
    name: String


@message(api_key=50, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class DescribeUserScramCredentialsRequest:
    """List which users have SCRAM credentials."""

    users: list[UserName] | None


@struct
class CredentialInfo:
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


@message(api_key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users' credentials, never the secrets."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]
