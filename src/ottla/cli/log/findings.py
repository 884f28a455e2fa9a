"""The findings of `ottla log verify`."""

from dataclasses import dataclass
from typing import NamedTuple

CUT = (
    "If the broker did not stop cleanly, its next start cuts the log here, and other replicas give back what is "
    "missing. Otherwise bytes changed on the disk: let the partition be copied anew from another replica."
)
REBUILD = "Remove the file while the broker is stopped; it is rebuilt from the log at the next start."
FROM_REPLICA = "Bytes changed on the disk. Let the partition be copied anew from another replica."


class Finding(NamedTuple):
    """A `problem` makes the check fail; a note (`problem` false) does not."""

    file: str
    what: str
    advice: str
    position: int | None = None
    problem: bool = True


@dataclass
class CheckedCounts:
    """How much was checked."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
