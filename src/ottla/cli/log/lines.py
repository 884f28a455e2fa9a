"""Items and findings as JSON, one object per line, for programs.

Bytes are a string if they are UTF-8, else an object with the one member `base64`. Times are milliseconds since 1970.
"""

from collections.abc import Iterable
from typing import TextIO

from ottla.cli.log.findings import CheckedCounts, Finding
from ottla.cli.log.items import Item
from ottla.cli.plain import json_line


def write_items(items: Iterable[Item], out: TextIO) -> int:
    """Print all items; returns the number of damaged places."""
    damages = 0
    for item in items:
        damages += item.kind == "damage"
        out.write(json_line({"type": item.kind.replace(" ", "_"), "file": item.file, **item.fields}))
    return damages


def write_findings(name: str, findings: Iterable[Finding], tally: CheckedCounts, out: TextIO) -> int:
    """Print the findings, and last what was checked; returns the number of problems."""
    problems = 0
    for finding in findings:
        problems += finding.problem
        fields = finding._asdict()
        kind = "problem" if fields.pop("problem") else "note"
        out.write(json_line({"type": kind, **fields}))
    out.write(json_line({"type": "summary", "name": name, "problems": problems, **vars(tally)}))
    return problems
