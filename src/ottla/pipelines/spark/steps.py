"""Steps: rows to rows. The same functions serve streams and, in replays and after training, batches.

Rule 1: a query sees its inputs under their names; a watermark of the step is set on its input for this step alone.
Rule 2: rows equal in the columns of a dedup step count once within the watermark's delay; in a batch, once.
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

from ottla.pipelines.columns import show_columns
from ottla.pipelines.failures import failure_of
from ottla.pipelines.paths import resolved
from ottla.pipelines.spark.functions import DEAD, StepFunction, load
from ottla.pipelines.spark.rows import DEAD_SCHEMA, ORIGINAL, Rows, columns_from
from ottla.pipelines.spec import Dedup, MarkOnly, Ml, PythonFunction, Sql, Stateful, Step, Watermark


class BadModel(Exception):
    """What a step names as its model is none that Spark ML can load."""


def apply_step(
    spark: SparkSession, step: Step, inputs: Mapping[str, Rows], *, directory: str, keep_failures: bool
) -> Rows:
    """The rows of a step; `inputs` has those of everybody it reads. Who trains is not asked here."""
    marked = {name: _marked(inputs[name], name, step.watermarks) for name in step.inputs}
    if isinstance(step.work, Sql):
        for name, rows in marked.items():
            rows.frame.createOrReplaceTempView(name)
        return Rows(spark.sql(step.work.query))
    rows = marked[step.inputs[0]]
    match step.work:
        case PythonFunction():
            return _python(step.name, step.work, rows, keep_failures=keep_failures)
        case Dedup(columns):
            once = rows.frame.dropDuplicatesWithinWatermark if rows.frame.isStreaming else rows.frame.dropDuplicates
            return Rows(once(list(columns)))
        case Stateful():
            return Rows(_stateful(step.work, rows.frame))
        case Ml(model=model):
            assert model, "who trains is called in whole batches"
            return Rows(_model(spark, step.name, resolved(directory, model)).transform(rows.frame))
        case MarkOnly():
            return rows


def _model(spark: SparkSession, step: str, path: str) -> Any:
    """Whatever kind of model was saved there. Raises BadModel."""
    try:
        return DefaultParamsReader.loadParamsInstance(path, spark)
    except Exception as error:  # Spark's, the JVM's or the model's own: what is there is no model that can be used.
        missing = "Input path does not exist" in str(error) or "Path does not exist" in str(error)
        why = f"there is no model in {path}" if missing else f"{path}: {failure_of(error).reason}"
        raise BadModel(f"step {step}: {why}; save one there with `model.save(PATH)`") from error


def _marked(rows: Rows, name: str, watermarks: tuple[Watermark, ...]) -> Rows:
    frame, original = rows.frame, rows.original
    for mark in watermarks:
        if mark.input == name:
            delay = f"{mark.delay_ms} milliseconds"
            frame = frame.withWatermark(mark.column, delay)
            original = None if original is None else original.withWatermark(mark.column, delay)
    return Rows(frame, original)


def _python(name: str, work: PythonFunction, rows: Rows, *, keep_failures: bool) -> Rows:
    columns = columns_from(show_columns(work.schema))
    function = StepFunction(name, work.function, work.frame, to_arrow_schema(columns), keep_failures)
    if not keep_failures:
        return Rows(rows.frame.mapInArrow(function, columns))
    with_dead = StructType([*columns.fields, StructField(DEAD, columns_from(DEAD_SCHEMA))])
    given = rows.widest if ORIGINAL in rows.widest.columns else rows.frame
    made = given.mapInArrow(function, with_dead)
    alive = made.where(F.col(DEAD).isNull()).drop(DEAD)
    return Rows(alive, None, made.where(F.col(DEAD).isNotNull()).select(f"{DEAD}.*"))


def _stateful(work: Stateful, frame: DataFrame) -> DataFrame:
    processor = load(work.processor)()
    # Spark also runs it in a process beside the driver that knows nothing of code which was sent to the executors.
    send_whole: Any = cloudpickle.register_pickle_by_value
    send_whole(sys.modules[type(processor).__module__])
    return frame.groupBy(*work.keys).transformWithState(
        processor,
        outputStructType=columns_from(show_columns(work.schema)),
        outputMode="Update",
        timeMode={"none": "None", "processing": "ProcessingTime", "event": "EventTime"}[work.time],
    )
