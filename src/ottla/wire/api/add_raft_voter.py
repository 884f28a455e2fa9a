"""The AddRaftVoter API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: String
    host: String
    port: UInt16


@message(api_key=80, versions=(0, 1), flexible=0, listeners=("controller", "broker"))
class AddRaftVoterRequest:
    """Add a node to those that vote in the metadata quorum."""

    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = field(since=1, default=True)


@message(api_key=80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse:
    """Whether the node votes now."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
