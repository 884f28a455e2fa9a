"""The demo for people: one picture that stays in place on a terminal, a line now and then elsewhere."""

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.shop.accounts import Accounts, Windows
from examples.shop.events import CITIES, MINUTES
from ottla.pipelines.run.checkpoint import RunStatus

LINE_EVERY_S: Final = 5.0


@dataclass
class Figures:
    """How the demo gets on; everybody writes his own."""

    phase: str = "starting"
    sent: int = 0
    to_send: int = 0
    read: int = 0
    per_second: float = 0.0
    lag_records: int | None = None
    dead_letters: int = 0
    late: int = 0
    windows: Windows = field(default_factory=Windows)

    def take(self, status: RunStatus, *, late: int) -> None:
        sinks = list(status.sinks.values())
        self.read = min((sink.records_read for sink in sinks), default=0)
        self.per_second = min((sink.records_per_second for sink in sinks), default=0.0)
        self.lag_records, self.late = status.lag_records, late


class Screen:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._line_at = -LINE_EVERY_S

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, where)
            self._live = None

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self) -> None:
        if self._live is not None:
            self._live.update(_picture(self._figures), refresh=True)
        elif time.monotonic() - self._line_at >= LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.say(_line(self._figures))

    def summary(self, accounts: Accounts) -> None:
        """Each sum on a line; what does not add up is said after them."""
        self.say("")
        self._console.print(_cities(next(iter(accounts.sinks.values())).windows))
        self.say("")
        self.say(f"events in        {accounts.events:>9,}   (and {accounts.off_duty} messages of couriers off duty)")
        for name, sink in accounts.sinks.items():
            counted = sink.windows.events
            self.say(
                f"{name:<16} {counted + sink.late + accounts.dead_letters:>9,} = {counted:,} counted + {sink.late:,} "
                f"late + {accounts.dead_letters:,} dead letters"
            )
        faults = list(accounts.faults())
        for fault in faults:
            self.say(f"WRONG: {fault}.")
        if not faults:
            self.say("Every event is accounted for, once.")


def _line(figures: Figures) -> str:
    return (
        f"{figures.phase}: {figures.sent:,} of {figures.to_send:,} events in, {figures.read:,} read "
        f"({figures.per_second:,.0f}/s, {_lag(figures)}), {sum(figures.windows.minutes.values())} windows final, "
        f"{figures.dead_letters:,} dead letters, {figures.late:,} late"
    )


def _lag(figures: Figures) -> str:
    return "lag unknown" if figures.lag_records is None else f"{figures.lag_records:,} behind"


def _picture(figures: Figures) -> Group:
    head = Text.assemble(("Ottla's shop", "bold"), "  ", (figures.phase, "cyan"))
    facts = Table.grid(padding=(0, 2))
    facts.add_row("events in", f"{figures.sent:,} of {figures.to_send:,}", "dead letters", f"{figures.dead_letters:,}")
    facts.add_row("read", f"{figures.read:,} ({figures.per_second:,.0f}/s)", "late", f"{figures.late:,}")
    facts.add_row("lag", _lag(figures), "", "")
    return Group(head, Text(), facts, Text(), _cities(figures.windows))


def _cities(windows: Windows) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("City")
    table.add_column("Minutes that are final")
    for title in ("Orders", "Turnover", "Couriers"):
        table.add_column(title, justify="right")
    for city in CITIES:
        done = windows.minutes[city]
        table.add_row(
            city,
            Text.assemble(("█" * done, "green"), ("░" * max(0, MINUTES - done), "dim"), f" {done:>2}"),
            f"{windows.orders[city]:,}",
            f"{windows.cents[city] / 100:,.2f}",
            str(windows.couriers.get(city, 0)),
        )
    return table
