"""Options shared by several commands."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.cli.errors import UserError
from ottla.cli.times import duration_ms

BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"


def add_command(
    commands: "argparse._SubParsersAction[Any]",
    name: str,
    help_text: str,
    description: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a command to a group such as `ottla topic`, with the options common to all commands."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=description)
    parser.set_defaults(run=run, command=name)
    add_cluster(parser)
    add_json(parser)
    return parser


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the cluster."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP,
        help=f"a broker of the cluster, or several with commas; default {BOOTSTRAP}, or ${BOOTSTRAP_VARIABLE}",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=10.0,
        metavar="SECONDS",
        help="give up after so long without an answer; default 10",
    )


def add_json(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def at_least_one(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """A parser that accepts a name in any case and returns it in its normal spelling."""

    def parse(text: str) -> str:
        for name in names:
            if text.lower() == name.lower():
                return name
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")

    return parse


def duration(text: str) -> int:
    """A duration in milliseconds."""
    ms = duration_ms(text)
    if ms is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 15m, 2h or 7d")
    return ms


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary."""
    values = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UserError(f"{option} {text!r}: expected NAME=VALUE, as in {option} retention.ms=86400000")
        values[name] = value
    return values
