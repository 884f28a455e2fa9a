"""Kafka's error codes: name, code, whether a retry may succeed, and a description.

Rule 1: names, codes and retriability are Kafka 4.3's; the sentences are our own.
Rule 2: a refusal is a response. Code that cannot execute a request raises `Refused`; the handler turns it into the
        error code and text of the response.
"""

from enum import IntEnum
from typing import Final

_RETRY: Final = True


class Error(IntEnum):
    """An error code; `Error(code)` finds the member of a received code."""

    retriable: bool
    text: str

    def __new__(cls, code: int, text: str = "", retriable: bool = False) -> "Error":
        member = int.__new__(cls, code)
        member._value_ = code
        member.text = text
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server failed in a way it did not foresee; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies before the start or after the end of the partition's log."
    CORRUPT_MESSAGE = (
        2,
        "The records are damaged: wrong checksum, size or layout, or no key in a compacted topic.",
        _RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker has no such topic or partition.", _RETRY
    INVALID_FETCH_SIZE = 4, "The size to fetch makes no sense."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment: an election is under way.", _RETRY
    NOT_LEADER_OR_FOLLOWER = 6, "This broker neither leads the partition nor, where that suffices, follows it.", _RETRY
    REQUEST_TIMED_OUT = 7, "The request was not done in the time it allowed.", _RETRY
    BROKER_NOT_AVAILABLE = 8, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, "This broker's replica of the partition cannot serve the request now.", _RETRY
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than the topic accepts (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, "The request comes from a controller that has since been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, "The text committed beside an offset is too long (offset.metadata.max.bytes)."
    NETWORK_EXCEPTION = 13, "The connection closed before an answer arrived.", _RETRY
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still reading its state from the log.", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator for this group or transaction yet.", _RETRY
    NOT_COORDINATOR = 16, "Another broker coordinates this group or transaction.", _RETRY
    INVALID_TOPIC_EXCEPTION = 17, "The topic's name is not allowed, or the topic may not be used this way."
    RECORD_LIST_TOO_LARGE = 18, "The record batch is larger than one segment of the log (segment.bytes)."
    NOT_ENOUGH_REPLICAS = 19, "Nothing was written: fewer replicas are in sync than min.insync.replicas.", _RETRY
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but too few in-sync replicas have them (min.insync.replicas).",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation than the member's."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the group, or offered none at all."
    INVALID_GROUP_ID = 24, "The group's name is not allowed here."
    UNKNOWN_MEMBER_ID = 25, "The group has no member of this id."
    INVALID_SESSION_TIMEOUT = (
        26,
        "The session time-out lies outside group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, "The group is handing out its partitions anew: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets to commit take more room than one record may."
    TOPIC_AUTHORIZATION_FAILED = 29, "No permission for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "No permission for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "No permission for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is further from now than the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit this step of the SASL conversation."
    UNSUPPORTED_VERSION = 35, "The server does not speak this version of the request."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not possible; it must be at least 1."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor must be at least 1 and at most the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The list of replicas names unknown brokers, repeats one, or is uneven."
    INVALID_CONFIG = 40, "A setting's name or value is not valid."
    NOT_CONTROLLER = 41, "This node is not the active controller.", _RETRY
    INVALID_REQUEST = 42, "The request contradicts the protocol; the client library or its settings are at fault."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "Records of this format version cannot do what was asked."
    POLICY_VIOLATION = 44, "A policy of this cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number leaves a gap: an earlier batch is missing."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the newest one seen."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this step."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "The transaction's time-out exceeds transaction.max.timeout.ms, or is not positive.",
    )
    CONCURRENT_TRANSACTIONS = 51, "Another step of the same transaction is still being carried out.", _RETRY
    TRANSACTION_COORDINATOR_FENCED = 52, "The marker comes from a transaction coordinator that has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "No permission for the transactional id."
    SECURITY_DISABLED = 54, "The cluster has no authoriser (authorizer.class.name)."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another operation of the same request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk that holds the partition failed; its log directory is offline.", _RETRY
    LOG_DIR_NOT_FOUND = 57, "The directory is not one of the broker's log.dirs."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, "The partition knows nothing of this producer; its records may have been removed by age."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "The cluster issues no delegation tokens (delegation.token.secret.key)."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The cluster has no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns the delegation token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "Delegation tokens need a connection authenticated by other means than such a token, plaintext or one-way TLS.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "No permission for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token is past its end."
    INVALID_PRINCIPAL_TYPE = 67, "Principals of this type are not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no group of this name."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has forgotten the fetch session: start a new one.", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch than the request.", _RETRY
    LISTENER_NOT_FOUND = 72, "The partition's leader has no listener of the name this client connected to.", _RETRY
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is switched off (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, "The request names an older leader epoch than the broker's.", _RETRY
    UNKNOWN_LEADER_EPOCH = 75, "The request names a newer leader epoch than the broker has heard of.", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The records use a compression that this version of the request cannot carry."
    STALE_BROKER_EPOCH = 77, "The broker has registered anew since the request was made."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know yet how far the log is replicated.", _RETRY
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The partition's preferred leader cannot lead now.", _RETRY
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have (group.max.size)."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead the partition is alive.", _RETRY
    ELECTION_NOT_NEEDED = 84, "The partition already has the leader the election would give it.", _RETRY
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still consumes the topic, so its offsets may not be deleted."
    INVALID_RECORD = 87, "The broker refused a record: it breaks a rule of the topic or of the record format."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction must be settled first.", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up: wait for the time the answer gives.", _RETRY
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "What the request refers to does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The new credential breaks a rule for credentials."
    INCONSISTENT_VOTER_SET = 94, "Sender and receiver do not agree on who votes in the quorum."
    INVALID_UPDATE_VERSION = 95, "The feature cannot be moved to this version."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be updated; the controller's log says more."
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "The forwarded principal cannot be read: the nodes' security settings differ.",
    )
    SNAPSHOT_NOT_FOUND = 98, "There is no snapshot of this id."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker has no topic of this id.", _RETRY
    DUPLICATE_BROKER_REGISTRATION = 101, "Another live broker uses this broker id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic's id differs from the one of the log here.", _RETRY
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for a cluster of another id."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The coordinator has no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names with topic ids.", _RETRY
    INELIGIBLE_REPLICA = 107, "A replica meant for the in-sync set may not join it now."
    NEW_LEADER_ELECTED = 108, "The partition's state was changed, and with it its leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is now only in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The group has fenced the member: it must give up its partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "A member that has not left yet holds this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, "The group coordinator does not have this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is behind: a heartbeat brings the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request belongs to the other kind of endpoint (broker or controller)."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "Endpoints of this kind cannot be described."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or no longer valid."
    TELEMETRY_TOO_LARGE = 118, "The telemetry sent is larger than the broker accepts (telemetry.max.bytes)."
    INVALID_REGISTRATION = 119, "The controller does not accept the broker's registration."
    TRANSACTION_ABORTABLE = 120, "The transaction can only be aborted; the producer may go on afterwards."
    INVALID_RECORD_STATE = 121, "The record is in no state that this acknowledgement fits."
    SHARE_SESSION_NOT_FOUND = 122, "The broker has forgotten the share session: start a new one.", _RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch than the request.", _RETRY
    FENCED_STATE_EPOCH = 124, "The share group's state is at another epoch than the request."
    INVALID_VOTER_KEY = 125, "The request is meant for a voter of another id or directory."
    DUPLICATE_VOTER = 126, "The voter is in the quorum already."
    VOTER_NOT_FOUND = 127, "The quorum has no such voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be understood."
    REBOOTSTRAP_REQUIRED = 129, "The client's view of the cluster is too old: start again from bootstrap.servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology contradicts itself."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the streams topology is not possible."
    STREAMS_TOPOLOGY_FENCED = 132, "The group has a newer streams topology."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker has no room for another share session.", _RETRY


_TEXT_START, _TEXT_END = 1_000, 500
_BRIEF = 200


def _shortened(text: str) -> str:
    if len(text) <= _TEXT_START + _TEXT_END:
        return text
    return f"{text[:_TEXT_START]} [{len(text) - _TEXT_START - _TEXT_END} characters] {text[-_TEXT_END:]}"


class Refused(Exception):
    """A request is refused: `error` for programs, `text` for people.

    The text may quote the request. It is shortened in the middle if it is long: a response allows 32,767 bytes of it,
    and one that does not fit would close the connection instead.
    """

    def __init__(self, error: Error, text: str | None = None) -> None:
        self.error = error
        self.text = error.text if text is None else _shortened(text)
        super().__init__(f"{error.name}: {self.text}")

    @property
    def brief(self) -> str:
        """The text for a response with many partitions, each of which may quote the long name of a topic."""
        return self.text if len(self.text) <= _BRIEF else self.text[:_BRIEF] + "..."
