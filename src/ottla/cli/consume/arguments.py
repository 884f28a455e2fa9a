"""The options of `ottla consume`."""

import argparse
from typing import Any

from ottla.cli.arguments import add_cluster, add_json, at_least_one


def add_consume(groups: "argparse._SubParsersAction[Any]") -> None:
    consume = groups.add_parser(
        "consume",
        help="print records",
        description="Print the records of a topic, one a line: to its present end, or with --follow for ever. With "
        "--group as a member of a consumer group: from where the group is, and committing what was printed.",
        epilog="TIME is 2026-11-15, 2026-11-15T20:44:46 (UTC, or with an offset such as +02:00), @MILLISECONDS since "
        "1970, or how long ago: 90s, 15m, 2h, 7d.",
    )
    consume.set_defaults(run=_run)
    consume.add_argument("topic", metavar="TOPIC")
    add_cluster(consume)
    part = consume.add_argument_group("what to print")
    part.add_argument(
        "--from",
        dest="start",
        default="beginning",
        metavar="WHERE",
        help="beginning (default), end (then --follow is implied), an OFFSET, or a TIME",
    )
    part.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="share the topic with the group's members; --from counts where the group has no offset yet",
    )
    part.add_argument("-n", "--max", dest="limit", type=at_least_one, metavar="N", help="stop after N records")
    part.add_argument("-F", "--follow", action="store_true", help="at the end, wait for more")
    part.add_argument(
        "-p", "--partition", dest="partitions", type=int, action="append", metavar="N", help="only this one; repeatable"
    )
    part.add_argument("--committed", action="store_true", help="leave out what transactions aborted or left open")
    part.add_argument("--skip-damaged", action="store_true", help="go on after a damaged batch, with a warning")
    form = consume.add_argument_group("how to print it (parts of a line are separated by tabs)")
    form.add_argument("-k", "--keys", action="store_true", help="the key before the value")
    form.add_argument("-o", "--offsets", action="store_true", help="partition and offset")
    form.add_argument("-t", "--timestamps", action="store_true", help="the record's time, in UTC")
    form.add_argument("-H", "--headers", action="store_true", help="the headers")
    add_json(form)
    form.add_argument("-q", "--quiet", action="store_true", help="no summary at the end")


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.consume.command import consume
    from ottla.cli.consume.member import consume_as_member
    from ottla.cli.consume.where import start_of
    from ottla.cli.errors import UserError
    from ottla.cli.remote import run_remote

    def check(parsed: argparse.Namespace) -> None:
        start_of(parsed.start, 0)
        if parsed.group is not None and parsed.partitions is not None:
            raise UserError("--group and --partition: the group decides which partitions a member reads. Give one.")

    return run_remote(consume_as_member if parsed.group is not None else consume, parsed, check)
