"""Describes a group: members, assignment, offsets, lag."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from ottla.cli.group.lag import ages_ms
from ottla.cli.partitions import shown_partitions
from ottla.cli.remote import complain
from ottla.cli.tables import TableColumn, counted, number, print_table
from ottla.cli.times import shown_duration
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.groups import GroupDescription, GroupMember
from ottla.client.offsets import EARLIEST, LATEST
from ottla.rpc.errors import ClientError


class Standing(NamedTuple):
    """The committed offset and the lag of a group in a partition."""

    partition: TopicPartition
    committed: int | None
    metadata: str
    start: int | None  # Start and end are None if the partition does not exist or has no leader.
    end: int | None
    age_ms: int | None  # The age of the first record that is not consumed.
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)

    @property
    def trouble(self) -> str:
        if self.end is None or self.start is None:
            return "no leader, or deleted"
        if self.committed is not None and self.committed > self.end:
            return "committed after the end"
        if self.committed is not None and self.committed < self.start:
            return f"next records are gone: the log starts at {self.start:,}"
        return ""


class Described(NamedTuple):
    group: GroupDescription
    coordinator: str
    standings: list[Standing]


async def describe_all(client: Client, names: list[str]) -> dict[str, Described | ClientError]:
    """The description of each group, or the error."""
    admin = Admin(client)
    groups = await admin.describe_groups(names)
    committed = await admin.committed_offsets(name for name in names if isinstance(groups[name], GroupDescription))
    outcomes: dict[str, Described | ClientError] = {}
    for name in names:
        group, offsets = groups[name], committed.get(name, {})
        if isinstance(group, ClientError):
            outcomes[name] = group
        elif isinstance(offsets, ClientError):
            outcomes[name] = offsets
        else:
            at = {partition: (one.offset, one.metadata) for partition, one in offsets.items()}
            outcomes[name] = Described(group, _broker(client, group.coordinator), await _standings(client, group, at))
    return outcomes


async def _standings(
    client: Client, group: GroupDescription, committed: dict[TopicPartition, tuple[int, str]]
) -> list[Standing]:
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*owners, *committed})
    admin = Admin(client)
    topics = await admin.list_topics() if partitions else {}
    led = [one for one in partitions if one.topic in topics and one.partition in topics[one.topic].led]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    behind = {
        one: max(committed[one][0], starts[one].offset)
        for one in led
        if one in committed and committed[one][0] < ends[one].offset
    }
    ages = await _ages(client, {one: offset for one, offset in behind.items() if offset < ends[one].offset})
    return [
        Standing(
            one,
            committed[one][0] if one in committed else None,
            committed[one][1] if one in committed else "",
            starts[one].offset if one in starts else None,
            ends[one].offset if one in ends else None,
            ages.get(one),
            owners.get(one),
        )
        for one in partitions
    ]


async def _ages(client: Client, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The age of the record at each offset. Empty, with a warning, if records cannot be read: a user who may describe
    groups need not be allowed to read topics."""
    try:
        return await ages_ms(client, offsets)
    except ClientError as error:
        complain(error, "The age of the records is not shown.")
        return {}


def _broker(client: Client, node: int) -> str:
    broker = client.cluster.brokers.get(node)
    return str(node) if broker is None else f"{node} ({broker.address})"


def print_described(console: Console, described: Described) -> None:
    group = described.group
    lag, age_ms = _total(described.standings)
    facts = [
        f"{group.group_type} group" if group.group_type else "group",
        group.state,
        counted(len(group.members), "member"),
        *([f"{counted(lag, 'record')} behind"] if lag is not None else []),
        *([f"the oldest {shown_duration(age_ms)} old"] if age_ms is not None else []),
    ]
    console.print(Text.assemble((group.group_id, "bold"), "  ", ", ".join(facts)))
    epoch = "" if group.epoch is None else f", epoch {group.epoch} (assigned {group.assignment_epoch})"
    protocol = group.protocol_type if group.protocol_type not in ("", "consumer") else ""
    console.print(Text.assemble(("Coordinator  ", "dim"), described.coordinator))
    console.print(Text.assemble(("Assignor     ", "dim"), (group.assignor or "none") + epoch))
    if protocol:
        console.print(Text.assemble(("Protocol     ", "dim"), protocol))
    if group.members:
        console.print()
        _print_members(console, group.members)
    if described.standings:
        console.print()
        _print_standings(console, described.standings)


def _print_members(console: Console, members: list[GroupMember]) -> None:
    static = any(member.instance_id is not None for member in members)
    columns = [
        TableColumn("Member", wraps=True),
        *([TableColumn("Instance", wraps=True)] if static else []),
        TableColumn("Client"),
        TableColumn("Host"),
        TableColumn("Partitions", wraps=True),
    ]
    rows = [
        [
            member.member_id,
            *([member.instance_id or ""] if static else []),
            member.client_id,
            member.host,
            _assigned(member),
        ]
        for member in members
    ]
    print_table(console, columns, rows)


def _assigned(member: GroupMember) -> str:
    now = shown_partitions(member.assignment) or "none"
    if member.target is None or member.target == member.assignment:
        return now
    return f"{now}, to become {shown_partitions(member.target) or 'none'}"


def _print_standings(console: Console, standings: list[Standing]) -> None:
    troubled = any(one.trouble for one in standings)
    owned = any(one.member is not None for one in standings)
    columns = [
        TableColumn("Topic", wraps=True),
        *map(number, ("Partition", "Committed", "End", "Lag", "Age")),
        *([TableColumn("Member", wraps=True)] if owned else []),
        *([TableColumn("Trouble", wraps=True)] if troubled else []),
    ]
    rows: list[list[str | Text]] = [
        [
            one.partition.topic,
            str(one.partition.partition),
            _figure(one.committed) or "none",
            _figure(one.end),
            _figure(one.lag),
            "" if one.age_ms is None else shown_duration(one.age_ms),
            *([_owner(one.member)] if owned else []),
            *([Text(one.trouble, style="bold red")] if troubled else []),
        ]
        for one in standings
    ]
    print_table(console, columns, rows)


def _owner(member: GroupMember | None) -> str:
    return "" if member is None else member.instance_id or member.member_id


def _figure(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _total(standings: Iterable[Standing]) -> tuple[int | None, int | None]:
    """The lag of all partitions in records; the age of the oldest unconsumed record."""
    lags = [one.lag for one in standings if one.lag is not None]
    ages = [one.age_ms for one in standings if one.age_ms is not None]
    return (sum(lags) if lags else None), (max(ages) if ages else None)


def to_fields(described: Described) -> dict[str, Any]:
    group = described.group
    lag, age_ms = _total(described.standings)
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "coordinator": group.coordinator,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": lag,
        "lag_ms": age_ms,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": [one._asdict() for one in member.assignment],
                "target": None if member.target is None else [one._asdict() for one in member.target],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "committed_offset": one.committed,
                "start_offset": one.start,
                "end_offset": one.end,
                "lag": one.lag,
                "lag_ms": one.age_ms,
                "metadata": one.metadata,
                "member_id": None if one.member is None else one.member.member_id,
                "trouble": one.trouble or None,
            }
            for one in described.standings
        ],
    }
