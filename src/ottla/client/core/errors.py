"""What goes wrong between a client and a cluster, each told with the broker, the topic and what to do.

Rule 1: `retriable` says that the same thing may succeed later without anybody changing anything.
Rule 2: `unknown_outcome` says that the cluster may have done what was asked although no answer said so. Everything else
        is definite: it was not done and will not be.
"""

from ottla.client.core.addresses import Address
from ottla.client.core.names import TopicPartition
from ottla.wire.errors import Error

UNKNOWN_OUTCOME = frozenset(
    {
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NETWORK_EXCEPTION,
        Error.KAFKA_STORAGE_ERROR,  # Written, but not synced: what the disk kept is seen when it is opened again.
    }
)

ADVICE = {
    Error.TOPIC_ALREADY_EXISTS: "Choose another name, or alter the topic that exists.",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "Check the name, or create the topic first.",
    Error.INVALID_REPLICATION_FACTOR: "Ask for fewer replicas, or start more brokers.",
    Error.INVALID_PARTITIONS: "Partitions can be added, never removed.",
    Error.INVALID_CONFIG: "Check the setting's name and value.",
    Error.INVALID_TOPIC_EXCEPTION: "Names have 1 to 249 letters, digits, dots, underscores and hyphens.",
    Error.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the topic, or send smaller records.",
    Error.RECORD_LIST_TOO_LARGE: "Raise segment.bytes of the topic, or send smaller batches.",
    Error.NOT_ENOUGH_REPLICAS: "Bring brokers back, or lower min.insync.replicas of the topic.",
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Bring brokers back, or lower min.insync.replicas of the topic.",
    Error.INVALID_RECORD: "A compacted topic needs a key in every record.",
    Error.INVALID_TIMESTAMP: "Check the record's time against message.timestamp.before.max.ms and ...after.max.ms.",
    Error.LEADER_NOT_AVAILABLE: "Wait for the election, or bring back a broker that holds the partition.",
    Error.TOPIC_AUTHORIZATION_FAILED: "Ask for an ACL that allows this on the topic.",
    Error.CLUSTER_AUTHORIZATION_FAILED: "Ask for an ACL that allows this on the cluster.",
    Error.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true on the brokers.",
    Error.GROUP_ID_NOT_FOUND: "Check the name; groups without members and offsets do not last.",
    Error.NON_EMPTY_GROUP: "Stop the group's members first; a dead one leaves when its session times out.",
    Error.UNKNOWN_MEMBER_ID: "The group has members that commit by themselves: stop them first.",
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that consume the topic first.",
    Error.GROUP_AUTHORIZATION_FAILED: "Ask for an ACL that allows this on the group.",
    Error.COORDINATOR_NOT_AVAILABLE: "Wait a moment; if it lasts, look whether the coordinators' topics have leaders.",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "Wait until the coordinator has read its log.",
    Error.TRANSACTIONAL_ID_NOT_FOUND: "Check the id; ids that are not used expire.",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Ask for an ACL that allows this on the transactional id.",
    Error.INVALID_TXN_STATE: "The coordinator has ended it: it may have been open longer than transaction_timeout_ms.",
    Error.INVALID_TRANSACTION_TIMEOUT: "Lower transaction_timeout_ms, or raise transaction.max.timeout.ms there.",
    Error.CONCURRENT_TRANSACTIONS: "Wait until the step under way is done.",
    Error.OFFSET_OUT_OF_RANGE: "Start from the beginning, the end, or an offset that is still there.",
    Error.UNSUPPORTED_COMPRESSION_TYPE: "Choose another codec.",
    Error.UNKNOWN_SERVER_ERROR: "The broker's log has the reason.",
}


