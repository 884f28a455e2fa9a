"""The options of `ottla log`."""

import argparse
from typing import Any


def add_log(groups: "argparse._SubParsersAction[Any]") -> None:
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
    dump.set_defaults(run=_dump)

    verify = commands.add_parser(
        "verify",
        help="check checksums, offsets, records and indexes",
        description="Check that the files of a partition are whole and agree with each other. Changes nothing. "
        "Ends with 0 when nothing is wrong, 1 with findings, 2 when it could not look.",
    )
    _add_path(verify)
    verify.set_defaults(run=_verify)


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a partition's directory, or one file of it")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")


def _dump(parsed: argparse.Namespace) -> int:
    from ottla.cli.log import command

    wanted = command.DumpOptions(parsed.records, parsed.indexes, parsed.start, parsed.end, parsed.limit)
    return command.dump(parsed.path, wanted, as_json=parsed.json)


def _verify(parsed: argparse.Namespace) -> int:
    from ottla.cli.log import command

    return command.verify(parsed.path, as_json=parsed.json)
