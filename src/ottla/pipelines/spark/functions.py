"""Python steps on the executors: calls the functions and classes that a pipeline refers to.

Rule 1: a function is called once for every batch, with an iterator of that batch alone. Its results must not depend on
        how records are divided into batches.
Rule 2: a batch that fails is repeated record by record. A record that fails alone becomes a dead letter with its
        original bytes or, after other steps, with the row in JSON.
Rule 3: without a dead-letter topic the failure stops the pipeline.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from ottla.pipelines.spec.model import FrameType
from ottla.pipelines.spec.record_columns import DEAD_LETTER_COLUMNS, META_COLUMNS, VALUE_COLUMN, arrow_fields, field_of

DEAD: Final = "_ottla_dead"
_ERROR_CHARACTERS_MAX: Final = 2_000
_DEAD_TYPE: Final = pa.struct(arrow_fields(DEAD_LETTER_COLUMNS))


def load(reference: str) -> Any:
    """Import the object that `module:name` names."""
    module, _, name = reference.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@dataclass(frozen=True)
class StepFunction:
    """A function for Spark's `mapInArrow`. It calls the function of a step. With `keep_failures`, failed records are in
    the column DEAD."""

    step: str
    reference: str
    frame: FrameType
    result: pa.Schema
    keep_failures: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = load(self.reference)
        for batch in batches:
            try:
                made = self._call(function, batch)
            except Exception as error:  # User code may raise anything.
                if not self.keep_failures:
                    raise StepFailed(f"step {self.step}: {self.reference}: {_told(error)}") from error
                yield from self._one_by_one(function, batch)
            else:
                yield from map(self._alive, made)

    def _one_by_one(self, function: Callable[..., Any], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for place in range(batch.num_rows):
            row = batch.slice(place, 1)
            try:
                made = self._call(function, row)
            except Exception as error:
                yield self._dead(row.to_pylist()[0], f"failed in step {self.step}: {_told(error)}")
            else:
                yield from map(self._alive, made)

    def _call(self, function: Callable[..., Any], batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if VALUE_COLUMN in batch.schema.names:
            batch = batch.drop_columns([VALUE_COLUMN])
        if self.frame is FrameType.PANDAS:
            return [self._fitting(_from_pandas(made, self.result)) for made in function(iter([batch.to_pandas()]))]
        return [self._fitting(made) for made in function(iter([batch]))]

    def _fitting(self, made: pa.RecordBatch) -> pa.RecordBatch:
        columns = [made.column(field.name).cast(field.type) for field in self.result]
        return pa.RecordBatch.from_arrays(columns, schema=self.result)

    def _alive(self, made: pa.RecordBatch) -> pa.RecordBatch:
        if not self.keep_failures:
            return made
        return _with_dead(made, pa.nulls(made.num_rows, _DEAD_TYPE))

    def _dead(self, row: dict[str, Any], error: str) -> pa.RecordBatch:
        empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in self.result], schema=self.result)
        value = row[VALUE_COLUMN] if VALUE_COLUMN in row else _as_json(row)
        letter = {field_of(name): row.get(name) for name in META_COLUMNS} | {"value": value, "error": error}
        return _with_dead(empty, pa.array([letter], _DEAD_TYPE))


class StepFailed(Exception):
    """A function of the pipeline failed, and there is no dead-letter topic."""


def _with_dead(batch: pa.RecordBatch, dead: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, dead], names=[*batch.schema.names, DEAD])


def _from_pandas(made: Any, result: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pandas(made, schema=result, preserve_index=False)


def _as_json(row: dict[str, Any]) -> bytes:
    columns = {name: value for name, value in row.items() if name not in META_COLUMNS}
    return json.dumps(columns, ensure_ascii=False, default=str).encode()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]
