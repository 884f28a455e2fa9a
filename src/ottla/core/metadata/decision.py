"""What a decision is: the records to write, and the answer that is true once they are committed.

Rule 1: deciding changes nothing. The image changes by `Image.replay` alone, live and at load.
Rule 2: the records of one decision are written in one batch: all of them count or none.
"""

from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")

MetadataRecord = Any
"""An instance of one of the classes in `wire/records/metadata.py`."""


class Decision(NamedTuple, Generic[R]):
    records: list[MetadataRecord]
    reply: R
