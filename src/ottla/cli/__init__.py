"""The `ottla` command.

Each group of commands is a package of its own, imported when it is asked for: `ottla --help` must not wait for them.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.errors import UserError

FINDINGS = 1
USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        code = _run(parsed)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"ottla: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader (`head`, `less`) has seen enough. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ottla", description="Apache Kafka's system in Python.")
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    groups = parser.add_subparsers(metavar="COMMAND", required=True)

    log = groups.add_parser("log", help="look into the files of a partition, Ottla's or Kafka's")
    commands = log.add_subparsers(metavar="COMMAND", required=True)

    dump = commands.add_parser(
        "dump",
        help="show batches, records, producers, epochs and indexes",
        description="Show what the files of a partition hold. Offsets count records, positions count bytes.",
    )
    _add_path(dump)
    dump.add_argument("--records", action="store_true", help="show the records of each batch: key, value, headers")
    dump.add_argument("--indexes", action="store_true", help="of a directory, show the entries of the indexes too")
    dump.add_argument("--from", dest="start", type=int, metavar="OFFSET", help="leave out what ends before OFFSET")
    dump.add_argument("--to", dest="end", type=int, metavar="OFFSET", help="leave out what begins after OFFSET")
    dump.add_argument(
        "--max", dest="limit", type=int, metavar="N", help="stop after N batches (N records with --records)"
    )
    dump.set_defaults(command="dump")

    verify = commands.add_parser(
        "verify",
        help="check checksums, offsets, records and indexes",
        description="Check that the files of a partition are whole and agree with each other. Changes nothing. "
        "Ends with 0 when nothing is wrong, 1 with findings, 2 when it could not look.",
    )
    _add_path(verify)
    verify.set_defaults(command="verify")
    return parser


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a partition's directory, or one file of it")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.log import command

    if parsed.command == "dump":
        wanted = command.Wanted(parsed.records, parsed.indexes, parsed.start, parsed.end, parsed.limit)
        return command.dump(parsed.path, wanted, as_json=parsed.json)
    return command.verify(parsed.path, as_json=parsed.json)
