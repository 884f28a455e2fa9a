"""Control records: markers of transactions, and the records that the metadata quorum writes about itself."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


@message(versions=(0, 0))
class ControlRecordTypeSchema:
    """The key of a control record, which holds its type."""

    type: Int16


@message(versions=(0, 0))
class EndTxnMarker:
    """The value of a control record that commits or aborts a transaction."""

    coordinator_epoch: Int32


@struct
class LeaderChangeMessageVoter:
    voter_id: Int32
    voter_directory_id: Uuid = field(since=1, default=NO_UUID)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage:
    """The first record of a quorum leader's epoch: the leader, and the voters that elected it."""

    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord:
    """The first record of a snapshot."""

    version: Int16
    last_contained_log_timestamp: Int64


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord:
    """The last record of a snapshot. A snapshot without it is incomplete."""

    version: Int16


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord:
    """The version of the quorum's own protocol, valid from this record on."""

    version: Int16
    kraft_version: Int16


@struct
class Endpoint:
    name: String
    host: String
    port: UInt16


@struct
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@struct
class VotersRecordVoter:
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    kraft_version_feature: KRaftVersionFeature


@message(versions=(0, 0), flexible=0)
class VotersRecord:
    """The voters of the metadata quorum, from this record on."""

    version: Int16
    voters: list[VotersRecordVoter]
