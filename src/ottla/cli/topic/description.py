"""Describes a topic: partitions, offsets, sizes, settings."""

from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from ottla.cli.tables import TableColumn, counted, number, print_table, shown_nodes, shown_size
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import ConfigEntry, ConfigSource, Resource, ResourceType
from ottla.client.core.cluster import NO_NODE, Partition, Topic
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import EARLIEST, LATEST
from ottla.rpc.errors import ClientError
from ottla.wire.uuids import uuid_to_text


class Description(NamedTuple):
    topic: Topic
    starts: dict[int, int]  # First offset by partition. Partitions without a leader are missing.
    ends: dict[int, int]
    sizes: dict[int, int]  # Size of the leader's replica by partition.
    settings: list[ConfigEntry]  # Only settings that differ from their default.


async def describe_topics(client: Client, names: list[str]) -> dict[str, Description | ClientError]:
    """The description of each topic, or the error."""
    admin = Admin(client)
    topics: dict[str, Topic] = {}
    outcomes: dict[str, Description | ClientError] = {}
    for name in names:
        try:
            topics[name] = await admin.describe_topic(name)
        except ClientError as error:
            outcomes[name] = error
    led = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.led]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    sizes = await _sizes(admin, topics) if topics else {}
    resources = [Resource(ResourceType.TOPIC, name) for name in topics]
    settings = await admin.describe_configs(resources) if topics else {}
    for name, topic in topics.items():
        entries = settings.get(Resource(ResourceType.TOPIC, name), [])
        outcomes[name] = Description(
            topic,
            {each.partition: at.offset for each, at in starts.items() if each.topic == name},
            {each.partition: at.offset for each, at in ends.items() if each.topic == name},
            sizes.get(name, {}),
            [] if isinstance(entries, ClientError) else [one for one in entries if one.source is ConfigSource.TOPIC],
        )
    return {name: outcomes[name] for name in names}


async def _sizes(admin: Admin, topics: dict[str, Topic]) -> dict[str, dict[int, int]]:
    """Sizes of the leaders' replicas; empty if a broker does not report them."""
    try:
        directories = await admin.describe_log_dirs()
    except ClientError:
        return {}
    sizes: dict[str, dict[int, int]] = {}
    for directory in directories:
        for replica in directory.replicas:
            topic = topics.get(replica.partition.topic)
            index = replica.partition.partition
            if topic is None or replica.future or index >= len(topic.partitions):
                continue
            if topic.partitions[index].leader == directory.broker:
                sizes.setdefault(topic.name, {})[index] = replica.size
    return sizes


def print_description(console: Console, described: Description) -> None:
    topic = described.topic
    replicas = sorted({len(partition.replicas) for partition in topic.partitions})
    offsets = sum(described.ends[index] - start for index, start in described.starts.items())
    facts = [
        counted(len(topic.partitions), "partition"),
        f"{counted(replicas[-1], 'replica')} each"
        if len(replicas) == 1
        else f"{replicas[0]} to {replicas[-1]} replicas",
        f"up to {counted(offsets, 'record')}",
        *([shown_size(sum(described.sizes.values()))] if described.sizes else []),
    ]
    console.print(Text.assemble((topic.name, "bold"), "  ", ", ".join(facts)))
    console.print(Text.assemble(("Id        ", "dim"), uuid_to_text(topic.topic_id)))
    settings = ", ".join(f"{one.name}={one.value}" for one in described.settings)
    console.print(Text.assemble(("Settings  ", "dim"), settings or "all by default"))
    console.print()
    columns = [
        number("Partition"),
        number("Leader"),
        number("Epoch"),
        TableColumn("Replicas", wraps=True),
        TableColumn("In sync", wraps=True),
        number("Start"),
        number("End"),
        *([number("Size")] if described.sizes else []),
    ]
    print_table(console, columns, [_row(described, partition) for partition in topic.partitions])


def _row(described: Description, partition: Partition) -> list[str | Text]:
    index = partition.index
    leaderless = partition.leader == NO_NODE
    behind = len(partition.isr) < len(partition.replicas)
    return [
        str(index),
        Text("none", style="bold red") if leaderless else str(partition.leader),
        str(partition.leader_epoch),
        shown_nodes(partition.replicas),
        Text(shown_nodes(partition.isr), style="bold red" if behind else ""),
        f"{described.starts[index]:,}" if index in described.starts else "",
        f"{described.ends[index]:,}" if index in described.ends else "",
        *([shown_size(described.sizes[index]) if index in described.sizes else ""] if described.sizes else []),
    ]


def to_fields(described: Description) -> dict[str, Any]:
    topic = described.topic
    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.internal,
        "settings": {one.name: one.value for one in described.settings},
        "partitions": [
            {
                "partition": one.index,
                "leader": None if one.leader == NO_NODE else one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "in_sync": one.isr,
                "offline": one.offline,
                "start_offset": described.starts.get(one.index),
                "end_offset": described.ends.get(one.index),
                "bytes": described.sizes.get(one.index),
            }
            for one in topic.partitions
        ],
    }
