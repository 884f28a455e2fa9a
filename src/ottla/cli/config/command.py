"""Implements `ottla config`."""

import argparse
import html
import re
import sys
from typing import Final

from rich.text import Text

from ottla.cli.arguments import pairs
from ottla.cli.errors import FAILED, UserError
from ottla.cli.plain import json_line
from ottla.cli.remote import Command, complain
from ottla.cli.tables import TableColumn, print_table, stdout
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigSource, Resource, ResourceType
from ottla.rpc.errors import ClientError

_MARKUP: Final = re.compile(r"</?[a-zA-Z][^>]*>")
SOURCES: Final = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "broker",
    ConfigSource.BROKERS: "brokers",
    ConfigSource.FILE: "file",
    ConfigSource.DEFAULT: "default",
}


def resource_of(text: str) -> Resource:
    kind, separator, name = text.partition(":")
    if separator and kind == "topic" and name:
        return Resource(ResourceType.TOPIC, name)
    if kind == "broker" and (not separator or (name.isascii() and name.isdecimal())):
        return Resource(ResourceType.BROKER, name)
    if separator:
        raise UserError(f"{text!r} names nothing with settings: expected TOPIC, topic:NAME, broker or broker:ID")
    return Resource(ResourceType.TOPIC, text)


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be seen without a cluster."""
    resource_of(parsed.resource)
    pairs(getattr(parsed, "settings", ()), "set")


async def get(client: Client, parsed: argparse.Namespace) -> int:
    resource = resource_of(parsed.resource)
    names = parsed.names or None
    outcome = (await Admin(client).describe_configs([resource], names=names, documentation=parsed.docs))[resource]
    if isinstance(outcome, ClientError):
        raise outcome
    missing = [name for name in parsed.names if name not in {entry.name for entry in outcome}]
    entries = (
        outcome if parsed.all or parsed.names else [one for one in outcome if one.source is not ConfigSource.DEFAULT]
    )
    if parsed.json:
        for entry in entries:
            sys.stdout.write(json_line(_fields(resource, entry, docs=parsed.docs)))
    elif entries:
        _print(entries, docs=parsed.docs)
    elif not missing:
        hint = "" if not outcome else "; --all shows them"
        print(f"{resource}: every setting has its default{hint}", file=sys.stderr)
    for name in missing:
        print(f"ottla: {resource} has no setting {name}", file=sys.stderr)
    return FAILED if missing else 0


async def change(client: Client, parsed: argparse.Namespace) -> int:
    settings = pairs(parsed.settings, "set")
    changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in settings.items()]
    return await _alter(client, parsed, changes)


async def unset(client: Client, parsed: argparse.Namespace) -> int:
    return await _alter(
        client, parsed, [ConfigChange(name, ConfigOperation.DELETE) for name in dict.fromkeys(parsed.names)]
    )


async def _alter(client: Client, parsed: argparse.Namespace, changes: list[ConfigChange]) -> int:
    resource = resource_of(parsed.resource)
    outcome = (await Admin(client).alter_configs({resource: changes}, validate_only=parsed.dry_run))[resource]
    if outcome is not None:
        complain(outcome)
        return FAILED
    for one in changes:
        if parsed.json:
            fields = {"resource": str(resource), "name": one.name, "value": one.value, "changed": not parsed.dry_run}
            sys.stdout.write(json_line(fields))
            continue
        what = f"{one.name}={one.value}" if one.operation is ConfigOperation.SET else f"{one.name} by default"
        print(f"{resource}: {what}{' would be accepted' if parsed.dry_run else ''}")
    return 0


COMMANDS: Final[dict[str, Command]] = {"get": get, "set": change, "unset": unset}


def _print(entries: list[ConfigEntry], *, docs: bool) -> None:
    console = stdout()
    if not docs:
        columns = [TableColumn("Setting"), TableColumn("Value", wraps=True), TableColumn("From")]
        print_table(console, columns, [[one.name, _value(one), _source(one)] for one in entries])
        return
    for number, entry in enumerate(entries):
        if number:
            console.print()
        console.print(Text.assemble((entry.name, "bold"), " = ", _value(entry), "  ", (_source(entry), "dim")))
        if entry.documentation:
            console.print(Text(_without_markup(entry.documentation)))


def _value(entry: ConfigEntry) -> Text:
    if entry.sensitive:
        return Text("(secret)", style="dim")
    return Text("null", style="dim") if entry.value is None else Text(entry.value)


def _source(entry: ConfigEntry) -> str:
    fixed = ", fixed" if entry.read_only and entry.source is not ConfigSource.DEFAULT else ""
    return SOURCES.get(entry.source, entry.source.name.lower()) + fixed


def _without_markup(documentation: str) -> str:
    """Remove HTML tags: Kafka's documentation is written for a browser."""
    return html.unescape(_MARKUP.sub("", documentation))


def _fields(resource: Resource, entry: ConfigEntry, *, docs: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "resource": str(resource),
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
    }
    return fields | ({"documentation": entry.documentation} if docs else {})
