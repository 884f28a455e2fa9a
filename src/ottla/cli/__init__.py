"""The `ottla` command.

Each group of commands is a package. Its `arguments` module declares the options and imports quickly; the module that
does the work is imported when the command runs, so that `ottla --help` is fast.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.completion.arguments import add_completion
from ottla.cli.config.arguments import add_config
from ottla.cli.consume.arguments import add_consume
from ottla.cli.dlq.arguments import add_dlq
from ottla.cli.errors import USAGE, UserError
from ottla.cli.group.arguments import add_group
from ottla.cli.log.arguments import add_log
from ottla.cli.pipeline.arguments import add_pipeline
from ottla.cli.produce.arguments import add_produce
from ottla.cli.serve.arguments import add_serve
from ottla.cli.topic.arguments import add_topic
from ottla.cli.txn.arguments import add_txn

FINDINGS = 1
INTERRUPTED = 130

__all__ = ["FINDINGS", "INTERRUPTED", "USAGE", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"ottla: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # The reader (`head`, `less`) has closed the pipe. Python would report an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


class _Version(argparse.Action):
    """The option --version. It also shows the kernel, because a node is many times slower on the reference kernel, and
    nothing else shows which one runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ottla.kernel import IMPLEMENTATION

        print(f"ottla {__version__} ({IMPLEMENTATION} kernel)")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    ottla = argparse.ArgumentParser(prog="ottla", description="Apache Kafka's system in Python.")
    ottla.add_argument("--version", action=_Version, nargs=0, help="show the version and which kernel runs, and exit")
    groups = ottla.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        *(add_serve, add_topic, add_produce, add_consume, add_group, add_txn, add_config, add_log),
        *(add_pipeline, add_dlq, add_completion),
    ):
        add(groups)
    return ottla
