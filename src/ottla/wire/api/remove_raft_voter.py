"""The RemoveRaftVoter API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Int16, Int32, String, Uuid


@message(api_key=81, versions=(0, 0), flexible=0, listeners=("controller", "broker"))
class RemoveRaftVoterRequest:
    """Take a node away from those that vote in the metadata quorum."""

    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


@message(api_key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse:
    """Whether the node no longer votes."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
