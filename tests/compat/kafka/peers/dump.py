"""What Kafka's DumpLogSegments reads in the files of a partition, and what it finds wrong with them.

One run of the tool takes many files: starting the JVM costs more than reading them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from peers.jvm import Output, ToolFailedError, run_tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"
READABLE = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
INDEXES = {".index", ".timeindex"}
FILES_PER_RUN = 500
"""The names travel on the command line, which has an end."""

GAP = re.compile(r"^  (-?\d+) is followed by (\d+)$")
OF_EMPTY_BATCH = re.compile(r"^  Index timestamp: \d+, log timestamp: -1$")
HARMLESS_HEADINGS = ("Non-consecutive offsets in ", "Found timestamp mismatch in ")
RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>.*?)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator_epoch>-?\d+))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$"
)


class DumpedRecord(NamedTuple):
    """A record as the tool prints it; a marker has a kind and no contents."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    header_keys: tuple[str, ...]
    marker: str | None


@dataclass
class FileDump:
    """What the tool printed about one file: every line as name and value, records apart."""

    lines: list[dict[str, str]] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def readable_files(directory: Path) -> list[Path]:
    """The files of a partition that the tool understands."""
    return sorted(path for path in directory.iterdir() if path.suffix in READABLE)


def dump(jars: Path, files: Iterable[Path]) -> dict[Path, FileDump]:
    """Read files in full, records included."""
    dumps: dict[Path, FileDump] = {}
    for some in _chunks(files):
        dumps |= _parse(_run(jars, some, "--deep-iteration", "--print-data-log"))
    return dumps


def complaints(jars: Path, directories: Iterable[Path], *, compacted: bool = False) -> list[str]:
    """All that the tool finds wrong in partitions, by deep iteration and by the checks of the indexes.

    Compacted logs have gaps between offsets, others none.
    """
    files = [path for directory in directories for path in readable_files(directory)]
    indexes = [path for path in files if path.suffix in INDEXES]
    found = []
    try:
        for some in _chunks(files):
            output = _run(jars, some, "--deep-iteration", "--print-data-log")
            found += [line for each in _parse(output).values() for line in each.complaints]
            found += _complaints_of_errors(output.stderr, compacted=compacted)
        for some in _chunks(indexes):
            output = _run(jars, some, "--index-sanity-check")
            found += _complaints_of_errors(output.stderr, compacted=compacted)
            found += _without_verdict(output.stdout, some)
    except ToolFailedError as failed:
        found.append(str(failed))
    return found


def _run(jars: Path, files: list[Path], *options: str) -> Output:
    return run_tool(jars, TOOL, *options, "--files", ",".join(map(str, files)))


def _chunks(files: Iterable[Path]) -> Iterator[list[Path]]:
    every = list(files)
    for first in range(0, len(every), FILES_PER_RUN):
        yield every[first : first + FILES_PER_RUN]


def _parse(output: Output) -> dict[Path, FileDump]:
    dumps: dict[Path, FileDump] = {}
    current = FileDump()
    for line in output.stdout.splitlines():
        if line.startswith("Dumping "):
            current = dumps[Path(line.removeprefix("Dumping "))] = FileDump()
        elif line.startswith("|"):
            current.records.append(_record(line))
        elif "invalid" in line or line.endswith("isvalid: false"):
            current.complaints.append(line)
        elif ": " in line:
            current.lines.append(dict(re.findall(r"(\w+): (\S+)", line)))
    return dumps


def _record(line: str) -> DumpedRecord:
    match = RECORD.match(line)
    if match is None:
        raise AssertionError(f"not a record as DumpLogSegments prints it: {line!r}")
    return DumpedRecord(
        int(match["offset"]),
        int(match["timestamp"]),
        match["key"],
        match["value"],
        tuple(key for key in match["header_keys"].split(",") if key),
        match["marker"],
    )


def _without_verdict(stdout: str, indexes: list[Path]) -> list[str]:
    """The indexes of which the sanity check does not say that they are good."""
    said = set(stdout.splitlines())
    good = (" passed sanity check.", " is empty.")
    return [f"{path}: no sanity check passed" for path in indexes if not said & {f"{path}{text}" for text in good}]


def _complaints_of_errors(stderr: str, *, compacted: bool) -> list[str]:
    """The lines of the error output that mean harm, each with the heading that names its file."""
    found, heading = [], ""
    for line in stderr.splitlines():
        if line.startswith(HARMLESS_HEADINGS):
            heading = line
        elif not _is_harmless(line, compacted=compacted):
            found.append(f"{heading} {line}")
    return found


def _is_harmless(line: str, *, compacted: bool) -> bool:
    """Whether the tool speaks of something that Kafka itself writes.

    It expects every file to begin with offset 0 and to have no gap, so it speaks of each segment after the first. It
    takes the largest timestamp of a batch from its records, so it speaks of an index entry for a batch whose records
    the cleaner has removed.
    """
    if (gap := GAP.match(line)) is not None:
        before, after = int(gap[1]), int(gap[2])
        return before == -1 or (compacted and before < after)
    return compacted and OF_EMPTY_BATCH.match(line) is not None
