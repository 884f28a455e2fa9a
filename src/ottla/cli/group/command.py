"""Implements `ottla group`."""

import argparse
import sys
from typing import Final

from ottla.cli.dialogue import confirmed, say
from ottla.cli.errors import FAILED, UserError
from ottla.cli.group import reset
from ottla.cli.group.description import Described, describe_all, print_described, to_fields
from ottla.cli.partitions import Choice, choice_of
from ottla.cli.patterns import matches
from ottla.cli.plain import json_line
from ottla.cli.remote import Command, complain
from ottla.cli.tables import TableColumn, number, print_table, stdout
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.groups import GroupListing
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be seen without a cluster."""
    if parsed.command == "reset-offsets":
        reset.check(parsed)
    elif parsed.command == "delete":
        choice_of(parsed.topics, "--topic")


async def list_groups(client: Client, parsed: argparse.Namespace) -> int:
    groups: list[GroupListing] = []
    code = 0
    for outcome in (await Admin(client).list_groups(states=parsed.states, types=parsed.types)).values():
        if isinstance(outcome, ClientError):
            complain(outcome)
            code = FAILED
        else:
            groups += [group for group in outcome if matches(group.group_id, parsed.patterns)]
    groups.sort()
    if parsed.json:
        for group in groups:
            sys.stdout.write(json_line(_listed(group)))
    elif groups:
        columns = [TableColumn("Group", wraps=True), TableColumn("Type"), TableColumn("State"), TableColumn("Protocol")]
        rows = [[one.group_id, one.group_type, one.state, one.protocol_type, str(one.coordinator)] for one in groups]
        print_table(stdout(), [*columns, number("Coordinator")], rows)
    elif not code:
        filtered = parsed.patterns or parsed.states or parsed.types
        print("no group matches" if filtered else "no groups", file=sys.stderr)
    return code


async def describe(client: Client, parsed: argparse.Namespace) -> int:
    code = 0
    console = stdout()
    shown = 0
    for outcome in (await describe_all(client, list(dict.fromkeys(parsed.names)))).values():
        if not isinstance(outcome, Described):
            _complain(outcome)
            code = FAILED
        elif parsed.json:
            sys.stdout.write(json_line(to_fields(outcome)))
        else:
            if shown:
                console.print()
            print_described(console, outcome)
            shown += 1
    return code


async def delete(client: Client, parsed: argparse.Namespace) -> int:
    names = list(dict.fromkeys(parsed.names))
    choice = choice_of(parsed.topics, "--topic")
    what = f"what they committed for {', '.join(parsed.topics)}" if choice else "all they committed"
    if not confirmed(parsed, f"Delete {what} of {', '.join(names)}?" if choice else f"Delete {', '.join(names)}?"):
        print("nothing deleted", file=sys.stderr)
        return FAILED
    if choice:
        return max([await _delete_offsets(client, parsed, name, choice) for name in names])
    code = 0
    for name, outcome in (await Admin(client).delete_groups(names)).items():
        if outcome is not None:
            _complain(outcome)
            code = FAILED
        else:
            say(parsed, f"{name} deleted", group=name, deleted=True)
    return code


async def _delete_offsets(client: Client, parsed: argparse.Namespace, name: str, choice: Choice) -> int:
    admin = Admin(client)
    committed = (await admin.committed_offsets([name]))[name]
    if isinstance(committed, ClientError):
        raise committed
    chosen = [one for one in committed if one.topic in choice and _includes(choice, one)]
    if not chosen:
        raise UserError(f"group {name} has committed nothing for {', '.join(parsed.topics)}")
    code = 0
    for partition, outcome in (await admin.delete_offsets(name, chosen)).items():
        if outcome is not None:
            _complain(outcome)
            code = FAILED
        else:
            text = f"{name}: offset {committed[partition].offset:,} of {partition} deleted"
            say(parsed, text, group=name, **partition._asdict(), offset=committed[partition].offset, deleted=True)
    return code


def _includes(choice: Choice, partition: TopicPartition) -> bool:
    numbers = choice[partition.topic]
    return numbers is None or partition.partition in numbers


def _complain(error: ClientError) -> None:
    missing = isinstance(error, Declined) and error.error is Error.GROUP_ID_NOT_FOUND
    complain(error, "`ottla group list` shows what exists." if missing else None)


def _listed(group: GroupListing) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "coordinator": group.coordinator,
    }


COMMANDS: Final[dict[str, Command]] = {
    "list": list_groups,
    "describe": describe,
    "reset-offsets": reset.reset_offsets,
    "delete": delete,
}
