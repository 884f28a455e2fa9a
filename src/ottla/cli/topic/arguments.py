"""The options of `ottla topic`."""

import argparse
from typing import Any

from ottla.cli.arguments import add_command, at_least_one


def add_topic(groups: "argparse._SubParsersAction[Any]") -> None:
    topic = groups.add_parser("topic", help="create, list, describe, alter and delete topics")
    commands = topic.add_subparsers(metavar="COMMAND", required=True)

    create = add_command(
        commands, "create", "make topics", "Make topics; without numbers they get the cluster's defaults.", _run
    )
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument("-p", "--partitions", type=at_least_one, metavar="N", help="how many partitions")
    create.add_argument("-r", "--replicas", type=at_least_one, metavar="N", help="on how many brokers each one is")
    _add_set(create)
    create.add_argument("--if-missing", action="store_true", help="a topic that exists is no error")
    create.add_argument("--dry-run", action="store_true", help="let the cluster check, and change nothing")

    listing = add_command(commands, "list", "list topics", "List topics.", _run)
    listing.add_argument("patterns", nargs="*", metavar="PATTERN", help="only names like these, as in 'order*'")
    listing.add_argument("--internal", action="store_true", help="the cluster's own topics too")

    describe = add_command(
        commands, "describe", "show partitions, offsets, sizes and settings", "Show everything about topics.", _run
    )
    describe.add_argument("names", nargs="+", metavar="TOPIC")

    alter = add_command(
        commands,
        "alter",
        "add partitions, change settings",
        "Change topics. Partitions can be added, never removed.",
        _run,
    )
    alter.add_argument("names", nargs="+", metavar="TOPIC")
    alter.add_argument("-p", "--partitions", type=at_least_one, metavar="N", help="how many partitions there shall be")
    _add_set(alter)
    alter.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="give a setting its default back; may be repeated"
    )
    alter.add_argument("--dry-run", action="store_true", help="let the cluster check, and change nothing")

    delete = add_command(
        commands, "delete", "delete topics and their records", "Delete topics and all their records.", _run
    )
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask first")


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic, as in retention.ms=86400000; may be repeated",
    )


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.remote import run_remote
    from ottla.cli.topic.command import COMMANDS, check

    return run_remote(COMMANDS[parsed.command], parsed, check)
