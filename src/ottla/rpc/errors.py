"""The errors of requests to brokers. Each names the broker and says what to do.

Rule 1: `retriable` means that a repetition may succeed without any change by a person.
Rule 2: `unknown_outcome` means that the cluster may have executed the request although no response confirmed it. Every
        other error is definite: it was not executed and will not be.
"""

from ottla.rpc.addresses import Address
from ottla.wire.errors import Error

UNKNOWN_OUTCOME = frozenset(
    {
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NETWORK_EXCEPTION,
        # Written but not synced: after the disk is opened again the record may be there or not.
        Error.KAFKA_STORAGE_ERROR,
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
    Error.COORDINATOR_NOT_AVAILABLE: "Wait a moment. If it lasts, check that the internal topics have leaders.",
    Error.COORDINATOR_LOAD_IN_PROGRESS: "Wait until the coordinator has read its log.",
    Error.TRANSACTIONAL_ID_NOT_FOUND: "Check the id; ids that are not used expire.",
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Ask for an ACL that allows this on the transactional id.",
    Error.INVALID_TXN_STATE: "The coordinator has ended it: it may have been open longer than transaction_timeout_ms.",
    Error.INVALID_TRANSACTION_TIMEOUT: "Lower transaction_timeout_ms, or raise transaction.max.timeout.ms there.",
    Error.CONCURRENT_TRANSACTIONS: "Wait until the previous transaction has ended.",
    Error.OFFSET_OUT_OF_RANGE: "Start from the beginning, the end, or an offset that is still in the log.",
    Error.UNSUPPORTED_COMPRESSION_TYPE: "Choose another codec.",
    Error.UNKNOWN_SERVER_ERROR: "The broker's log has the reason.",
}


def error_of(code: int) -> Error:
    """The error of a received code; an unknown code of a later Kafka is UNKNOWN_SERVER_ERROR."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


class ClientError(Exception):
    """A request or an operation of the client failed. `what` says how, `advice` what a person can do about it."""

    retriable = False
    unknown_outcome = False

    def __init__(self, what: str, advice: str = "") -> None:
        self.what, self.advice = what, advice
        super().__init__(f"{what}. {advice}" if advice else what)


class Unreachable(ClientError):
    """No connection to a broker could be opened."""

    retriable = True

    def __init__(self, addresses: list[Address], reasons: list[str]) -> None:
        self.addresses = addresses
        tried = "; ".join(f"{address}: {reason}" for address, reason in zip(addresses, reasons, strict=True))
        what = f"no broker can be reached ({tried})" if len(addresses) > 1 else f"broker {tried}"
        super().__init__(what, "Check that it runs and that the address is right.")


class Disconnected(ClientError):
    """A connection ended before the response."""

    retriable = True
    unknown_outcome = True

    def __init__(self, broker: Address, reason: str) -> None:
        self.broker = broker
        super().__init__(f"broker {broker}: {reason}")


class TimedOut(ClientError):
    """A response did not come in time."""

    retriable = True
    unknown_outcome = True

    def __init__(self, broker: Address, api: str, after_ms: int) -> None:
        self.broker = broker
        super().__init__(
            f"broker {broker}: no answer to {api} in {after_ms / 1000:g} s", "The broker's log may say why."
        )


class BadAnswer(ClientError):
    """The peer sent bytes that are not a response of a Kafka broker."""

    unknown_outcome = True

    def __init__(self, broker: Address, reason: str) -> None:
        self.broker = broker
        super().__init__(
            f"broker {broker}: the answer makes no sense: {reason}",
            "Check that the address is a Kafka listener without TLS.",
        )


class Unsupported(ClientError):
    """The broker lacks what is needed: it is too old or too new, or the request is disabled."""

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
    """The exception for a received error code about `subject`; None for code 0."""
    error = error_of(code)
    return None if error is Error.NONE else Declined(error, broker=broker, subject=subject, text=text)
