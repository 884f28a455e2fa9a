"""Items and findings as tables for people. Times are UTC; text is shown as text, other bytes in hexadecimal.

Items arrive one by one and a log may be huge: a table is printed a page at a time, with the column widths of its first
page, and its header once.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.log.findings import CheckedCounts, Finding
from ottla.cli.log.items import Fields, Item

if TYPE_CHECKING:
    from rich.console import JustifyMethod

PAGE = 200
WIDE = 110
TEXT_MAX = 1_000
HEX_MAX = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DumpColumn(NamedTuple):
    title: str
    show: Callable[[Fields], str]
    justify: "JustifyMethod" = "right"


def shown_number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def shown_time(timestamp: int | None, *, wide: bool) -> str:
    if timestamp is None or timestamp < 0:
        return "none" if timestamp == -1 else ""
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{timestamp % 1000:03d}" if wide else "")


def shown_bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not data):
        return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(data):,} bytes)"
    more = f"… ({len(data):,} bytes)" if len(data) > HEX_MAX else ""
    return f"0x{data[:HEX_MAX].hex()}{more}"


def shown_decoded(said: Fields) -> str:
    """A record of an internal topic: its name and key, then its non-empty fields."""
    key, value = said["key"] or {}, said["value"]
    parts = [(key or value)["record"], *_shown_fields(key)]
    if key:
        parts.append("=" if value else "= deleted")
    return " ".join([*parts, *_shown_fields(value or {})])


def _shown_fields(fields: Fields) -> list[str]:
    shown = ((name, value) for name, value in fields.items() if name != "record" and value not in (None, []))
    return [f"{name}={_shown_part(value)}" for name, value in shown]


def _shown_part(value: Any) -> str:
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown_part, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}={_shown_part(one)}' for name, one in value.items())}}}"
    return str(value)


def _value_and_headers(record: Fields) -> str:
    headers = [f"header {name}={shown_bytes(value)}" for name, value in record["headers"]]
    return "\n".join([shown_bytes(record["value"]), *headers])


def _batch_notes(batch: Fields, *, wide: bool) -> str:
    notes = []
    if not batch["crc_valid"]:
        notes.append("WRONG CRC")
    if batch["control"]:
        notes.append(batch["control"].lower().replace("_", " "))
    if batch["codec"] != "none":
        notes.append(batch["codec"])
    if batch["transactional"] and not batch["control"]:
        notes.append("transactional" if wide else "txn")
    if batch["producer_id"] >= 0:
        sequence = f" seq {batch['base_sequence']}-{batch['last_sequence']}" if batch["base_sequence"] >= 0 else ""
        notes.append(f"{'producer' if wide else 'pid'} {batch['producer_id']}:{batch['producer_epoch']}{sequence}")
    if batch["timestamp_type"] == "LogAppendTime":
        notes.append("LogAppendTime")
    if batch["delete_horizon"] is not None:
        notes.append(f"tombstones until {shown_time(batch['delete_horizon'], wide=False)}")
    return ", ".join(notes)


def _number(name: str, title: str) -> DumpColumn:
    return DumpColumn(title, lambda fields: shown_number(fields[name]))


def _plain(name: str, title: str, justify: "JustifyMethod" = "right") -> DumpColumn:
    return DumpColumn(title, lambda fields: "" if fields[name] is None else str(fields[name]), justify)


def _columns(kind: str, *, wide: bool) -> list[DumpColumn]:
    def time(name: str, title: str) -> DumpColumn:
        return DumpColumn(title, lambda fields: shown_time(fields[name], wide=wide), "left")

    tables: dict[str, list[DumpColumn]] = {
        "segment": [
            _plain("base_offset", "Base offset"),
            _number("bytes", "Bytes"),
            _number("index", "Index"),
            _number("timeindex", "Time index"),
            _number("txnindex", "Txn index"),
            _number("snapshot", "Snapshot"),
        ],
        "batch": [
            DumpColumn("Offsets", lambda batch: f"{batch['base_offset']}-{batch['last_offset']}"),
            _plain("position", "Position"),
            _plain("bytes", "Bytes"),
            _plain("records", "Records"),
            _plain("leader_epoch", "Epoch"),
            time("max_timestamp", "Latest time"),
            DumpColumn("Notes", lambda batch: _batch_notes(batch, wide=wide), "left"),
        ],
        "record": [
            _plain("offset", "Offset"),
            time("timestamp", "Time"),
            DumpColumn("Key", lambda record: shown_bytes(record["key"]), "left"),
            DumpColumn("Value, headers", _value_and_headers, "left"),
        ],
        "internal record": [
            _plain("offset", "Offset"),
            time("timestamp", "Time"),
            DumpColumn("Record", lambda record: shown_decoded(record["decoded"]), "left"),
        ],
        "offset entry": [_plain("offset", "Offset"), _plain("position", "Position")],
        "time entry": [time("timestamp", "Time"), _plain("offset", "Offset")],
        "aborted transaction": [
            _plain("producer_id", "Producer"),
            _plain("first_offset", "First offset"),
            _plain("last_offset", "Marker at"),
            _plain("last_stable_offset", "Last stable offset"),
        ],
        "producer": [
            _plain("producer_id", "Producer"),
            _plain("epoch", "Epoch"),
            _plain("last_sequence", "Last sequence"),
            _plain("last_offset", "Last offset"),
            time("last_timestamp", "Last time"),
            _plain("txn_first_offset", "Open since"),
        ],
        "segment summary": [
            _plain("base_offset", "Base offset"),
            _number("size", "Bytes"),
            time("max_timestamp", "Latest time"),
            time("running_max", "Latest up to here"),
            DumpColumn(
                "Txn index CRC", lambda entry: "" if entry["txn_checksum"] is None else f"{entry['txn_checksum']:08x}"
            ),
        ],
        "leader epoch": [_plain("epoch", "Leader epoch"), _plain("start_offset", "Start offset")],
        "checkpoint": [_plain("topic", "Topic", "left"), _plain("partition", "Partition"), _plain("offset", "Offset")],
    }
    return tables[kind]


TITLES = {
    "segment": "Segments (sizes in bytes)",
    "batch": "Batches",
    "record": "",
    "internal record": "",
    "offset entry": "Offset index",
    "time entry": "Time index",
    "aborted transaction": "Aborted transactions",
    "producer": "Producers",
    "segment summary": "Segment summary",
    "leader epoch": "Leader epochs",
    "checkpoint": "Offsets",
}
# Columns that may wrap, and their share of the width that the others leave.
BULKY = {"Notes": None, "Key": 1, "Value, headers": 3, "Record": 1}


class TableWriter:
    """Prints items as tables. With `records`, a batch is a line above its records; without, a row of the table of its
    segment."""

    def __init__(self, *, records: bool, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._wide = self._console.width >= WIDE
        self._records = records

    def write(self, items: Iterable[Item]) -> int:
        """Print all items; returns the number of damaged places."""
        damages = 0
        headed = ""
        for (kind, file), group in groupby(items, _table_of):
            if kind in TITLES and not (self._records and kind == "batch"):
                self._table(kind, file, (item.fields for item in group), headed=bool(TITLES[kind]) or kind != headed)
                headed = kind
                continue
            for item in group:
                damages += kind == "damage"
                self._line(item)
        return damages

    def _line(self, item: Item) -> None:
        fields = item.fields
        if item.kind == "damage":
            at = f" at position {fields['position']}" if fields["position"] is not None else ""
            self._console.print(Text(f"\n{item.file}{at}: {fields['reason']}", style="bold red"))
        elif item.kind == "batch":
            where = f"{fields['base_offset']}-{fields['last_offset']} at {item.file}:{fields['position']}"
            notes = _batch_notes(fields, wide=self._wide)
            parts = [
                where,
                f"{fields['bytes']:,} bytes",
                f"epoch {fields['leader_epoch']}",
                *([notes] if notes else []),
            ]
            self._console.print(Text.assemble("\n", ("Batch", "bold"), "  ", ", ".join(parts)))
        else:
            parts = [f"{name.replace('_', ' ')} {value}" for name, value in fields.items() if value is not None]
            self._console.print(Text.assemble((item.file, "bold"), "  ", ", ".join(parts)))

    def _table(self, kind: str, file: str, rows: Iterator[Fields], *, headed: bool) -> None:
        columns = _columns(kind, wide=self._wide)
        if TITLES[kind]:
            self._console.print(Text.assemble("\n", (TITLES[kind], "bold"), f"  {file}" if file else ""))
        widths: list[int] | None = None
        while page := [[column.show(fields) for column in columns] for fields in islice(rows, PAGE)]:
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
            table.show_header = headed and widths is None
            if widths is None:
                widths = [max(len(row[number]) for row in page) for number in range(len(columns))]
            for column, width in zip(columns, widths, strict=True):
                table.add_column(
                    column.title,
                    justify=column.justify,
                    no_wrap=column.title not in BULKY,
                    overflow="fold",
                    min_width=None if column.title in BULKY else max(width, len(column.title)),
                    ratio=BULKY.get(column.title),
                )
            table.expand = not TITLES[kind]
            for row in page:
                table.add_row(*(Text(cell) for cell in row))
            self._console.print(table)


def _table_of(item: Item) -> tuple[str, str]:
    if "decoded" in item.fields:
        return "internal record", item.file
    # A segment is a row of its directory's table, not a file with its own table.
    return item.kind, "" if item.kind == "segment" else item.file


def write_findings(name: str, findings: Iterable[Finding], tally: CheckedCounts, console: Console | None = None) -> int:
    """Print the findings and what was checked; returns the number of problems."""
    console = console or Console(highlight=False)
    problems = 0
    for finding in findings:
        problems += finding.problem
        word, style = ("problem", "bold red") if finding.problem else ("note", "yellow")
        at = f" at position {finding.position}" if finding.position is not None else ""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=len("problem"))
        grid.add_column(overflow="fold")
        grid.add_row(Text(word, style=style), Text(f"{finding.file}{at}", style="bold"))
        grid.add_row("", Text(finding.what))
        grid.add_row("", Text(finding.advice, style="dim"))
        console.print(grid)
    verdict = ("nothing wrong", "green") if not problems else (_counted(problems, "problem"), "bold red")
    console.print(Text.assemble((name, "bold"), ": ", verdict))
    if tally.segments:
        counts = [
            _counted(tally.segments, "segment"),
            _counted(tally.batches, "batch", "batches"),
            _counted(tally.records, "record"),
            _counted(tally.bytes, "byte"),
        ]
        console.print(Text(f"{', '.join(counts)} read", style="dim"))
    return problems


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
