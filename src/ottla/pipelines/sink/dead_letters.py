"""The headers of a dead letter: where the record came from and why it failed; and the headers of one that is sent back.

Rule 1: the values are text. If a header occurs twice, as in a record that failed twice, the last one counts.
Rule 2: the headers of Kafka Connect's sink connectors are read too.
Rule 3: a record that is sent back gets its original headers and a counter. The counter stays with the record, so that
        one that fails again and again is recognised.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

TOPIC: Final = "ottla.dlq.topic"
PARTITION: Final = "ottla.dlq.partition"
OFFSET: Final = "ottla.dlq.offset"
ERROR: Final = "ottla.dlq.error"
PIPELINE: Final = "ottla.dlq.pipeline"
EPOCH: Final = "ottla.dlq.epoch"

HEADERS: Final = (TOPIC, PARTITION, OFFSET, ERROR, PIPELINE, EPOCH)
REDRIVES: Final = "ottla.dlq.redrives"
"""The header that counts how often the record was sent back."""

CONNECT_PREFIX: Final = "__connect.errors."
_CONNECT_TOPIC: Final = f"{CONNECT_PREFIX}topic"
_CONNECT_PARTITION: Final = f"{CONNECT_PREFIX}partition"
_CONNECT_OFFSET: Final = f"{CONNECT_PREFIX}offset"
_CONNECT_CONNECTOR: Final = f"{CONNECT_PREFIX}connector.name"
_CONNECT_EXCEPTION: Final = f"{CONNECT_PREFIX}exception.class.name"
_CONNECT_MESSAGE: Final = f"{CONNECT_PREFIX}exception.message"

HeaderPairs = Iterable[tuple[str, bytes | None]]
# What differs between errors of one kind: quoted values and numbers.
_PARTICULARS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-fA-F]+\b|\d+(?:[.,]\d+)*")


class LetterOrigin(NamedTuple):
    """Where a dead letter came from and why it failed. None: its headers do not say."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: str | None = None
    pipeline: str | None = None
    epoch: int | None = None
    redrives: int = 0

    @property
    def kind(self) -> str:
        """The error's first line without quoted values and numbers, to count errors of one kind together."""
        lines = (self.error or "").splitlines()
        return _PARTICULARS.sub("…", lines[0].strip()) if lines else "no error given"


def origin_of(headers: HeaderPairs) -> LetterOrigin:
    told = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    redrives = _number(told, REDRIVES) or 0
    if any(name in told for name in HEADERS):
        return LetterOrigin(
            told.get(TOPIC),
            _number(told, PARTITION),
            _number(told, OFFSET),
            told.get(ERROR),
            told.get(PIPELINE),
            _number(told, EPOCH),
            redrives,
        )
    exception = [told[name] for name in (_CONNECT_EXCEPTION, _CONNECT_MESSAGE) if told.get(name)]
    return LetterOrigin(
        told.get(_CONNECT_TOPIC),
        _number(told, _CONNECT_PARTITION),
        _number(told, _CONNECT_OFFSET),
        ": ".join(exception) or None,
        told.get(_CONNECT_CONNECTOR),
        None,
        redrives,
    )


def headers_sent_back(headers: HeaderPairs) -> list[tuple[str, bytes | None]]:
    """The record's original headers, and the counter of how often it has been sent back, this time included."""
    kept = list(headers)
    count = origin_of(kept).redrives + 1
    own = (*HEADERS, REDRIVES)
    return [
        *((name, value) for name, value in kept if name not in own and not name.startswith(CONNECT_PREFIX)),
        (REDRIVES, b"%d" % count),
    ]


def _number(told: Mapping[str, str], name: str) -> int | None:
    text = told.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None
