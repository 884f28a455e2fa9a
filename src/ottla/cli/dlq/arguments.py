"""The options of `ottla dlq`."""

import argparse
from typing import Any, Final

from ottla.cli.arguments import add_command, at_least_one

REDRIVES_MAX: Final = 3
TIMES: Final = (
    "TIME is 2026-11-15, 2026-11-15T20:44:46 (UTC, or with an offset such as +02:00), @MILLISECONDS since 1970, or how "
    "long ago: 90s, 15m, 2h, 7d."
)


def add_dlq(groups: "argparse._SubParsersAction[Any]") -> None:
    dlq = groups.add_parser("dlq", help="inspect dead-letter topics and send dead letters back")
    commands = dlq.add_subparsers(metavar="COMMAND", required=True)

    inspect = add_command(
        commands,
        "inspect",
        "count dead letters by error and by source",
        "Count the dead letters of a topic by error and by source, and show samples of each error.",
        _run,
    )
    _add_choice(inspect)
    inspect.add_argument(
        "-n", "--samples", type=_from_zero, default=1, metavar="N", help="show this many of each error; default 1"
    )

    redrive = add_command(
        commands,
        "redrive",
        "send dead letters back to their source topics",
        "Send dead letters back to the topics they came from, each once. Shows what would be sent; --execute sends it. "
        "A redrive that was interrupted continues where it was.",
        _run,
    )
    _add_choice(redrive)
    redrive.add_argument("--to", metavar="TOPIC", help="send them there instead")
    redrive.add_argument(
        "--max-redrives",
        type=at_least_one,
        default=REDRIVES_MAX,
        metavar="N",
        help=f"leave records that were already sent back this often; default {REDRIVES_MAX}",
    )
    redrive.add_argument("--execute", action="store_true", help="send them; without this, only show what would be sent")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.epilog = TIMES
    parser.add_argument("topic", metavar="TOPIC", help="the dead-letter topic, or with :0,2 some of its partitions")
    choice = parser.add_argument_group("which dead letters", "Those that meet all conditions given; without any, all.")
    choice.add_argument(
        "--error", dest="errors", action="append", default=[], metavar="TEXT", help="the error contains this text"
    )
    choice.add_argument(
        "--source", dest="sources", action="append", default=[], metavar="TOPIC", help="they came from this topic"
    )
    choice.add_argument(
        "--pipeline",
        dest="pipelines",
        action="append",
        default=[],
        metavar="NAME",
        help="of this pipeline or connector",
    )
    choice.add_argument("--since", metavar="TIME", help="written at this time or later")
    choice.add_argument("--until", metavar="TIME", help="written before this time")
    choice.add_argument(
        "--from-offset", type=_from_zero, metavar="N", help="from this offset of the dead-letter topic on"
    )
    choice.add_argument("--to-offset", type=_from_zero, metavar="N", help="before this offset of the dead-letter topic")


def _from_zero(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.dlq.command import COMMANDS, check
    from ottla.cli.remote import run_remote

    return run_remote(COMMANDS[parsed.command], parsed, check)
