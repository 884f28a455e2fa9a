"""Loggers and their levels in Kafka's words."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.observe.levels import LEVELS, levels, set_level, unset_level
from ottla.observe.trace import AREAS, trace, warn

PACKAGE = Path(__file__).parents[3] / "src" / "ottla"


@pytest.fixture(autouse=True)
def levels_kept() -> Iterator[None]:
    loggers = [logging.root, *(logging.getLogger(name) for name in ("ottla", *(f"ottla.{area}" for area in AREAS)))]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_every_area_has_its_logger_whether_it_has_said_something_or_not() -> None:
    assert {"root", "ottla", *(f"ottla.{area}" for area in AREAS)} <= set(levels())


def test_every_event_is_of_a_known_area() -> None:
    """Otherwise its logger could not be found by those who want to change its level."""
    unknown = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("trace", "warn"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    area = first.value.partition(".")[0]
                    unknown |= {f"{path.name}: {first.value}"} if area not in AREAS else set()
    assert unknown == set()


def test_a_level_counts_for_those_below_until_they_have_their_own() -> None:
    set_level("root", "WARN")
    unset_level("ottla")
    assert levels()["ottla.log"] == "WARN"
    set_level("ottla", "ERROR")
    assert (levels()["ottla.log"], levels()["root"]) == ("ERROR", "WARN")
    set_level("ottla.log", "TRACE")
    assert (levels()["ottla.log"], levels()["ottla.node"]) == ("TRACE", "ERROR")
    unset_level("ottla.log")
    assert levels()["ottla.log"] == "ERROR"


@pytest.mark.parametrize("level", list(LEVELS))
def test_every_level_is_told_as_it_was_set(level: str) -> None:
    set_level("root", level)
    set_level("ottla.log", level)
    assert (levels()["root"], levels()["ottla.log"]) == (level, level)


def test_an_area_is_silenced_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla"):
        set_level("ottla.log", "WARN")
        trace("log.rolled")
        warn("log.damaged")
        trace("node.started")
    assert [record.getMessage() for record in caplog.records] == ["log.damaged", "node.started"]
