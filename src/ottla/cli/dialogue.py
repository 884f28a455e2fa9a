"""Saying what was done, and asking before what cannot be undone."""

import argparse
import sys
from typing import Any

from ottla.cli.plain import json_line


def say(parsed: argparse.Namespace, text: str, **fields: Any) -> None:
    """A line for people, or the fields for programs."""
    sys.stdout.write(json_line(fields) if parsed.json else f"{text}\n")


def confirmed(parsed: argparse.Namespace, question: str) -> bool:
    """Whether to go on. Only somebody at a terminal is asked; a script has made up its mind."""
    if parsed.yes or not sys.stdin.isatty():
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
