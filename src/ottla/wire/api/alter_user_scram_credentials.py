"""The AlterUserScramCredentials API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion:
    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes = field(secret=True)
    salted_password: Bytes = field(secret=True)


@message(api_key=51, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class AlterUserScramCredentialsRequest:
    """Create, change or delete the SCRAM credentials of users."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    user: String
    error_code: Int16
    error_message: String | None


@message(api_key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """The outcome per user."""

    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]
