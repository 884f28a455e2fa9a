"""Tables of figures, and the page that holds them."""

import os
import platform
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

Cell = str | int | float | None

RESULTS = Path(__file__).with_name("RESULTS.md")

FLAT = 2.0  # Growth below this is noise.

INTRODUCTION = """\
Written by `make bench`; `python -m bench PART` measures one part without touching this page.
Ratios against the peer of the same run are what counts: the machine is shared, times are the best of several rounds.
`x floor` is our time divided by the time of a bare loop that does the unavoidable work on the same bytes.
"""


@dataclass
class Table:
    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns), cells
        self.rows.append(cells)

    def text(self) -> str:
        """Markdown that is readable as plain text."""
        shown = [list(self.columns), *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in shown) for column in range(len(self.columns))]
        lines = [_line(row, widths) for row in shown]
        rule = "|".join([":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])])
        return "\n".join([f"**{self.title}**", "", lines[0], f"|{rule}|", *lines[1:]])


@dataclass
class Section:
    """One part of the benchmark: its meaning, its figures, findings, and profiles of missed aims."""

    title: str
    meaning: str
    tables: list[Table] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    profiles: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Files kept beside the page: texts by path."""
    seconds: float = 0.0

    def text(self) -> str:
        blocks = [f"## {self.title}", self.meaning, *(table.text() for table in self.tables)]
        if self.findings:
            blocks.append("\n".join(f"- {finding}" for finding in self.findings))
        blocks += [f"Profile: {title}\n\n```\n{profile}\n```" for title, profile in self.profiles.items()]
        return "\n\n".join(blocks)


def verdict(figure: float, aim: float, unit: str = "") -> str:
    """Compares a figure with its aim, a maximum."""
    return f"{_shown(figure)}{unit}, aim {_shown(aim)}{unit}: {'met' if figure <= aim else 'MISSED'}"


def growth(smallest: Cell, largest: Cell) -> str:
    """Whether a figure grew from the smallest case to the largest."""
    assert isinstance(smallest, float)
    assert isinstance(largest, float)
    return "flat" if largest <= FLAT * smallest else f"MISSED, it grows {largest / smallest:,.0f} times"


def facts() -> list[str]:
    """The conditions of the figures, without the machine's name."""
    return [
        f"date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"commit: {_commit()}",
        f"python: {platform.python_implementation()} {platform.python_version()}, {_python_build()}",
        f"system: {platform.system()} {platform.machine()}, {os.cpu_count()} cores ({_processor()}), "
        f"TCP congestion control {_congestion_control()}",
    ]


def page(sections: list[Section], measured: list[str]) -> str:
    """`measured` are the conditions when the run began: commits may follow while it runs."""
    head = ["# What Ottla costs", INTRODUCTION, "\n".join(f"- {fact}" for fact in measured)]
    return "\n\n".join([*head, *(section.text() for section in sections)]) + "\n"


def with_new(old_page: str, sections: list[Section], measured: list[str]) -> str:
    """The page with some sections replaced, each with its conditions."""
    head, *rest = old_page.split("\n## ")
    kept = {text.partition("\n")[0]: text.rstrip("\n") for text in rest}
    for section in sections:
        section.meaning += "\n\nMeasured apart; " + "; ".join(measured[:2]) + "."
        kept[section.title] = section.text().removeprefix("## ")
    return "\n\n## ".join([head.rstrip("\n"), *kept.values()]) + "\n"


def keep_files(sections: list[Section], beside: Path = RESULTS) -> None:
    for section in sections:
        for name, text in section.files.items():
            place = beside.parent / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    return f"{commit} with uncommitted changes" if _git("status", "--porcelain", "src", "bench/*.py") else commit


def _git(*arguments: str) -> str:
    root = RESULTS.parent.parent
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("unknown" if arguments[0] == "rev-parse" else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def _python_build() -> str:
    """An interpreter built without profile-guided optimisation takes a seventh longer for the same requests."""
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"built {'with' if '--enable-optimizations' in arguments else 'without'} profile-guided optimisation"


def _congestion_control() -> str:
    """`bbr` paces sending with timers, on loopback too, which costs the sender much."""
    setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return setting.read_text().strip() if setting.exists() else "unknown"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "| " + " | ".join([first, *rest]) + " |"


def _shown(cell: Cell) -> str:
    match cell:
        case None:
            return "-"
        case float() if abs(cell) >= 100:
            return f"{cell:,.0f}"
        case float() if abs(cell) >= 10:
            return f"{cell:.1f}"
        case float():
            return f"{cell:.2f}"
        case int():
            return f"{cell:,}"
        case _:
            return cell
