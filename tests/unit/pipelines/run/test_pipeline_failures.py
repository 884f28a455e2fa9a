"""Which failures are given up, how long others wait, and what people are told."""

import ast
from pathlib import Path

import pytest

import ottla.pipelines
from ottla.pipelines.run.failures import FAILURES_MAX, FATAL, FailureRate, RestartBackoff, TooManyFailures, failure_of

IN_A_TASK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 12, in main
    process()
ottla.pipelines.sink.epochs.WriterFenced: pipeline shop, sink out, task 0: another run took over

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


class Raised(Exception):
    pass


def test_what_a_task_raised_is_known_by_its_name() -> None:
    """Spark hands it on as text: without its name a fenced run would try for ever."""
    failure = failure_of(Raised(IN_A_TASK))
    assert (failure.kind, failure.fatal) == ("WriterFenced", True)
    assert failure.reason == "pipeline shop, sink out, task 0: another run took over"


def test_the_innermost_of_several_tracebacks_counts() -> None:
    text = IN_A_TASK + IN_A_TASK.replace("WriterFenced", "WriteFailed")
    assert (failure_of(Raised(text)).kind, failure_of(Raised(text)).fatal) == ("WriteFailed", False)


def test_record_that_stops_a_query_is_told_in_the_words_it_was_raised_with() -> None:
    text = "Aborted\n[USER_RAISED_EXCEPTION] source orders: orders-0 at offset 7 cannot be parsed SQLSTATE: P0001\n a"
    failure = failure_of(Raised(text))
    assert failure.reason == "source orders: orders-0 at offset 7 cannot be parsed"
    assert failure.fatal


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            "[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `at` has the invalid type. SQLSTATE: 42K09;\n"
            "~EventTimeWatermark at#39: string, 2 minutes\n+- ~Project [at#39]\n",
            "[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `at` has the invalid type.",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\n...",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. (line 1, pos 9)",
        ),
    ],
)
def test_plan_and_number_that_the_engine_appends_are_left_out(raised: str, told: str) -> None:
    assert failure_of(Raised(raised)).reason == told


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            OSError(28, "No space left on device", "/c/.ottla-status.json-1"),
            "No space left on device: /c/.ottla-status",
        ),
        (
            Raised("[STREAM_FAILED] Query [id = 1] terminated with exception: No space left on device\n\tat"),
            "No space left on device. A disk is full: the checkpoint's, that of Spark's temporary files",
        ),
    ],
)
def test_full_disk_is_waited_for(raised: Exception, told: str) -> None:
    """Somebody makes room, sooner or later."""
    failure = failure_of(raised)
    assert failure.reason.startswith(told)
    assert not failure.fatal


def test_anything_else_may_have_been_the_network() -> None:
    failure = failure_of(ConnectionResetError("peer\n\tat java.net.Socket"))
    assert (failure.reason, failure.fatal) == ("peer", False)


def test_waits_double_and_end() -> None:
    back_off = RestartBackoff()
    waits = [back_off.failed() for _ in range(FAILURES_MAX + 1)]
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert waits[-2:] == [60.0, None]
    back_off.succeeded()
    assert back_off.failed() == 1.0


@pytest.mark.parametrize(
    ("rate_max", "read", "failed", "stops"),
    [
        (0.01, 50, 1, False),  # One of fifty: too few to judge.
        (0.01, 100, 1, False),
        (0.01, 100, 2, True),
        (0.0, 1, 1, True),
        (1.0, 10, 10, False),
        (0.5, 0, 0, False),
    ],
)
def test_rate_of_failures(rate_max: float, read: int, failed: int, stops: bool) -> None:
    rate = FailureRate(rate_max)
    if stops:
        with pytest.raises(TooManyFailures, match=f"{failed} of {read} records"):
            rate.check(read, failed)
    else:
        rate.check(read, failed)


NOT_FATAL = {
    *("WriteError", "WriteFailed"),  # The same task may be tried again.
    *("InvalidPipeline", "Unfit", "NotOnePipeline"),  # Raised while a pipeline is read: there is no query yet.
    *("Stopping", "GaveUp"),  # The end of a query, not a failure of it.
    "_TopicRecreated",  # Becomes DataLost.
}


def test_every_exception_of_pipelines_was_judged() -> None:
    """One that nobody thought of would be tried again for minutes, though the next attempt must fail as well."""
    found = set()
    for path in Path(ottla.pipelines.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any("Error" in base or "Exception" in base for base in bases(node)):
                found.add(node.name)
    assert found - FATAL == NOT_FATAL


def bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]