def error_of(code: int) -> Error:
    """The error of a code that arrived; one from a later Kafka than ours is at least an error."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


class ClientError(Exception):
    """`what` happened, and the `advice` what to do about it."""

    retriable = False
    unknown_outcome = False

    def __init__(self, what: str, advice: str = "") -> None:
        self.what, self.advice = what, advice
        super().__init__(f"{what}. {advice}" if advice else what)


class Misused(ClientError):
    """The caller asks for what makes no sense."""


class Unreachable(ClientError):
    """No connection to a broker came about."""

    retriable = True

    def __init__(self, addresses: list[Address], reasons: list[str]) -> None:
        self.addresses = addresses
        tried = "; ".join(f"{address}: {reason}" for address, reason in zip(addresses, reasons, strict=True))
        what = f"no broker can be reached ({tried})" if len(addresses) > 1 else f"broker {tried}"
        super().__init__(what, "Check that it runs and that the address is right.")


class Disconnected(ClientError):
    """A connection ended before an answer came."""

    retriable = True
    unknown_outcome = True

    def __init__(self, broker: Address, reason: str) -> None:
        self.broker = broker
        super().__init__(f"broker {broker}: {reason}")


class TimedOut(ClientError):
    """An answer did not come in time."""

    retriable = True
    unknown_outcome = True

    def __init__(self, broker: Address, api: str, after_ms: int) -> None:
        self.broker = broker
        super().__init__(f"broker {broker}: no answer to {api} in {after_ms / 1000:g} s", "Its log may say why.")


class BadAnswer(ClientError):
    """The other side sent what no Kafka broker sends."""

    unknown_outcome = True

    def __init__(self, broker: Address, reason: str) -> None:
        self.broker = broker
        super().__init__(
            f"broker {broker}: the answer makes no sense: {reason}",
            "Check that the address is a Kafka listener without TLS.",
        )


class Unsupported(ClientError):
    """The broker cannot do what is needed: it is too old or too new, or has the request switched off."""

    def __init__(self, broker: Address, reason: str) -> None:
        self.broker = broker
        super().__init__(f"broker {broker}: {reason}", "Use a broker that speaks Kafka 2.1 or later.")


class Declined(ClientError):
    """A broker answered with an error code."""

    def __init__(
        self,
        error: Error,
        *,
        broker: Address | None = None,
        subject: str = "",
        text: str | None = None,
    ) -> None:
        self.error, self.broker, self.subject = error, broker, subject
        self.retriable = error.retriable
        self.unknown_outcome = error in UNKNOWN_OUTCOME
        where = [*([subject] if subject else []), *([f"broker {broker}"] if broker else [])]
        said = (text or error.text).rstrip(". ")
        super().__init__(f"{', '.join(where)}: {said} ({error.name})", ADVICE.get(error, ""))


def refusal_of(code: int, broker: Address, subject: str, text: str | None = None) -> Declined | None:
    """The error of a code that arrived about a subject; None where all went well."""
    error = error_of(code)
    return None if error is Error.NONE else Declined(error, broker=broker, subject=subject, text=text)


class NoLeader(ClientError):
    """A partition that nobody leads at present, or that does not exist."""

    retriable = True

    def __init__(self, partition: TopicPartition, *, exists: bool) -> None:
        self.partition = partition
        if exists:
            super().__init__(f"partition {partition} has no leader", ADVICE[Error.LEADER_NOT_AVAILABLE])
        else:
            super().__init__(f"there is no partition {partition}", "Check the topic and its number of partitions.")


class BufferFull(ClientError):
    """A producer holds as much as it may. Nothing was taken."""

    retriable = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit:,} bytes of records wait to be sent already",
            "Wait for `room()`, raise buffer_bytes, or send less.",
        )


class RecordTooLarge(ClientError):
    """A record that could never be sent."""

    def __init__(self, partition: str, size: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{partition}: a record takes {size:,} bytes, {limit:,} are allowed by {setting}",
            f"Raise {setting}, or send smaller records.",
        )


def _about(subject: str, cause: ClientError) -> str:
    return cause.what if cause.what.startswith(subject) else f"{subject}: {cause.what}"


class DeliveryFailed(ClientError):
    """Records that were not appended, and will not be."""

    def __init__(self, partition: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(f"not delivered: {_about(partition, cause)}", cause.advice)


class DeliveryUnknown(ClientError):
    """Records of which nobody can say whether they were appended."""

    unknown_outcome = True

    def __init__(self, partition: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"no answer says whether the records were appended: {_about(partition, cause)}",
            "They may be in the log or not: read it before sending them again.",
        )


class TransactionFailed(ClientError):
    """Something in the transaction went wrong: it can be aborted, and then the producer may go on."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        advice = "Abort it, and do the same again in a new one."
        super().__init__(
            f"{subject}: the transaction cannot be committed: {cause.what}",
            f"{cause.advice} {advice}" if cause.advice else advice,
        )


class ProducerFenced(ClientError):
    """The transactional id is not this producer's any more: nothing it writes counts."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: this producer was fenced ({cause.what})",
            "Another producer uses the id, or a transaction was open longer than transaction_timeout_ms. "
            "Close this producer; a new one begins after what was committed last.",
        )


class MembershipLost(ClientError):
    """The group has put this consumer out: its partitions are others' by now."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: this consumer is not a member any more ({cause.what})",
            "Others have its partitions and read again what it had not committed. It joins again at the next poll. "
            "Work on the records of one poll must take less than rebalance_timeout_ms.",
        )


class EndUnknown(ClientError):
    """Nobody answered whether the transaction has ended. Its end is decided: only the same may be asked for again."""

    unknown_outcome = True

    def __init__(self, subject: str, wish: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: no answer says whether the {wish} was taken: {cause.what}",
            f"Call `{wish}` again; or close the producer, and whether it counted is seen in the log.",
        )
