"""Tables and numbers for people."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import JustifyMethod

WRAPPED_MIN = 12  # The minimum width of a column that shrinks for the others.
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class TableColumn(NamedTuple):
    title: str
    justify: "JustifyMethod" = "left"
    wraps: bool = False  # Takes the remaining width, and wraps.


def number(title: str) -> TableColumn:
    return TableColumn(title, "right")


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=False)


def print_table(console: Console, columns: Sequence[TableColumn], rows: Iterable[Sequence[str | Text]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        widest = max((row[place].cell_len for row in cells), default=0)
        table.add_column(
            column.title,
            justify=column.justify,
            no_wrap=not column.wraps,
            overflow="fold",
            min_width=min(widest, WRAPPED_MIN) if column.wraps else None,
        )
    for row in cells:
        table.add_row(*row)
    console.print(table)


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shown_size(size: int) -> str:
    """A size in bytes with 3 digits and a unit."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.0f} {_UNITS[-1]}"


def shown_nodes(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
