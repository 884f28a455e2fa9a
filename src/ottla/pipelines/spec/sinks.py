"""The kinds of sinks: a table of modules, and what each module declares about its sink.

Rule 1: a sink is one module and one row of MODULES. The module has `KIND`, a SinkKind; reading, checking, comparing,
        describing, documenting and writing follow from it.
Rule 2: modules are named and loaded on first use, so that this package imports nothing of `sink/`. They import pyspark
        only inside functions: a pipeline can be checked where Spark is not installed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final

from ottla.pipelines.spec.keys import TableForm, TableKey
from ottla.pipelines.spec.model import Sink

MODULES: Final = (
    "ottla.pipelines.sink.topic",
    "ottla.pipelines.sink.parquet",
    "ottla.pipelines.sink.delta",
    "ottla.pipelines.sink.postgres",
    "ottla.pipelines.sink.console",
)
"""In the order of the documentation."""


@dataclass(frozen=True)
class SparkNeeds:
    """What a Spark session must have for a sink."""

    packages: tuple[str, ...] = ()
    """Maven coordinates."""
    settings: Mapping[str, str] = field(default_factory=dict)
    partition_settings: tuple[str, ...] = ()
    """Settings that take the number of shuffle partitions, where the session runs on this machine."""


@dataclass(frozen=True)
class SinkKind:
    form: TableForm
    """The keys of its table; `form.type` is the sink's class in the spec, a frozen dataclass derived from Sink."""
    writer: Callable[[Any, Any, Any], Any]
    """Makes a `sink.writing.SinkWriter` from the sink, a RunContext and the Spark session."""
    describe: Callable[[Any], Iterable[str]]
    """The sink in a few phrases, for `ottla pipeline plan`."""
    epoch_doc: str
    """What shows that an epoch was written; for the documentation."""
    durable: bool = True
    """Whether rows written twice would stay. False: the sink may be given other rows when an epoch is repeated."""
    takes_meta_columns: bool = True
    """Whether META_COLUMNS are written with the rows; False: only those that a key of the sink names."""
    spark: SparkNeeds = SparkNeeds()

    def keys_where(self, fits: Callable[[TableKey], bool]) -> tuple[TableKey, ...]:
        return tuple(key for key in self.form.keys if fits(key))

    def target(self, sink: Sink) -> tuple[object, ...]:
        """Where the sink writes; empty if its results are kept nowhere."""
        return tuple(getattr(sink, key.attribute) for key in self.keys_where(lambda key: key.is_target))


@cache
def sink_kinds() -> tuple[SinkKind, ...]:
    return tuple(import_module(name).KIND for name in MODULES)


def sink_forms() -> tuple[TableForm, ...]:
    return tuple(kind.form for kind in sink_kinds())


def kind_of(sink: Sink) -> SinkKind:
    return next(kind for kind in sink_kinds() if type(sink) is kind.form.type)


def listed_columns(what: str, columns: tuple[str, ...]) -> Iterator[str]:
    """`upsert by city, day`, for `describe`; nothing where there are no columns."""
    if columns:
        yield f"{what} {', '.join(columns)}"
