"""Items and findings as JSON, one object a line, for programs.

Bytes are a string where they are UTF-8, else an object with the one member `base64`. Times are milliseconds since 1970.
"""

import base64
import json
from collections.abc import Iterable
from typing import Any, TextIO

from ottla.cli.log.findings import Finding, Tally
from ottla.cli.log.items import Item


def write_items(items: Iterable[Item], out: TextIO) -> int:
    """Print everything; the number of damages met."""
    damages = 0
    for item in items:
        damages += item.kind == "damage"
        fields = {name: _plain(value) for name, value in item.fields.items()}
        out.write(_line({"type": item.kind.replace(" ", "_"), "file": item.file, **fields}))
    return damages


def write_findings(name: str, findings: Iterable[Finding], tally: Tally, out: TextIO) -> int:
    """Print what is wrong, and last what was looked at; the number of problems."""
    problems = 0
    for finding in findings:
        problems += finding.problem
        fields = finding._asdict()
        kind = "problem" if fields.pop("problem") else "note"
        out.write(_line({"type": kind, **fields}))
    out.write(_line({"type": "summary", "name": name, "problems": problems, **vars(tally)}))
    return problems


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value
