"""Implements `ottla topic`."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from ottla.cli.arguments import pairs
from ottla.cli.dialogue import confirmed, say
from ottla.cli.errors import FAILED, UserError
from ottla.cli.patterns import matches
from ottla.cli.plain import json_line
from ottla.cli.remote import Command, complain
from ottla.cli.tables import TableColumn, counted, number, print_table, shown_nodes, stdout
from ottla.cli.topic.description import Description, describe_topics, print_description, to_fields
from ottla.client.admin import CLUSTER_DEFAULT, Admin, NewTopic
from ottla.client.client import Client
from ottla.client.configs import ConfigChange, ConfigOperation, Resource, ResourceType
from ottla.client.core.cluster import NO_NODE, Topic
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error
from ottla.wire.uuids import uuid_to_text

VISIBLE_WITHIN_MS: Final = 5_000
UNKNOWN: Final = Error.UNKNOWN_TOPIC_OR_PARTITION


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be seen without a cluster."""
    pairs(getattr(parsed, "settings", ()), "--set")
    if parsed.command == "alter" and not (parsed.settings or parsed.unset or parsed.partitions):
        raise UserError("nothing to alter: give --partitions N, --set NAME=VALUE or --unset NAME")


async def create(client: Client, parsed: argparse.Namespace) -> int:
    settings = pairs(parsed.settings, "--set")
    partitions = parsed.partitions or CLUSTER_DEFAULT
    replicas = parsed.replicas or CLUSTER_DEFAULT
    topics = [NewTopic(name, partitions, replicas, settings) for name in dict.fromkeys(parsed.names)]
    outcomes = await Admin(client).create_topics(topics, validate_only=parsed.dry_run)
    code = 0
    for topic in topics:
        outcome = outcomes[topic.name]
        if isinstance(outcome, ClientError):
            if parsed.if_missing and _is(outcome, Error.TOPIC_ALREADY_EXISTS):
                say(parsed, f"{topic.name} exists already", topic=topic.name, created=False)
                continue
            complain(outcome)
            code = FAILED
            continue
        if not parsed.dry_run:  # Wait until it is known, so that the next command finds it.
            await client.metadata.topic(topic.name, timeout_ms=VISIBLE_WITHIN_MS)
        done = "could be created" if parsed.dry_run else "created"
        size = ", ".join(
            [
                *([counted(outcome.partitions, "partition")] if outcome.partitions > 0 else []),
                *([counted(outcome.replication_factor, "replica") + " each"] if outcome.replication_factor > 0 else []),
            ]
        )
        say(
            parsed,
            f"{topic.name} {done}" + (f": {size}" if size else ""),
            topic=topic.name,
            created=not parsed.dry_run,
            topic_id=uuid_to_text(outcome.topic_id),
            partitions=outcome.partitions,
            replication_factor=outcome.replication_factor,
        )
    return code


async def list_topics(client: Client, parsed: argparse.Namespace) -> int:
    topics = [
        topic
        for topic in (await Admin(client).list_topics()).values()
        if (parsed.internal or not topic.internal) and matches(topic.name, parsed.patterns)
    ]
    if parsed.json:
        for topic in topics:
            sys.stdout.write(json_line(_listed(topic)))
        return 0
    if not topics:
        print("no topics" if not parsed.patterns else "no topic matches", file=sys.stderr)
        return 0
    columns = [TableColumn("Topic", wraps=True), number("Partitions"), number("Replicas")]
    if any(map(_trouble, topics)):
        columns.append(TableColumn("Trouble"))
    print_table(stdout(), columns, [_row(topic)[: len(columns)] for topic in topics])
    return 0


async def describe(client: Client, parsed: argparse.Namespace) -> int:
    code = 0
    described = await describe_topics(client, list(dict.fromkeys(parsed.names)))
    console = stdout()
    shown = 0
    for outcome in described.values():
        if not isinstance(outcome, Description):
            complain(outcome)
            code = FAILED
        elif parsed.json:
            sys.stdout.write(json_line(to_fields(outcome)))
        else:
            if shown:
                console.print()
            print_description(console, outcome)
            shown += 1
    return code


async def alter(client: Client, parsed: argparse.Namespace) -> int:
    changes = [
        ConfigChange(name, ConfigOperation.SET, value) for name, value in pairs(parsed.settings, "--set").items()
    ]
    changes += [ConfigChange(name, ConfigOperation.DELETE) for name in parsed.unset]
    admin = Admin(client)
    names = list(dict.fromkeys(parsed.names))
    code = 0
    if changes:
        resources = {Resource(ResourceType.TOPIC, name): changes for name in names}
        altered = await admin.alter_configs(resources, validate_only=parsed.dry_run)
        what = ", ".join([*parsed.settings, *(f"{name} by default" for name in parsed.unset)])
        code |= _report(parsed, {resource.name: outcome for resource, outcome in altered.items()}, what)
    if parsed.partitions:
        grown = await admin.create_partitions(dict.fromkeys(names, parsed.partitions), validate_only=parsed.dry_run)
        code |= _report(parsed, grown, counted(parsed.partitions, "partition"))
    return code


async def delete(client: Client, parsed: argparse.Namespace) -> int:
    names = list(dict.fromkeys(parsed.names))
    if not confirmed(parsed, f"Delete {', '.join(names)} with all records?"):
        print("nothing deleted", file=sys.stderr)
        return FAILED
    outcomes = await Admin(client).delete_topics(names)
    code = 0
    for name in names:
        outcome = outcomes[name]
        if outcome is not None:
            complain(outcome, "`ottla topic list` shows what exists." if _is(outcome, UNKNOWN) else None)
            code = FAILED
        else:
            say(parsed, f"{name} deleted", topic=name, deleted=True)
    return code


COMMANDS: Final[dict[str, Command]] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "alter": alter,
    "delete": delete,
}


def _report(parsed: argparse.Namespace, outcomes: Mapping[str, ClientError | None], what: str) -> int:
    code = 0
    for name, outcome in outcomes.items():
        if outcome is not None:
            complain(outcome)
            code = FAILED
        else:
            done = "could be altered" if parsed.dry_run else "altered"
            say(parsed, f"{name} {done}: {what}", topic=name, altered=not parsed.dry_run, change=what)
    return code


def _is(error: ClientError, code: Error) -> bool:
    return isinstance(error, Declined) and error.error is code


def _row(topic: Topic) -> list[str | Text]:
    return [topic.name, f"{len(topic.partitions):,}", _replicas(topic), Text(_trouble(topic), style="bold red")]


def _replicas(topic: Topic) -> str:
    counts = sorted({len(partition.replicas) for partition in topic.partitions})
    return shown_nodes(counts) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _trouble(topic: Topic) -> str:
    leaderless = sum(1 for partition in topic.partitions if partition.leader == NO_NODE)
    behind = sum(1 for partition in topic.partitions if len(partition.isr) < len(partition.replicas))
    parts = [*([f"{leaderless:,} without leader"] if leaderless else []), *([f"{behind:,} behind"] if behind else [])]
    return ", ".join(parts)


def _listed(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "without_leader": sum(1 for partition in topic.partitions if partition.leader == NO_NODE),
        "under_replicated": sum(1 for one in topic.partitions if len(one.isr) < len(one.replicas)),
    }
