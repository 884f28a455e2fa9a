"""Applies a step to its input rows. It works on streams and, in replays and after training, on batches.

Rule 1: a query sees its inputs as tables with their names. A watermark of the step applies to its input in this step
        only.
Rule 2: of rows that are equal in the columns of a dedup step one is kept: within the watermark's delay in a stream, of
        all rows in a batch.
"""

import sys
from collections.abc import Mapping
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.util import DefaultParamsReader
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ottla.pipelines.run.failures import failure_of
from ottla.pipelines.spark.functions import DEAD, StepFunction, load
from ottla.pipelines.spark.rows import DEAD_SCHEMA, StepRows, columns_from
from ottla.pipelines.spec.columns import show_columns
from ottla.pipelines.spec.model import Dedup, MarkOnly, Ml, PythonFunction, Sql, Stateful, Step, Watermark
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.record_columns import VALUE_COLUMN


class BadModel(Exception):
    """The path of a step's model holds no model that Spark ML can load."""


def apply_step(
    spark: SparkSession, step: Step, inputs: Mapping[str, StepRows], *, directory: str, keep_failures: bool
) -> StepRows:
    """The rows of a step, except one that trains; `inputs` has the rows of its inputs by name."""
    marked = {name: _marked(inputs[name], name, step.watermarks) for name in step.inputs}
    if isinstance(step.work, Sql):
        for name, rows in marked.items():
            rows.frame.createOrReplaceTempView(name)
        return StepRows(spark.sql(step.work.query))
    rows = marked[step.inputs[0]]
    match step.work:
        case PythonFunction():
            return _python(step.name, step.work, rows, keep_failures=keep_failures)
        case Dedup(columns):
            once = rows.frame.dropDuplicatesWithinWatermark if rows.frame.isStreaming else rows.frame.dropDuplicates
            return StepRows(once(list(columns)))
        case Stateful():
            return StepRows(_stateful(step.work, rows.frame))
        case Ml(model=model):
            assert model, "a step that trains is applied by Training"
            return StepRows(_model(spark, step.name, resolved(directory, model)).transform(rows.frame))
        case MarkOnly():
            return rows


def _model(spark: SparkSession, step: str, path: str) -> Any:
    """Load a model of any class. Raises BadModel."""
    try:
        return DefaultParamsReader.loadParamsInstance(path, spark)
    except Exception as error:  # Spark, the JVM or the model may raise anything.
        missing = "Input path does not exist" in str(error) or "Path does not exist" in str(error)
        why = f"there is no model in {path}" if missing else f"{path}: {failure_of(error).reason}"
        raise BadModel(f"step {step}: {why}; save one there with `model.save(PATH)`") from error


def _marked(rows: StepRows, name: str, watermarks: tuple[Watermark, ...]) -> StepRows:
    frame, original = rows.frame, rows.original
    for mark in watermarks:
        if mark.input == name:
            delay = f"{mark.delay_ms} milliseconds"
            frame = frame.withWatermark(mark.column, delay)
            original = None if original is None else original.withWatermark(mark.column, delay)
    return StepRows(frame, original)


def _python(name: str, work: PythonFunction, rows: StepRows, *, keep_failures: bool) -> StepRows:
    columns = columns_from(show_columns(work.schema))
    function = StepFunction(name, work.function, work.frame, to_arrow_schema(columns), keep_failures)
    if not keep_failures:
        return StepRows(rows.frame.mapInArrow(function, columns))
    with_dead = StructType([*columns.fields, StructField(DEAD, columns_from(DEAD_SCHEMA))])
    given = rows.widest if VALUE_COLUMN in rows.widest.columns else rows.frame
    made = given.mapInArrow(function, with_dead)
    alive = made.where(F.col(DEAD).isNull()).drop(DEAD)
    return StepRows(alive, None, made.where(F.col(DEAD).isNotNull()).select(f"{DEAD}.*"))


def _stateful(work: Stateful, frame: DataFrame) -> DataFrame:
    processor = load(work.processor)()
    # Spark also runs it in a process beside the driver that cannot import the code sent to executors.
    send_whole: Any = cloudpickle.register_pickle_by_value
    send_whole(sys.modules[type(processor).__module__])
    return frame.groupBy(*work.keys).transformWithState(
        processor,
        outputStructType=columns_from(show_columns(work.schema)),
        outputMode="Update",
        timeMode={"none": "None", "processing": "ProcessingTime", "event": "EventTime"}[work.time],
    )
