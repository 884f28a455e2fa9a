"""The options of `ottla txn`."""

import argparse
from typing import Any, Final

from ottla.cli.arguments import add_command, duration, one_of

STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence"),
)
HANGING_AFTER: Final = "15m"  # transaction.max.timeout.ms by default: a coordinator ends every transaction before.


def add_txn(groups: "argparse._SubParsersAction[Any]") -> None:
    txn = groups.add_parser("txn", help="list, describe and abort transactions")
    commands = txn.add_subparsers(metavar="COMMAND", required=True)
    _add_list(commands)
    _add_describe(commands)
    _add_abort(commands)


def _add_list(commands: "argparse._SubParsersAction[Any]") -> None:
    listing = add_command(
        commands,
        "list",
        "list transactions, or those that hang",
        "List transactional ids with their state; with --hanging, transactions that hold up readers of a partition "
        "and that no coordinator will ever end.",
        _run,
    )
    listing.add_argument("patterns", nargs="*", metavar="PATTERN", help="only ids like these, as in 'payments-*'")
    listing.add_argument(
        "--state",
        dest="states",
        action="append",
        default=[],
        type=one_of(STATES),
        metavar="STATE",
        help=f"only those in this state; may be repeated. One of {', '.join(STATES)}",
    )
    listing.add_argument(
        "--producer-id", dest="producer_ids", action="append", default=[], type=int, metavar="ID", help="repeatable"
    )
    listing.add_argument(
        "--longer-than",
        type=duration,
        metavar="DURATION",
        help=f"only those open for longer, as in 90s or 5m; with --hanging, {HANGING_AFTER} by default",
    )
    listing.add_argument("--hanging", action="store_true", help="look in partitions for transactions that hang")
    listing.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="TOPIC",
        help="with --hanging: look only there; TOPIC:0,2 for some partitions; may be repeated",
    )


def _add_describe(commands: "argparse._SubParsersAction[Any]") -> None:
    describe = add_command(
        commands,
        "describe",
        "show transactions, or the producers of partitions",
        "Show everything about transactional ids; with --topic, the producers that partitions remember.",
        _run,
    )
    describe.add_argument("ids", nargs="*", metavar="TRANSACTIONAL_ID")
    describe.add_argument(
        "-t", "--topic", dest="topics", action="append", default=[], metavar="TOPIC", help="TOPIC, or TOPIC:0,2"
    )


def _add_abort(commands: "argparse._SubParsersAction[Any]") -> None:
    abort = add_command(
        commands,
        "abort",
        "abort a transaction",
        "Abort the open transaction of a transactional id, whose producer is fenced; or, with --topic, a transaction "
        "that hangs in one partition.",
        _run,
    )
    abort.add_argument("id", nargs="?", metavar="TRANSACTIONAL_ID")
    abort.add_argument("-t", "--topic", dest="topic", metavar="TOPIC:PARTITION", help="where a transaction hangs")
    abort.add_argument("--start-offset", type=int, metavar="N", help="where that transaction begins")
    abort.add_argument("--producer-id", type=int, metavar="ID", help="or whose it is")
    abort.add_argument(
        "--force", action="store_true", help="abort it in this partition even though its coordinator has it open"
    )
    abort.add_argument("-y", "--yes", action="store_true", help="do not ask first")


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.remote import run_remote
    from ottla.cli.txn.command import COMMANDS, check

    return run_remote(COMMANDS[parsed.command], parsed, check)
