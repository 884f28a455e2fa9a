"""What the kernel answers when the bytes it was given are not good.

Rule 1: whatever the bytes, the kernel raises one of these or nothing; IndexError, struct.error, a codec library's own
        exceptions and the like never leave it.
Rule 2: CORRUPT_MESSAGE says that the bytes changed on the way or on the disk, and clients send again; INVALID_RECORD
        says that they arrived as they were sent and are wrong, so that sending again cannot help.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.errors import Error, Refused


class CorruptBatch(Refused):
    """These bytes are no whole record batch: wrong checksum, size, magic, compression or layout."""

    def __init__(self, text: str) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, text)


class TakesLong(Exception):
    """A batch has more to check than `ProduceRules.at_once_max`: nothing was found out about it yet."""


class RecordError(NamedTuple):
    """Why the record at `batch_index` (counted from 0) was refused."""

    batch_index: int
    message: str


class InvalidRecords(Refused):
    """A produced batch breaks a rule of the topic or of the format; `record_errors` name the records that do."""

    def __init__(self, error: Error, text: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(error, text)
        self.record_errors = list(record_errors)
