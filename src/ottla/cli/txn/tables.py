"""Shows transactions and producers as tables or JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ottla.cli.log.tables import shown_time
from ottla.cli.partitions import shown_partitions
from ottla.cli.tables import TableColumn, number, print_table
from ottla.cli.times import shown_duration
from ottla.cli.txn.open_here import OpenTransaction
from ottla.client.core.cluster import Broker
from ottla.client.core.names import TopicPartition
from ottla.client.partition_producers import ProducerState
from ottla.client.transactions_admin import TransactionDescription, TransactionListing


def print_listed(
    console: Console, found: Sequence[TransactionListing], opened: Mapping[str, int | None], now_ms: int
) -> None:
    columns = [
        TableColumn("Transactional id", wraps=True),
        TableColumn("State"),
        number("Open for"),
        number("Producer id"),
    ]
    rows = [
        [
            one.transactional_id,
            one.state,
            _since(opened.get(one.transactional_id), now_ms),
            str(one.producer_id),
            str(one.coordinator),
        ]
        for one in found
    ]
    print_table(console, [*columns, number("Coordinator")], rows)


def listed_fields(one: TransactionListing, started_ms: int | None) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "coordinator": one.coordinator,
        "started": started_ms,
    }


def print_described(console: Console, one: TransactionDescription, coordinator: Broker | None, now_ms: int) -> None:
    age = "" if one.started_ms is None else f" for {_since(one.started_ms, now_ms)}"
    where = "" if coordinator is None else f" ({coordinator.address})"
    facts = [
        ("Coordinator", f"{one.coordinator}{where}"),
        ("Producer", f"id {one.producer_id}, epoch {one.producer_epoch}"),
        ("Time-out", shown_duration(one.timeout_ms)),
        *([("Started", f"{shown_time(one.started_ms, wide=False)} UTC")] if one.started_ms is not None else []),
        ("Partitions", shown_partitions(one.partitions) or "none"),
    ]
    console.print(Text.assemble((one.transactional_id, "bold"), f"  {one.state}{age}"))
    for title, value in facts:
        console.print(Text.assemble((f"{title:<13}", "dim"), value))


def described_fields(one: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started": one.started_ms,
        "partitions": [partition._asdict() for partition in one.partitions],
    }


def print_hanging(console: Console, hanging: Sequence[OpenTransaction], now_ms: int) -> None:
    columns = [
        TableColumn("Partition", wraps=True),
        *map(number, ("Start offset", "Producer id", "Epoch", "Last record")),
        TableColumn("Transactional id", wraps=True),
    ]
    rows = [
        [
            shown_partitions([one.partition]),
            f"{one.producer.txn_start_offset:,}",
            str(one.producer.producer_id),
            str(one.producer.producer_epoch),
            _ago(one.producer.last_timestamp, now_ms),
            "none" if one.owner is None else one.owner.transactional_id,
        ]
        for one in hanging
    ]
    print_table(console, columns, rows)


def hanging_fields(one: OpenTransaction) -> dict[str, Any]:
    return producer_fields(one.partition, one.producer, one)


def print_producers(
    console: Console,
    producers: Sequence[tuple[TopicPartition, ProducerState]],
    found: Mapping[tuple[TopicPartition, ProducerState], OpenTransaction],
    now_ms: int,
) -> None:
    columns = [
        TableColumn("Partition", wraps=True),
        *map(number, ("Producer id", "Epoch", "Sequence", "Last record")),
        TableColumn("Transaction", wraps=True),
    ]
    rows: list[list[str | Text]] = [
        [
            shown_partitions([partition]),
            str(one.producer_id),
            str(one.producer_epoch),
            str(one.last_sequence),
            _ago(one.last_timestamp, now_ms),
            _transaction(found.get((partition, one))),
        ]
        for partition, one in producers
    ]
    print_table(console, columns, rows)


def producer_fields(
    partition: TopicPartition, producer: ProducerState, transaction: OpenTransaction | None
) -> dict[str, Any]:
    owner = None if transaction is None else transaction.owner
    return {
        **partition._asdict(),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.txn_start_offset,
        "transactional_id": None if owner is None else owner.transactional_id,
        "hanging": transaction is not None and transaction.hanging,
    }


def _transaction(transaction: OpenTransaction | None) -> str | Text:
    if transaction is None:
        return ""
    since = f"open from {transaction.producer.txn_start_offset:,}"
    owner = "" if transaction.owner is None else f", {transaction.owner.transactional_id}"
    return Text(f"{since}, hangs{owner}", style="bold red") if transaction.hanging else f"{since}{owner}"


def _since(started_ms: int | None, now_ms: int) -> str:
    return "" if started_ms is None else shown_duration(max(0, now_ms - started_ms))


def _ago(timestamp: int, now_ms: int) -> str:
    return "" if timestamp < 0 else f"{_since(timestamp, now_ms)} ago"
