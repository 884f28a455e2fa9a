"""The state of the quorum itself: the control records in the metadata log, and the `quorum-state` file.

Rule 1: the first record of a leader's epoch is LeaderChange. Where voters are dynamic (kraft.version 1), the leader of
        the very first epoch also writes the quorum's version and its voters into the log.
Rule 2: `quorum-state` is written before its contents have any effect. Otherwise a crash could lose a vote or an epoch,
        and it could be given twice. With static voters (kraft.version 0) the file has data_version 0 and lists them.
"""

import json
from typing import Any, Final, NamedTuple

from ottla.kernel import ControlType, CorruptBatch, Record, control_key, control_type
from ottla.wire.codec import Malformed, decode, encode
from ottla.wire.records.control import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_from_text, uuid_to_text

QUORUM_STATE_FILE: Final = "quorum-state"
NOBODY: Final = -1
KRAFT_VERSIONS: Final = (0, 1)


class Voter(NamedTuple):
    node_id: int
    directory_id: bytes = NO_UUID
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Listener name, host and port of each endpoint."""


Voters = tuple[Voter, ...]


class QuorumState(NamedTuple):
    """The epoch, leader and vote that a voter must not forget."""

    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: bytes = NO_UUID


class BadQuorumState(ValueError):
    """A `quorum-state` file that cannot be decoded."""


class ControlRecords(NamedTuple):
    """The contents of the control records of one batch that a reader of the log needs."""

    kraft_version: int | None = None
    voters: Voters | None = None
    last_log_timestamp: int | None = None
    is_footer: bool = False


def leader_change(leader_id: int, voters: Voters) -> tuple[bytes, bytes]:
    listed = [LeaderChangeMessageVoter(voter_id=voter.node_id) for voter in voters]
    granting = [LeaderChangeMessageVoter(voter_id=leader_id)]
    message = LeaderChangeMessage(version=0, leader_id=leader_id, voters=listed, granting_voters=granting)
    return control_key(ControlType.LEADER_CHANGE), encode(message, 0)


def quorum_records(voters: Voters) -> list[tuple[bytes, bytes]]:
    """The control records with kraft.version 1 and with the voters."""
    version = KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSIONS[-1])
    listed = VotersRecord(
        version=0,
        voters=[
            VotersRecordVoter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
                kraft_version_feature=KRaftVersionFeature(
                    min_supported_version=KRAFT_VERSIONS[0], max_supported_version=KRAFT_VERSIONS[-1]
                ),
            )
            for voter in voters
        ],
    )
    return [
        (control_key(ControlType.KRAFT_VERSION), encode(version, 0)),
        (control_key(ControlType.KRAFT_VOTERS), encode(listed, 0)),
    ]


def header_records(last_log_timestamp: int, voters: Voters | None) -> list[tuple[bytes, bytes]]:
    """The first control records of a snapshot."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_log_timestamp)
    first = (control_key(ControlType.SNAPSHOT_HEADER), encode(header, 0))
    return [first, *(quorum_records(voters) if voters is not None else [])]


def read_control_records(records: list[Record]) -> ControlRecords:
    """Decode control records. Raises `CorruptBatch` if a value does not have the type that its key states."""
    found = ControlRecords()
    for record in records:
        kind, value = control_type(record), record.value or b""
        try:
            if kind is ControlType.KRAFT_VERSION:
                found = found._replace(kraft_version=decode(KRaftVersionRecord, 0, value).kraft_version)
            elif kind is ControlType.KRAFT_VOTERS:
                found = found._replace(voters=_voters(decode(VotersRecord, 0, value)))
            elif kind is ControlType.SNAPSHOT_HEADER:
                header = decode(SnapshotHeaderRecord, 0, value)
                found = found._replace(last_log_timestamp=header.last_contained_log_timestamp)
            elif kind is ControlType.SNAPSHOT_FOOTER:
                found = found._replace(is_footer=True)
        except Malformed as error:
            raise CorruptBatch(f"control record at {record.offset}: {error}") from error
    return found


def _voters(record: VotersRecord) -> Voters:
    return tuple(
        Voter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple((point.name, point.host, point.port) for point in voter.endpoints),
        )
        for voter in record.voters
    )


def encode_quorum_state(state: QuorumState, static_voters: Voters | None) -> bytes:
    """The bytes of the file in Kafka's format. `static_voters` are listed if kraft.version is 0."""
    fields: dict[str, Any] = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": state.voted_id}
    if static_voters is None:
        fields |= {"votedDirectoryId": uuid_to_text(state.voted_directory_id), "data_version": 1}
    else:
        voters = [{"voterId": voter.node_id} for voter in static_voters]
        fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise BadQuorumState(f"data_version {version!r}; 0 and 1 are known")
        return QuorumState(
            epoch=int(fields["leaderEpoch"]),
            leader_id=int(fields.get("leaderId", NOBODY)),
            voted_id=int(fields.get("votedId", NOBODY)),
            voted_directory_id=uuid_from_text(fields["votedDirectoryId"]) if "votedDirectoryId" in fields else NO_UUID,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadQuorumState(f"not the state of a voter: {error!r}") from error
