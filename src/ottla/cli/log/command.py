"""Implements `ottla log dump` and `ottla log verify`."""

import os
import sys

from ottla.cli import FINDINGS
from ottla.cli.log import dump as dumping
from ottla.cli.log import lines
from ottla.cli.log import verify as verifying
from ottla.cli.log.dump import DumpOptions
from ottla.cli.log.findings import CheckedCounts
from ottla.cli.log.paths import located, readable
from ottla.io.disk import LocalDisk

__all__ = ["DumpOptions", "dump", "verify"]


def dump(path: str, wanted: DumpOptions, *, as_json: bool) -> int:
    disk = LocalDisk()
    target = located(disk, os.path.abspath(path))
    with readable():
        items = dumping.dump(disk, target, wanted)
        if as_json:
            return FINDINGS if lines.write_items(items, sys.stdout) else 0

        from ottla.cli.log.tables import TableWriter

        return FINDINGS if TableWriter(records=wanted.records).write(items) else 0


def verify(path: str, *, as_json: bool) -> int:
    disk = LocalDisk()
    target = located(disk, os.path.abspath(path))
    tally = CheckedCounts()
    with readable():
        findings = verifying.verify(disk, target, tally)
        if as_json:
            return FINDINGS if lines.write_findings(target.name, findings, tally, sys.stdout) else 0

        from ottla.cli.log.tables import write_findings

        return FINDINGS if write_findings(target.name, findings, tally) else 0
