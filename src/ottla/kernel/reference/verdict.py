"""Which records of a produced batch are refused, and the error texts.

Rule 1: CreateTime: a timestamp is within message.timestamp.before.max.ms before and after.max.ms after the broker's
        time, or is -1 (none).
Rule 2: LogAppendTime: the producer's timestamps are ignored, unless the batch claims LogAppendTime itself.
Rule 3: a batch that claims LogAppendTime has one timestamp, its max timestamp. In a CreateTime topic that one is
        checked by rule 1, and the flag is then cleared, as in Kafka.
Rule 4: one INVALID_TIMESTAMP makes the whole response INVALID_TIMESTAMP; else it is INVALID_RECORD.
"""

from typing import Final, NamedTuple

from ottla.kernel.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from ottla.kernel.errors import InvalidRecords, RecordError
from ottla.kernel.reference.layout import TIMESTAMP_MAX, TIMESTAMP_MIN, wrap64
from ottla.wire.errors import Error

_ALL: Final = (-(2**65), 2**65)  # Bounds that every delta is within.
_NONE: Final = (1, 0)  # Bounds that no delta is within.

NAMED_MAX: Final = 1000  # More than a thousand bad records do not help a client, and a hostile one sends millions.


class Window(NamedTuple):
    """The allowed timestamps of a batch as deltas to its base timestamp, so that the walk compares what it reads."""

    deltas: tuple[int, int]
    base: int
    shared: int | None  # The one timestamp of all records, if the batch claims LogAppendTime.
    now_ms: int
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(
        cls, header: BatchHeader, of_topic: TimestampType, before_max_ms: int, after_max_ms: int, now_ms: int
    ) -> "Window":
        base, shared = header.base_timestamp, None
        earliest, latest = now_ms - before_max_ms, now_ms + after_max_ms
        if earliest < TIMESTAMP_MIN:
            earliest = TIMESTAMP_MIN
        if latest > TIMESTAMP_MAX:
            latest = TIMESTAMP_MAX
        deltas = _ALL if of_topic is TimestampType.LOG_APPEND_TIME else (earliest - base, latest - base)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            shared = header.max_timestamp
            allowed = of_topic is TimestampType.CREATE_TIME and shared != NO_TIMESTAMP and earliest <= shared <= latest
            deltas = _ALL if allowed else _NONE
        return cls(deltas, base, shared, now_ms, before_max_ms, after_max_ms)

    def wrapped(self, delta: int) -> int:
        """The delta of the resulting timestamp: the sum wraps in 64 bits, as in Java."""
        return wrap64(self.base + delta) - self.base

    def max_timestamp(self, largest_delta: int) -> int:
        return self.base + largest_delta if self.shared is None else self.shared

    def fault(self, index: int, delta: int) -> str | None:
        """The error for a delta outside `deltas`; None if it means that the record has no timestamp."""
        timestamp = self.base + delta if self.shared is None else self.shared
        if self.shared is None and timestamp == NO_TIMESTAMP:
            return None
        ahead = timestamp - self.now_ms
        if ahead > self.after_max_ms:
            return (
                f"timestamp {timestamp} of record {index} is {ahead} ms ahead of the broker; "
                f"message.timestamp.after.max.ms allows {self.after_max_ms}"
            )
        if -ahead > self.before_max_ms and timestamp != NO_TIMESTAMP:
            return (
                f"timestamp {timestamp} of record {index} is {-ahead} ms behind the broker; "
                f"message.timestamp.before.max.ms allows {self.before_max_ms}"
            )
        return f"record {index} claims LogAppendTime, which only the broker sets"


class Faults:
    """The records refused so far, each with one fault: a missing key takes precedence over a timestamp, as in Kafka."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._named: dict[int, tuple[Error, str]] = {}

    def timestamp(self, index: int, delta: int) -> None:
        message = self._window.fault(index, delta)
        if message is not None:
            self._name(index, Error.INVALID_TIMESTAMP, message)

    def no_key(self, index: int) -> None:
        self._name(index, Error.INVALID_RECORD, f"record {index} has no key; the topic is compacted (cleanup.policy)")

    def refuse_if_any(self) -> None:
        if self._named:
            raise self._refusal("")

    def _name(self, index: int, error: Error, message: str) -> None:
        if len(self._named) == NAMED_MAX and index not in self._named:
            raise self._refusal(" at least")
        self._named[index] = error, message

    def _refusal(self, at_least: str) -> InvalidRecords:
        found = self._named.values()
        error = next((e for e, _ in found if e is Error.INVALID_TIMESTAMP), Error.INVALID_RECORD)
        first = next(iter(found))[1]
        count = len(self._named)
        text = first if count == 1 else f"{first} ({count} records are refused{at_least})"
        return InvalidRecords(error, text, [RecordError(index, message) for index, (_, message) in self._named.items()])
