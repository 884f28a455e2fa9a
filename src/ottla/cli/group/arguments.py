"""The options of `ottla group`."""

import argparse
from typing import Any, Final

from ottla.cli.arguments import add_command, one_of

STATES: Final = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "NotReady", "Dead"),
)
TYPES: Final = ("classic", "consumer", "share", "streams")
TOPIC_HELP: Final = "a topic, or with :0,2 some of its partitions; may be repeated"


def add_group(groups: "argparse._SubParsersAction[Any]") -> None:
    group = groups.add_parser("group", help="list, describe, reset and delete consumer groups")
    commands = group.add_subparsers(metavar="COMMAND", required=True)

    listing = add_command(commands, "list", "list groups", "List groups with their type, state and coordinator.", _run)
    listing.add_argument("patterns", nargs="*", metavar="PATTERN", help="only names like these, as in 'order*'")
    listing.add_argument(
        "--state",
        dest="states",
        action="append",
        default=[],
        type=one_of(STATES),
        metavar="STATE",
        help=f"only groups in this state; may be repeated. One of {', '.join(STATES)}",
    )
    listing.add_argument(
        "--type",
        dest="types",
        action="append",
        default=[],
        type=one_of(TYPES),
        metavar="TYPE",
        help=f"only groups of this type; may be repeated. One of {', '.join(TYPES)}",
    )

    describe = add_command(
        commands,
        "describe",
        "show members, assignment, offsets and lag",
        "Show everything about groups: members, what is assigned to whom, committed offsets, and how far behind they "
        "are in records and in time.",
        _run,
    )
    describe.add_argument("names", nargs="+", metavar="GROUP")

    _add_reset(
        add_command(
            commands,
            "reset-offsets",
            "let a group go on elsewhere",
            "Set the committed offsets of a group without members. Shows what would change; --execute changes it.",
            _run,
        )
    )

    delete = add_command(
        commands,
        "delete",
        "delete groups, or what they committed for topics",
        "Delete groups without members with all they committed; with --topic, only what they committed for it.",
        _run,
    )
    delete.add_argument("names", nargs="+", metavar="GROUP")
    delete.add_argument("-t", "--topic", dest="topics", action="append", default=[], metavar="TOPIC", help=TOPIC_HELP)
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask first")


def _add_reset(reset: argparse.ArgumentParser) -> None:
    reset.epilog = (
        "TIME is 2026-11-15, 2026-11-15T20:44:46 (UTC, or with an offset such as +02:00), @MILLISECONDS since 1970, "
        "or how long ago: 90s, 15m, 2h, 7d. Offsets that are not in the log become the nearest that are."
    )
    reset.add_argument("name", metavar="GROUP")
    what = reset.add_argument_group("what to reset")
    what.add_argument("-t", "--topic", dest="topics", action="append", default=[], metavar="TOPIC", help=TOPIC_HELP)
    what.add_argument("--all-topics", action="store_true", help="all for which the group has committed offsets")
    where = reset.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record that is still there")
    where.add_argument("--to-latest", action="store_true", help="the end: only what comes from now on")
    where.add_argument("--to-current", action="store_true", help="where it is: with --json, a copy to go back to")
    where.add_argument("--to-offset", type=int, metavar="N", help="this offset")
    where.add_argument("--to-time", metavar="TIME", help="the first record from this time on")
    where.add_argument("--shift-by", type=int, metavar="N", help="so many records on, or back if negative")
    where.add_argument(
        "--from-file", metavar="FILE", help="what --json printed, or lines of topic,partition,offset; - for stdin"
    )
    reset.add_argument("--execute", action="store_true", help="do it; without this, only show what would change")


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.group.command import COMMANDS, check
    from ottla.cli.remote import run_remote

    return run_remote(COMMANDS[parsed.command], parsed, check)
