"""`ottla pipeline run` and `ottla pipeline replay`."""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ottla.cli.arguments import BOOTSTRAP, BOOTSTRAP_VARIABLE, pairs
from ottla.cli.errors import FAILED, UserError
from ottla.cli.pipeline.display import Display
from ottla.cli.pipeline.files import directory_of, load_valid
from ottla.cli.times import MOMENT_FORMS, moment_ms
from ottla.pipelines.run.checkpoint import CheckpointRefused, RunStatus
from ottla.pipelines.run.failures import failure_of
from ottla.pipelines.run.requirements import MissingRequirement, require_java, require_packages
from ottla.pipelines.spec.model import Pipeline
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.sinks import kind_of

SparkSession = Any  # Only pipelines/spark imports its class.


class PipelineFailed(UserError):
    """The pipeline ran and failed; the text is the reason."""

    code = FAILED


class _Runs(Protocol):
    status: RunStatus

    def stop(self) -> None: ...

    def run(self, shown: Callable[[RunStatus], None]) -> object: ...


def run(parsed: argparse.Namespace) -> int:
    pipeline, spark = _started(parsed)
    from ottla.pipelines.spark.run import PipelineRun, RunOptions

    options = RunOptions(directory_of(parsed.file), _bootstrap(parsed, pipeline), parsed.once)
    return _carry_out(lambda: PipelineRun(spark, pipeline, options), pipeline, spark, parsed)


def replay(parsed: argparse.Namespace) -> int:
    from_ms, to_ms = (
        _moment(option, text) for option, text in (("--from", parsed.from_time), ("--to", parsed.to_time))
    )
    if from_ms >= to_ms:
        raise UserError(f"--from {parsed.from_time} --to {parsed.to_time}: --from must be earlier than --to")
    if not all(letter.isalnum() or letter in "_-" for letter in parsed.replay):
        raise UserError(f"--as {parsed.replay!r}: expected letters, digits, underscores and hyphens")
    pipeline, spark = _started(parsed)
    from ottla.pipelines.spark.replay import ReplayRun, ReplaySpan
    from ottla.pipelines.spark.run import RunOptions

    span = ReplaySpan(from_ms, to_ms)
    options = RunOptions(directory_of(parsed.file), _bootstrap(parsed, pipeline))
    name = parsed.replay or span.replay_of(pipeline)
    return _carry_out(lambda: ReplayRun(spark, pipeline, options, span, name), pipeline, spark, parsed)


def _started(parsed: argparse.Namespace) -> tuple[Pipeline, SparkSession]:
    """The pipeline, checked before anything starts, and the Spark session."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="ottla: %(message)s")
    settings = pairs(parsed.conf, "--conf")
    pipeline = load_valid(parsed.file)
    try:
        require_packages()
        require_java()
    except MissingRequirement as missing:
        raise UserError(str(missing)) from None
    if parsed.checkpoint:
        pipeline = replace(pipeline, checkpoint=resolved(os.curdir, parsed.checkpoint))
    from ottla.pipelines.spark.session import SessionOptions, open_session, send_code

    needs = tuple(kind_of(sink).spark for sink in pipeline.sinks)
    code = directory_of(parsed.file)
    try:
        spark = open_session(SessionOptions(f"ottla {pipeline.name}", parsed.master, settings, needs, code))
        send_code(spark, code)
    except Exception as error:  # Spark may raise anything; its message is shown.
        raise PipelineFailed(
            f"Spark does not start with --master {parsed.master}: {failure_of(error).reason}"
        ) from error
    return pipeline, spark


def _carry_out(make: Callable[[], _Runs], pipeline: Pipeline, spark: SparkSession, parsed: argparse.Namespace) -> int:
    try:
        running = make()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: running.stop())
        with Display(pipeline.name, as_json=parsed.json) as display:
            running.run(display.show)
    except (CheckpointRefused, MissingRequirement) as refused:
        raise UserError(str(refused)) from None
    except Exception as error:  # Spark and user code may raise anything; the reason is shown.
        raise PipelineFailed(f"{pipeline.name}: {failure_of(error).reason}") from error
    finally:
        spark.stop()
    return 0


def _bootstrap(parsed: argparse.Namespace, pipeline: Pipeline) -> str:
    return parsed.bootstrap or pipeline.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP


def _moment(option: str, text: str) -> int:
    found = moment_ms(text, int(time.time() * 1000))
    if found is None:
        raise UserError(f"{option} {text!r}: expected {MOMENT_FORMS}")
    return found
