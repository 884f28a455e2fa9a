"""Implements `ottla txn`."""

import argparse
import sys
from typing import Final

from ottla.cli.arguments import duration
from ottla.cli.dialogue import confirmed, say
from ottla.cli.errors import FAILED, ClusterError, UserError
from ottla.cli.partitions import choice_of, existing
from ottla.cli.patterns import matches
from ottla.cli.plain import json_line
from ottla.cli.remote import Command, complain
from ottla.cli.tables import stdout
from ottla.cli.txn import tables
from ottla.cli.txn.arguments import HANGING_AFTER
from ottla.cli.txn.open_here import OpenTransaction, open_transactions
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.transactions_admin import ANY_DURATION, TransactionDescription, TransactionListing
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error

ONGOING: Final = "Ongoing"
DECIDED: Final = {"PrepareCommit": "commit", "PrepareAbort": "abort", "PrepareEpochFence": "abort"}


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be seen without a cluster."""
    match parsed.command:
        case "list":
            choice_of(parsed.topics, "--topic")
            if parsed.topics and not parsed.hanging:
                raise UserError("--topic goes with --hanging: transactional ids belong to no topic")
            if parsed.hanging and (parsed.states or parsed.patterns):
                raise UserError("--hanging finds transactions in partitions: no PATTERN and no --state can choose them")
        case "describe":
            choice_of(parsed.topics, "--topic")
            if not parsed.ids and not parsed.topics:
                raise UserError("say what to describe: TRANSACTIONAL_ID..., or --topic TOPIC for its producers")
        case "abort":
            _check_abort(parsed)


def _check_abort(parsed: argparse.Namespace) -> None:
    if (parsed.id is None) == (parsed.topic is None):
        raise UserError("say what to abort: a TRANSACTIONAL_ID, or --topic TOPIC:PARTITION for one that hangs there")
    if parsed.topic is None:
        if parsed.start_offset is not None or parsed.producer_id is not None or parsed.force:
            raise UserError("--start-offset, --producer-id and --force go with --topic TOPIC:PARTITION")
        return
    _one_partition(parsed.topic)
    if parsed.start_offset is None and parsed.producer_id is None:
        raise UserError("say which transaction there: --start-offset N or --producer-id ID; `ottla txn list --hanging`")


def _one_partition(text: str) -> TopicPartition:
    ((topic, numbers),) = choice_of([text], "--topic").items()
    if numbers is None or len(numbers) != 1:
        raise UserError(f"--topic {text!r}: expected one partition, as in orders:0")
    return TopicPartition(topic, numbers[0])


async def list_transactions(client: Client, parsed: argparse.Namespace) -> int:
    if parsed.hanging:
        return await _list_hanging(client, parsed)
    admin = Admin(client)
    found: list[TransactionListing] = []
    code = 0
    longer_than_ms = ANY_DURATION if parsed.longer_than is None else parsed.longer_than
    listed = await admin.list_transactions(
        states=parsed.states, producer_ids=parsed.producer_ids, longer_than_ms=longer_than_ms
    )
    for outcome in listed.values():
        if isinstance(outcome, ClientError):
            complain(outcome)
            code = FAILED
        else:
            found += [one for one in outcome if matches(one.transactional_id, parsed.patterns)]
    found.sort()
    running = [one.transactional_id for one in found if one.state == ONGOING or one.state in DECIDED]
    described = await admin.describe_transactions(running) if running else {}
    now_ms = client.ports.clock.wall_ms()
    opened = {name: one.started_ms for name, one in described.items() if isinstance(one, TransactionDescription)}
    if parsed.json:
        for one in found:
            sys.stdout.write(json_line(tables.listed_fields(one, opened.get(one.transactional_id))))
    elif found:
        tables.print_listed(stdout(), found, opened, now_ms)
    elif not code:
        print("no transactional id", file=sys.stderr)
    return code


async def _list_hanging(client: Client, parsed: argparse.Namespace) -> int:
    admin = Admin(client)
    choice = choice_of(parsed.topics, "--topic")
    if choice:
        partitions = await existing(admin, choice)
    else:
        topics = await admin.list_topics()
        partitions = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.led]
    now_ms = client.ports.clock.wall_ms()
    silent_ms = duration(HANGING_AFTER) if parsed.longer_than is None else parsed.longer_than
    remembered = await admin.describe_producers(partitions) if partitions else {}
    candidates = [
        (partition, one)
        for partition, producers in remembered.items()
        for one in producers
        if now_ms - one.last_timestamp > silent_ms
        and (not parsed.producer_ids or one.producer_id in parsed.producer_ids)
    ]
    hanging = [one for one in await open_transactions(admin, candidates) if one.hanging]
    if parsed.json:
        for transaction in hanging:
            sys.stdout.write(json_line(tables.hanging_fields(transaction)))
    elif hanging:
        tables.print_hanging(stdout(), hanging, now_ms)
    else:
        print("no transaction hangs", file=sys.stderr)
    return 0


async def describe(client: Client, parsed: argparse.Namespace) -> int:
    admin = Admin(client)
    console = stdout()
    now_ms = client.ports.clock.wall_ms()
    code = 0
    shown = 0
    outcomes = await admin.describe_transactions(parsed.ids) if parsed.ids else {}
    for outcome in outcomes.values():
        if isinstance(outcome, ClientError):
            _complain(outcome)
            code = FAILED
        elif parsed.json:
            sys.stdout.write(json_line(tables.described_fields(outcome)))
        else:
            if shown:
                console.print()
            tables.print_described(console, outcome, client.cluster.brokers.get(outcome.coordinator), now_ms)
            shown += 1
    if parsed.topics:
        await _describe_producers(admin, parsed, now_ms)
    return code


async def _describe_producers(admin: Admin, parsed: argparse.Namespace, now_ms: int) -> None:
    partitions = await existing(admin, choice_of(parsed.topics, "--topic"))
    remembered = await admin.describe_producers(partitions)
    producers = [(partition, one) for partition in partitions for one in sorted(remembered[partition])]
    found = {(one.partition, one.producer): one for one in await open_transactions(admin, producers)}
    if parsed.json:
        for partition, producer in producers:
            sys.stdout.write(json_line(tables.producer_fields(partition, producer, found.get((partition, producer)))))
    elif producers:
        tables.print_producers(stdout(), producers, found, now_ms)
    else:
        print("no producers", file=sys.stderr)


async def abort(client: Client, parsed: argparse.Namespace) -> int:
    if parsed.topic is not None:
        return await _abort_in_partition(client, parsed, _one_partition(parsed.topic))
    admin = Admin(client)
    outcome = (await admin.describe_transactions([parsed.id]))[parsed.id]
    if isinstance(outcome, ClientError):
        _complain(outcome)
        return FAILED
    if outcome.state in DECIDED:
        raise ClusterError(
            f"transactional id {parsed.id} is {outcome.state}: its coordinator, broker {outcome.coordinator}, "
            f"has begun to {DECIDED[outcome.state]} it\n"
            f"       Wait until it is done; `ottla txn describe {parsed.id}` shows it."
        )
    if outcome.state != ONGOING:
        print(f"nothing to abort: transactional id {parsed.id} has no open transaction", file=sys.stderr)
        return 0
    if not confirmed(parsed, f"Abort the transaction of {parsed.id} and fence its producer?"):
        print("nothing aborted", file=sys.stderr)
        return FAILED
    await admin.fence_producer(parsed.id, timeout_ms=outcome.timeout_ms)
    text = f"{parsed.id} aborted; its producer {outcome.producer_id} (epoch {outcome.producer_epoch}) is fenced"
    say(parsed, text, aborted=True, **tables.described_fields(outcome))
    return 0


async def _abort_in_partition(client: Client, parsed: argparse.Namespace, partition: TopicPartition) -> int:
    admin = Admin(client)
    await existing(admin, {partition.topic: [partition.partition]})
    remembered = (await admin.describe_producers([partition]))[partition]
    candidates = await open_transactions(admin, [(partition, one) for one in remembered])
    chosen = [
        one
        for one in candidates
        if parsed.start_offset in (None, one.producer.txn_start_offset)
        and parsed.producer_id in (None, one.producer.producer_id)
    ]
    if not chosen:
        there = ", ".join(
            f"{one.producer.txn_start_offset} of producer {one.producer.producer_id}" for one in candidates
        )
        raise ClusterError(
            f"partition {partition} has no such open transaction\n"
            f"       {f'Open there: {there}.' if there else 'None is open there.'}"
        )
    (transaction,) = chosen  # A producer has one open transaction, and no two begin at one offset.
    if not transaction.hanging and not parsed.force:
        raise ClusterError(_cared_for(transaction))
    producer = transaction.producer
    what = f"the transaction of producer {producer.producer_id} from offset {producer.txn_start_offset} in {partition}"
    if not confirmed(parsed, f"Abort {what}?"):
        print("nothing aborted", file=sys.stderr)
        return FAILED
    await admin.write_abort_marker(partition, producer)
    say(parsed, f"aborted {what}", aborted=True, **tables.hanging_fields(transaction))
    return 0


def _cared_for(transaction: OpenTransaction) -> str:
    owner = transaction.owner
    assert owner is not None
    return (
        f"the transaction in {transaction.partition} does not hang: it is {owner.state} for transactional id "
        f"{owner.transactional_id}, and broker {owner.coordinator} will end it\n"
        f"       `ottla txn abort {owner.transactional_id}` aborts it in all its partitions; --force in this one alone."
    )


def _complain(error: ClientError) -> None:
    missing = isinstance(error, Declined) and error.error is Error.TRANSACTIONAL_ID_NOT_FOUND
    complain(error, "`ottla txn list` shows what exists." if missing else None)


COMMANDS: Final[dict[str, Command]] = {"list": list_transactions, "describe": describe, "abort": abort}
