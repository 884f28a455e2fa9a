"""What a dead letter says of itself, in headers beside its own; and what is left of it when it is sent back.

Rule 1: the values are text. Where a name stands twice, as in a letter that died twice, the last one counts.
Rule 2: letters of Kafka Connect's sink connectors are understood too: they say the same under other names.
Rule 3: who is sent back gets the headers it came with, and one that counts how often. The counter stays with the
        record, so that one which dies again and again is known.
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
"""How often the record was sent back."""

CONNECT_PREFIX: Final = "__connect.errors."
_CONNECT_TOPIC: Final = f"{CONNECT_PREFIX}topic"
_CONNECT_PARTITION: Final = f"{CONNECT_PREFIX}partition"
_CONNECT_OFFSET: Final = f"{CONNECT_PREFIX}offset"
_CONNECT_CONNECTOR: Final = f"{CONNECT_PREFIX}connector.name"
_CONNECT_EXCEPTION: Final = f"{CONNECT_PREFIX}exception.class.name"
_CONNECT_MESSAGE: Final = f"{CONNECT_PREFIX}exception.message"

Headers = Iterable[tuple[str, bytes | None]]
# What differs from letter to letter in errors of one kind: quoted values, numbers.
_PARTICULARS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-fA-F]+\b|\d+(?:[.,]\d+)*")


class Origin(NamedTuple):
    """Whence a dead letter comes and why; None is what it does not say."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    error: str | None = None
    pipeline: str | None = None
    epoch: int | None = None
    redrives: int = 0

    @property
    def kind(self) -> str:
        """What errors of one kind have in common: the first line, without its particulars."""
        lines = (self.error or "").splitlines()
        return _PARTICULARS.sub("…", lines[0].strip()) if lines else "no error is told"


def origin_of(headers: Headers) -> Origin:
    told = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    redrives = _number(told, REDRIVES) or 0
    if any(name in told for name in HEADERS):
        return Origin(
            told.get(TOPIC),
            _number(told, PARTITION),
            _number(told, OFFSET),
            told.get(ERROR),
            told.get(PIPELINE),
            _number(told, EPOCH),
            redrives,
        )
    exception = [told[name] for name in (_CONNECT_EXCEPTION, _CONNECT_MESSAGE) if told.get(name)]
    return Origin(
        told.get(_CONNECT_TOPIC),
        _number(told, _CONNECT_PARTITION),
        _number(told, _CONNECT_OFFSET),
        ": ".join(exception) or None,
        told.get(_CONNECT_CONNECTOR),
        None,
        redrives,
    )


def headers_sent_back(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Those the record came with, and how often it has now been sent back."""
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
