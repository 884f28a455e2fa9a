"""The options of `ottla config`."""

import argparse
from typing import Any

from ottla.cli.arguments import add_command

_RESOURCE = (
    "a topic's name; `broker` for what holds for all brokers; `broker:ID` for one of them; `topic:NAME` for a topic "
    "whose name would be taken for a broker"
)


def add_config(groups: "argparse._SubParsersAction[Any]") -> None:
    config = groups.add_parser("config", help="read and change the settings of topics and brokers")
    commands = config.add_subparsers(metavar="COMMAND", required=True)

    get = _command(
        commands, "get", "show settings", "Show the settings that differ from their defaults, or those named."
    )
    get.add_argument("names", nargs="*", metavar="NAME", help="settings to show, whatever their value")
    get.add_argument("--all", action="store_true", help="those with their default too")
    get.add_argument("--docs", action="store_true", help="say what each is for")

    change = _command(commands, "set", "change settings", "Change settings, at once and without a restart.")
    change.add_argument("settings", nargs="+", metavar="NAME=VALUE")
    change.add_argument("--dry-run", action="store_true", help="let the cluster check, and change nothing")

    unset = _command(commands, "unset", "give settings their default back", "Give settings their default back.")
    unset.add_argument("names", nargs="+", metavar="NAME")
    unset.add_argument("--dry-run", action="store_true", help="let the cluster check, and change nothing")


def _command(
    commands: "argparse._SubParsersAction[Any]", name: str, help_text: str, description: str
) -> argparse.ArgumentParser:
    parser = add_command(commands, name, help_text, description, _run)
    parser.add_argument("resource", metavar="TOPIC|broker", help=_RESOURCE)
    return parser


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.config.command import COMMANDS, check
    from ottla.cli.remote import run_remote

    return run_remote(COMMANDS[parsed.command], parsed, check)
