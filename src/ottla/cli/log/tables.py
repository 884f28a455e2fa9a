"""Items and findings as tables for people. Times are UTC; text is shown as text, other bytes in hexadecimal.

Items arrive one by one and a log may be huge: a table is printed a page at a time, its columns as wide as its first
page needs, its head once.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.log.findings import Finding, Tally
from ottla.cli.log.items import Fields, Item

if TYPE_CHECKING:
    from rich.console import JustifyMethod

PAGE = 200
WIDE = 100
TEXT_MAX = 1_000
HEX_MAX = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Column(NamedTuple):
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


def _batch_notes(batch: Fields) -> str:
    notes = []
    if not batch["crc_valid"]:
        notes.append("WRONG CRC")
    if batch["control"]:
        notes.append(batch["control"].lower().replace("_", " "))
    if batch["codec"] != "none":
        notes.append(batch["codec"])
    if batch["transactional"] and not batch["control"]:
        notes.append("transactional")
    if batch["producer_id"] >= 0:
        sequence = f" seq {batch['base_sequence']}-{batch['last_sequence']}" if batch["base_sequence"] >= 0 else ""
        notes.append(f"producer {batch['producer_id']}:{batch['producer_epoch']}{sequence}")
    if batch["timestamp_type"] == "LogAppendTime":
        notes.append("LogAppendTime")
    if batch["delete_horizon"] is not None:
        notes.append(f"tombstones until {shown_time(batch['delete_horizon'], wide=False)}")
    return ", ".join(notes)


def _number(name: str, title: str) -> Column:
    return Column(title, lambda fields: shown_number(fields[name]))


def _plain(name: str, title: str, justify: "JustifyMethod" = "right") -> Column:
    return Column(title, lambda fields: "" if fields[name] is None else str(fields[name]), justify)


def _columns(kind: str, *, wide: bool) -> list[Column]:
    def time(name: str, title: str) -> Column:
        return Column(title, lambda fields: shown_time(fields[name], wide=wide), "left")

    tables: dict[str, list[Column]] = {
        "segment": [
            _plain("base_offset", "Base offset"),
            _number("bytes", "Bytes"),
            _number("index", "Index"),
            _number("timeindex", "Time index"),
            _number("txnindex", "Txn index"),
            _number("snapshot", "Snapshot"),
        ],
        "batch": [
            Column("Offsets", lambda batch: f"{batch['base_offset']}-{batch['last_offset']}"),
            _plain("position", "Position"),
            _plain("bytes", "Bytes"),
            _plain("records", "Records"),
            _plain("leader_epoch", "Epoch"),
            time("max_timestamp", "Latest time"),
            Column("Notes", _batch_notes, "left"),
        ],
        "record": [
            _plain("offset", "Offset"),
            time("timestamp", "Time"),
            Column("Key", lambda record: shown_bytes(record["key"]), "left"),
            Column("Value", lambda record: shown_bytes(record["value"]), "left"),
            Column("Headers", lambda record: "\n".join(f"{k}={shown_bytes(v)}" for k, v in record["headers"]), "left"),
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
        "leader epoch": [_plain("epoch", "Leader epoch"), _plain("start_offset", "Start offset")],
        "checkpoint": [_plain("topic", "Topic", "left"), _plain("partition", "Partition"), _plain("offset", "Offset")],
    }
    return tables[kind]


TITLES = {
    "segment": "Segments (sizes in bytes)",
    "batch": "Batches",
    "record": "Records",
    "offset entry": "Offset index",
    "time entry": "Time index",
    "aborted transaction": "Aborted transactions",
    "producer": "Producers",
    "leader epoch": "Leader epochs",
    "checkpoint": "Offsets",
}
# A segment is a row of its directory's table, not a file with a table of its own.
TITLED_BY_FILE = set(TITLES) - {"segment"}


class TableWriter:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._wide = self._console.width >= WIDE

    def write(self, items: Iterable[Item]) -> int:
        """Print everything; the number of damages met."""
        damages = 0
        shown: tuple[str, str] | None = None
        for (kind, file), group in groupby(
            items, lambda item: (item.kind, item.file if item.kind in TITLED_BY_FILE else "")
        ):
            if kind in TITLES:
                again = shown == (kind, file)
                self._table(kind, file, (item.fields for item in group), titled=not again)
                shown = (kind, file)
                continue
            for item in group:
                damages += kind == "damage"
                self._line(item)
        return damages

    def _line(self, item: Item) -> None:
        if item.kind == "damage":
            at = f" at position {item.fields['position']}" if item.fields["position"] is not None else ""
            self._console.print(Text(f"\n{item.file}{at}: {item.fields['reason']}", style="bold red"))
            return
        parts = [f"{name.replace('_', ' ')} {value}" for name, value in item.fields.items() if value is not None]
        self._console.print(Text.assemble((item.file, "bold"), "  ", ", ".join(parts)))

    def _table(self, kind: str, file: str, rows: Iterator[Fields], *, titled: bool) -> None:
        columns = _columns(kind, wide=self._wide)
        if kind == "record":
            # With records, each batch is a heading of its own: its table would be one line long.
            titled = True
        if titled:
            self._console.print(Text.assemble("\n", (TITLES[kind], "bold"), f"  {file}" if file else ""))
        widths: list[int] | None = None
        while page := [[column.show(fields) for column in columns] for fields in islice(rows, PAGE)]:
            table = Table(
                box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=widths is None, header_style="dim"
            )
            if widths is None:
                widths = [max(len(row[number]) for row in page) for number in range(len(columns))]
            for column, width in zip(columns, widths, strict=True):
                bulky = column.title in ("Notes", "Key", "Value", "Headers")
                table.add_column(
                    column.title,
                    justify=column.justify,
                    no_wrap=not bulky,
                    overflow="fold",
                    min_width=None if bulky else max(width, len(column.title)),
                )
            for row in page:
                table.add_row(*(Text(cell) for cell in row))
            self._console.print(table)


def write_findings(name: str, findings: Iterable[Finding], tally: Tally, console: Console | None = None) -> int:
    """Print what is wrong and how much was looked at; the number of problems."""
    console = console or Console(highlight=False)
    problems = 0
    for finding in findings:
        problems += finding.problem
        word, style = ("problem", "bold red") if finding.problem else ("note", "yellow")
        at = f" at position {finding.position}" if finding.position is not None else ""
        console.print(Text.assemble((word, style), f"  {finding.file}{at}: {finding.what}"), soft_wrap=False)
        console.print(Text(f"         {finding.advice}", style="dim"))
    looked_at = (
        f"{tally.segments:,} segments, {tally.batches:,} batches, {tally.records:,} records, {tally.bytes:,} bytes"
        if tally.segments
        else "read"
    )
    verdict = ("nothing wrong", "green") if not problems else (f"{problems} problem{'s' * (problems > 1)}", "bold red")
    console.print(Text.assemble((name, "bold"), f": {looked_at}: ", verdict))
    return problems
