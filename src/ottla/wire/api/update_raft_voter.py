"""The UpdateRaftVoter API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: String
    host: String
    port: UInt16


@struct
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@message(api_key=82, versions=(0, 0), flexible=0, listeners=("controller",))
class UpdateRaftVoterRequest:
    """A voter tells the quorum's leader its new endpoints and versions."""

    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature


@struct
class CurrentLeader:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: String
    port: Int32


@message(api_key=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse:
    """Whether the leader took note, and who leads."""

    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader | None = field(tag=0, default=None, nullable=False)
