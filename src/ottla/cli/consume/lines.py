"""Formats records as lines.

Rule 1: into a pipe or a file a value is written unchanged. On a terminal, a value that is not printable text is shown
        in hexadecimal, because control characters could reprogram the terminal.
Rule 2: null is the word null; with --json it is distinct from the text.
"""

from typing import NamedTuple

from ottla.cli.log.tables import shown_bytes, shown_time
from ottla.cli.plain import json_line
from ottla.client.consumer import Received

_DIM, _PLAIN = b"\x1b[2m", b"\x1b[0m"


class LineForm(NamedTuple):
    """The formatting options."""

    as_json: bool = False
    offsets: bool = False
    timestamps: bool = False
    keys: bool = False
    headers: bool = False
    terminal: bool = False


def line_of(record: Received, form: LineForm) -> bytes:
    if form.as_json:
        return json_line(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": record.headers,
            }
        ).encode()
    before: list[bytes] = []
    if form.offsets:
        before.append(f"{record.partition}:{record.offset}".encode())
    if form.timestamps:
        before.append(_time(record.timestamp).encode())
    if form.headers:
        before.append(b",".join(name.encode() + b"=" + _text(value, form) for name, value in record.headers))
    if form.keys:
        before.append(_text(record.key, form))
    head = b"".join(part + b"\t" for part in before)
    if head and form.terminal:
        head = _DIM + head + _PLAIN
    return head + _text(record.value, form) + b"\n"


def _time(timestamp: int) -> str:
    return shown_time(timestamp, wide=True).replace(" ", "T") + ("Z" if timestamp >= 0 else "")


def _text(data: bytes | None, form: LineForm) -> bytes:
    if data is None:
        return b"null"
    return shown_bytes(data).encode() if form.terminal else data
