"""The loggers of this process and their levels, in Kafka's terms: broker loggers (KIP-412).

Rule 1: a level applies from the moment it is set until the process ends; it is not persisted.
Rule 2: a logger without its own level inherits it: `ottla.log` from `ottla`, which inherits from `root`.
"""

import logging
from typing import Final

from ottla.observe.trace import AREAS, LOGGER, logger_of

ROOT: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    for area in AREAS:
        logger_of(area)  # Includes loggers that have not logged anything yet.
    known = logging.root.manager.loggerDict
    named = {LOGGER: logging.getLogger(LOGGER)} | {
        name: logger for name, logger in known.items() if isinstance(logger, logging.Logger)
    }
    return {ROOT: _shown(logging.root)} | {name: _shown(named[name]) for name in sorted(named)}


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Inherit the level from the parent logger."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _shown(logger: logging.Logger) -> str:
    """The Kafka level that lets the same events through."""
    effective = logger.getEffectiveLevel()
    return next((name for name, level in LEVELS.items() if level <= effective), "TRACE")
