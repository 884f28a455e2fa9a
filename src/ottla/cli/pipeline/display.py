"""Shows the status of a running pipeline: a live table on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from types import TracebackType
from typing import Final, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.cli.plain import json_line
from ottla.cli.tables import counted, stdout
from ottla.cli.times import shown_duration
from ottla.pipelines.run.checkpoint import RunStatus, SinkStatus

LINE_EVERY_S: Final = 10.0
_ENDED: Final = ("finished", "stopped", "failed")


class Display:
    """Without a terminal it prints lines when the pipeline starts and ends, and at intervals if anything changed."""

    def __init__(self, name: str, *, as_json: bool = False) -> None:
        self._name, self._as_json = name, as_json
        self._console = stdout()
        self._live: Live | None = None
        self._line_at = 0.0
        self._said: object = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._as_json:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, where)

    def show(self, status: RunStatus) -> None:
        if self._live is not None:
            self._live.update(rendered(status), refresh=True)
            return
        done = (status.state, [(sink.epoch, sink.restarts, sink.error) for sink in status.sinks.values()])
        due = time.monotonic() - self._line_at >= LINE_EVERY_S or status.state in _ENDED
        if done == self._said or not due:
            return
        self._said, self._line_at = done, time.monotonic()
        if self._as_json:
            sys.stdout.write(json_line(asdict(status)))
        else:
            for line in lines(status):
                print(line)
        sys.stdout.flush()


def lines(status: RunStatus) -> Iterator[str]:
    """A line for the pipeline, and one for each sink."""
    reason = f": {status.reason}" if status.reason else ""
    yield f"{status.pipeline}: {status.state}{_lag(status)}{reason}"
    for name, sink in status.sinks.items():
        yield f"  {name}: {', '.join(_facts(sink))}"


def _lag(status: RunStatus) -> str:
    if status.lag_records is None or status.lag_ms is None or status.state in _ENDED:
        return ""
    if not status.lag_records:
        return ", caught up"
    return f", {counted(status.lag_records, 'record')} ({shown_duration(status.lag_ms)}) behind"


def _facts(sink: SinkStatus) -> Iterator[str]:
    took = f" ({shown_duration(sink.batch_ms[-1])})" if sink.batch_ms else ""
    yield f"epoch {sink.epoch}{took}" if sink.epoch >= 0 else "no epoch yet"
    if sink.records_read:
        yield f"{counted(sink.records_read, 'record')} read ({sink.records_per_second:,.0f}/s)"
    yield f"{counted(sink.rows_written, 'row')} written"
    if sink.dead_letters:
        yield counted(sink.dead_letters, "dead letter")
    if sink.late_rows:
        yield f"{counted(sink.late_rows, 'row')} dropped as late"
    if sink.epochs_skipped:
        yield f"{counted(sink.epochs_skipped, 'part')} of epochs skipped as already written"
    if sink.restarts:
        yield f"restarted {counted(sink.restarts, 'time')}"
    if sink.error:
        yield sink.error


def rendered(status: RunStatus) -> RenderableType:
    """The status as a table for a terminal."""
    colour = {"failed": "red", "died": "red", "running": "green", "finished": "green"}.get(status.state, "yellow")
    head = Text.assemble((status.pipeline, "bold"), "  ", (status.state, colour), _lag(status))
    head.append(f"  up {shown_duration(max(0, status.updated_ms - status.started_ms))}", "dim")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Sink")
    for title in ("Epoch", "Records/s", "Read", "Written", "Dead letters", "Late", "Batch", "Restarts"):
        table.add_column(title, justify="right")
    for name, sink in status.sinks.items():
        table.add_row(
            name,
            f"{sink.epoch:,}" if sink.epoch >= 0 else "-",
            f"{sink.records_per_second:,.0f}",
            f"{sink.records_read:,}",
            f"{sink.rows_written:,}",
            Text(f"{sink.dead_letters:,}", "red" if sink.dead_letters else ""),
            Text(f"{sink.late_rows:,}", "yellow" if sink.late_rows else ""),
            shown_duration(sink.batch_ms[-1]) if sink.batch_ms else "-",
            f"{sink.restarts:,}",
        )
    told = [Text(f"{name}: {sink.error}", "red") for name, sink in status.sinks.items() if sink.error]
    if status.reason:
        told.append(Text(status.reason, "red"))
    return Group(head, table, *told)
