"""The console sink: prints rows on the terminal. It keeps nothing, so an epoch that is repeated is printed again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.pipelines.sink.writing import EpochResult
from ottla.pipelines.spec.keys import SINK_INPUT, TableForm, TableKey
from ottla.pipelines.spec.model import Sink
from ottla.pipelines.spec.problems import Unfit
from ottla.pipelines.spec.sinks import SinkKind
from ottla.pipelines.spec.values import ValueKind, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ConsoleSink(Sink):
    rows: int
    console: bool = True


class ConsoleWriter:
    def __init__(self, sink: ConsoleSink) -> None:
        self._sink = sink

    def begin(self) -> None:
        """Nothing to take over: two runs may print."""

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        shown = rows.limit(self._sink.rows).collect()
        if shown:
            print(f"{self._sink.name}, epoch {epoch}", flush=True)
            rows.sparkSession.createDataFrame(shown, rows.schema).show(self._sink.rows, truncate=False)
        return EpochResult(len(shown))


def _read_true(value: object) -> bool:
    if value is not True:
        raise Unfit("true", "expected true; leave the sink out to do without it")
    return True


def _describe(sink: ConsoleSink) -> Iterator[str]:
    yield f"console, at most {sink.rows:,} row{'' if sink.rows == 1 else 's'} a batch"


KIND = SinkKind(
    form=TableForm(
        "a console sink",
        ("console",),
        (
            TableKey("console", ValueKind("true", _read_true, bool), "Print the rows.", required=True),
            SINK_INPUT,
            TableKey("rows", whole(1, 10_000), "How many rows of a batch are printed at most.", 20),
        ),
        ConsoleSink,
    ),
    writer=lambda sink, _run, _spark: ConsoleWriter(sink),
    describe=_describe,
    epoch_doc="nothing: an epoch that is repeated is printed twice",
    durable=False,
)
