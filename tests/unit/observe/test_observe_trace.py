"""Events reach the sink that is installed, and read well as a line."""

import logging

import pytest

from ottla.observe.trace import Event, detail, names, recording, sink_installed, trace, warn


def test_production_logs_one_line_per_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"):
        trace("isr.shrunk", partition="t-0", left=[3], isr=[1, 2], lag_ms=31_004)
        warn("directory.failed", path="/data/a b", error=OSError(5, "Input/output error"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "isr.shrunk partition=t-0 left=[3] isr=[1,2] lag_ms=31004"),
        ("WARNING", "directory.failed path='/data/a b' error='OSError: [Errno 5] Input/output error'"),
    ]


def test_level_is_respected(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla"):
        trace("log.rolled")
    with caplog.at_level(logging.INFO, "ottla"):
        detail("log.opened")
    assert caplog.records == []


def test_line_cannot_be_forged_by_a_value() -> None:
    """A topic name or a client id with a line break must not write a log line of its own."""
    assert (
        str(Event("client.refused", {"client": "x\nlog.deleted a=b"})) == r"client.refused client='x\nlog.deleted a=b'"
    )
    assert str(Event("e", {"empty": "", "none": None, "raw": b"\x00"})) == r"e empty='' none=None raw=b'\x00'"


def test_recording_takes_events_and_gives_the_sink_back(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"):
        with recording() as outer:
            trace("a", n=1)
            with recording() as inner:
                warn("b")
            trace("c")
        assert caplog.records == []
        trace("d")
    assert outer == [Event("a", {"n": 1}), Event("c", {})]
    assert inner == [Event("b", {}, logging.WARNING)]
    assert names(outer) == ["a", "c"]
    assert [record.getMessage() for record in caplog.records] == ["d"]


def test_sink_comes_back_after_an_error() -> None:
    with recording() as events:
        with pytest.raises(ZeroDivisionError), sink_installed([].append):
            raise ZeroDivisionError
        trace("seen")
    assert names(events) == ["seen"]


def test_a_field_may_be_called_event() -> None:
    with recording() as events:
        trace("x", event="y", level=3)
    assert events == [Event("x", {"event": "y", "level": 3})]
