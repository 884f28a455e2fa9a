"""Reports results, and asks for confirmation before irreversible commands."""

import argparse
import sys
from typing import Any

from ottla.cli.plain import json_line


def say(parsed: argparse.Namespace, text: str, **fields: Any) -> None:
    """Print a line for people, or with --json the fields for programs."""
    sys.stdout.write(json_line(fields) if parsed.json else f"{text}\n")


def confirmed(parsed: argparse.Namespace, question: str) -> bool:
    """Whether to continue. Asks only on a terminal; a script is not asked."""
    if parsed.yes or not sys.stdin.isatty():
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
