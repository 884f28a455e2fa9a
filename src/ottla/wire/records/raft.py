"""The contents of the file `quorum-state` of a voter of the metadata quorum."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int32, Int64, String, Uuid


@struct
class Voter:
    voter_id: Int32


@message(versions=(0, 1), flexible=0)
class QuorumStateData:
    """The epoch, leader and vote of a voter, which must survive a restart: the contents of `quorum-state`."""

    cluster_id: String = field(until=0, default="")
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    voted_id: Int32 = field(default=-1)
    voted_directory_id: Uuid = field(since=1, default=NO_UUID)
    applied_offset: Int64 = field(until=0, default=0)
    current_voters: list[Voter] | None = field(until=0, default=[])
