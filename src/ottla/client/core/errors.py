"""The errors of clients. Each names the topic or the id and says what to do. `rpc/errors` has the others."""

from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import ADVICE, ClientError
from ottla.wire.errors import Error


class Misused(ClientError):
    """The caller used the API wrongly."""


class NoLeader(ClientError):
    """The partition has no leader at present, or does not exist."""

    retriable = True

    def __init__(self, partition: TopicPartition, *, exists: bool) -> None:
        self.partition = partition
        if exists:
            super().__init__(f"partition {partition} has no leader", ADVICE[Error.LEADER_NOT_AVAILABLE])
        else:
            super().__init__(f"there is no partition {partition}", "Check the topic and its number of partitions.")


class BufferFull(ClientError):
    """The producer's buffer is full. The record was not taken."""

    retriable = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the records that wait to be sent fill the buffer of {limit:,} bytes",
            "Wait for `room()`, raise buffer_bytes, or send less.",
        )


class RecordTooLarge(ClientError):
    """The record is too large to be sent."""

    def __init__(self, partition: str, size: int, limit: int, setting: str) -> None:
        super().__init__(
            f"{partition}: a record takes {size:,} bytes, {limit:,} are allowed by {setting}",
            f"Raise {setting}, or send smaller records.",
        )


def _about(subject: str, cause: ClientError) -> str:
    return cause.what if cause.what.startswith(subject) else f"{subject}: {cause.what}"


class DeliveryFailed(ClientError):
    """The records were not appended, and will not be."""

    def __init__(self, partition: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(f"not delivered: {_about(partition, cause)}", cause.advice)


class DeliveryUnknown(ClientError):
    """The records may have been appended or not."""

    unknown_outcome = True

    def __init__(self, partition: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"it is unknown whether the records were appended: {_about(partition, cause)}",
            "Read the log before sending them again.",
        )


class TransactionFailed(ClientError):
    """The transaction failed. It can be aborted, and then the producer may continue."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        advice = "Abort it, and send the same records in a new one."
        super().__init__(
            f"{subject}: the transaction cannot be committed: {cause.what}",
            f"{cause.advice} {advice}" if cause.advice else advice,
        )


class ProducerFenced(ClientError):
    """Another producer has taken the transactional id; this one can write nothing more."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: this producer was fenced ({cause.what})",
            "Another producer uses the id, or a transaction was open longer than transaction_timeout_ms. "
            "Close this producer. A new one continues after the last committed transaction.",
        )


class MembershipLost(ClientError):
    """The group has removed this consumer; others own its partitions now."""

    def __init__(self, subject: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: this consumer is not a member any more ({cause.what})",
            "Other members own its partitions and read its uncommitted records again. It joins again at the next poll. "
            "The records of one poll must be processed in less than rebalance_timeout_ms.",
        )


class EndUnknown(ClientError):
    """The outcome of ending the transaction is unknown. Only the same end may be requested again."""

    unknown_outcome = True

    def __init__(self, subject: str, wish: str, cause: ClientError) -> None:
        self.cause = cause
        super().__init__(
            f"{subject}: it is unknown whether the {wish} was executed: {cause.what}",
            f"Call `{wish}` again. If the producer is closed instead, read the log to see the outcome.",
        )
