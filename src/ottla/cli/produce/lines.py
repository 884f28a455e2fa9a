"""Parses lines into records."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.cli.errors import UserError
from ottla.cli.plain import bytes_from_plain

Headers = tuple[tuple[str, bytes | None], ...]
_FIELDS = {"key", "value", "headers", "timestamp", "partition"}
_TOLD_BY_CONSUME = {"topic", "offset"}  # Printed by `consume --json`; a new record gets its own.


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


class LineRules(NamedTuple):
    as_json: bool = False
    separator: bytes | None = None
    key: bytes | None = None
    null: bytes | None = None
    headers: Headers = ()
    partition: int | None = None


class LineSplitter:
    """Splits pieces of a file into lines; the last needs no line break."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, piece: bytes) -> Sequence[bytes]:
        """The lines that are complete now, without their line breaks; an empty piece is the end."""
        if not piece:
            rest, self._parts = b"".join(self._parts), []
            return [rest] if rest else []
        if b"\n" not in piece:
            self._parts.append(piece)
            return []
        lines = b"".join([*self._parts, piece]).split(b"\n")
        self._parts = [lines.pop()]
        return lines


def draft_of(line: bytes, number: int, rules: LineRules) -> InputRecord:
    """The record of line `number`. Raises UserError, which names the line."""
    if rules.as_json:
        return _from_json(line, number, rules)
    key, value = rules.key, line
    if rules.separator is not None:
        key, found, value = line.partition(rules.separator)
        if not found:
            separator = rules.separator.decode(errors="replace")
            raise UserError(f"line {number} has no key: {separator!r} (--key-separator) does not occur in it")
    return InputRecord(_or_null(key, rules), _or_null(value, rules), rules.headers, None, rules.partition)


def _or_null(text: bytes | None, rules: LineRules) -> bytes | None:
    return None if text is None or text == rules.null else text


def _from_json(line: bytes, number: int, rules: LineRules) -> InputRecord:
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        unknown = [name for name in fields if name not in _FIELDS | _TOLD_BY_CONSUME]
        if unknown:
            raise ValueError(f"it has {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
        return InputRecord(
            bytes_from_plain(fields["key"]) if "key" in fields else rules.key,
            bytes_from_plain(fields.get("value")),
            (*rules.headers, *_headers(fields.get("headers"))),
            _number(fields, "timestamp"),
            rules.partition if rules.partition is not None else _partition(fields),
        )
    except ValueError as error:
        raise UserError(f"line {number} is no record (--json): {error}") from None


def _partition(fields: dict[str, Any]) -> int | None:
    """The partition to send to. If the record has an offset it was consumed, and its partition belongs to the original
    topic: ignore it."""
    partition = _number(fields, "partition")
    return None if "offset" in fields else partition


def _number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"{name} is {value!r}, not a number from 0 on")
    return value


def _headers(given: Any) -> Iterator[tuple[str, bytes | None]]:
    """From an object, or from a list of pairs, because a name may occur twice."""
    if given is None:
        return
    listed = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(listed, list):
        raise ValueError("headers are neither an object nor a list of pairs")
    for pair in listed:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"the header {pair!r} is no pair of a name and a value")
        yield pair[0], bytes_from_plain(pair[1])
