"""The exceptions of the kernel for invalid bytes.

Rule 1: for any bytes the kernel raises one of these or nothing; IndexError, struct.error and exceptions of a codec
        library never leave it.
Rule 2: CORRUPT_MESSAGE means that the bytes were changed in transit or on disk, and clients retry; INVALID_RECORD means
        that they arrived as sent and are wrong, so a retry cannot help.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.errors import Error, Refused


class CorruptBatch(Refused):
    """The bytes are not a whole record batch: wrong checksum, size, magic, compression or layout."""

    def __init__(self, text: str) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, text)


class TakesLong(Exception):
    """A batch has more to check than `ProduceRules.at_once_max`; it was not checked."""


class RecordError(NamedTuple):
    """Why the record at `batch_index` (counted from 0) was refused."""

    batch_index: int
    message: str


class InvalidRecords(Refused):
    """A produced batch breaks a rule of the topic or of the format; `record_errors` name the records that do."""

    def __init__(self, error: Error, text: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(error, text)
        self.record_errors = list(record_errors)
