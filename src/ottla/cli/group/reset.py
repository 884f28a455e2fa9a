"""Sets the committed offsets of a group: plan, show, execute.

Rule 1: nothing changes without --execute. The plan shows what would be committed.
Rule 2: an offset outside of the log becomes the nearest one inside, and the plan says so.
Rule 3: a group with members is refused: they would overwrite the offsets.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from ottla.cli.errors import FAILED, ClusterError, UserError
from ottla.cli.partitions import choice_of, existing
from ottla.cli.plain import json_line
from ottla.cli.remote import complain
from ottla.cli.tables import TableColumn, counted, number, print_table, stdout
from ottla.cli.times import MOMENT_FORMS, moment_ms
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.groups import GroupDescription
from ottla.client.offsets import EARLIEST, LATEST
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error

Offsets = dict[TopicPartition, int]


class Move(NamedTuple):
    """The change of one committed offset."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str = ""

    @property
    def difference(self) -> int | None:
        return None if self.current is None else self.new - self.current


class Bounds(NamedTuple):
    """The first and last offset of a partition's log."""

    start: int
    end: int


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be seen without a cluster."""
    choice_of(parsed.topics, "--topic")
    if parsed.to_time is not None:
        _moment(parsed.to_time, 0)
    if parsed.from_file is not None:
        if parsed.topics or parsed.all_topics:
            raise UserError("--from-file names its partitions itself: leave out --topic and --all-topics")
    elif not parsed.topics and not parsed.all_topics:
        raise UserError("say what to reset: --topic TOPIC, --topic TOPIC:0,2 or --all-topics")


async def reset_offsets(client: Client, parsed: argparse.Namespace) -> int:
    admin = Admin(client)
    group = await _group(admin, parsed.name)
    if parsed.execute and group is not None and group.members:
        raise ClusterError(_occupied(group))
    moves = await _planned(client, admin, parsed)
    if not parsed.execute:
        _print(parsed, moves, applied=False)
        print("dry run: nothing was changed; --execute does it", file=sys.stderr)
        if group is not None and group.members:
            print(f"ottla: it could not be done now: {_occupied(group)}", file=sys.stderr)
        return 0
    outcomes = await admin.commit_offsets(parsed.name, {move.partition: move.new for move in moves})
    failures = [outcome for outcome in outcomes.values() if outcome is not None]
    for failure in failures:
        complain(failure)
    done = [move for move in moves if outcomes[move.partition] is None]
    _print(parsed, done, applied=True)
    print(f"{counted(len(done), 'offset')} of group {parsed.name} set", file=sys.stderr)
    return FAILED if failures else 0


async def _group(admin: Admin, name: str) -> GroupDescription | None:
    """The description of the group; None if it does not exist. Then the commit creates it."""
    outcome = (await admin.describe_groups([name]))[name]
    if not isinstance(outcome, ClientError):
        return outcome
    if isinstance(outcome, Declined) and outcome.error is Error.GROUP_ID_NOT_FOUND:
        return None
    raise outcome


def _occupied(group: GroupDescription) -> str:
    members = counted(len(group.members), "live member")
    where = ", ".join(sorted({f"{member.client_id} at {member.host}" for member in group.members}))
    return (
        f"group {group.group_id} has {members} ({where}), which would commit over what is set here\n"
        "       Stop them first; a member that died leaves when its session times out."
    )


async def _planned(client: Client, admin: Admin, parsed: argparse.Namespace) -> list[Move]:
    outcome = (await admin.committed_offsets([parsed.name]))[parsed.name]
    if isinstance(outcome, ClientError):
        raise outcome
    current = {partition: one.offset for partition, one in outcome.items()}
    from_file = read_offsets(parsed.from_file) if parsed.from_file is not None else {}
    partitions = await _chosen(admin, parsed, current, from_file)
    bounds = await _bounds(admin, partitions)
    wanted = await _targets(client, admin, parsed, current, bounds) if parsed.from_file is None else from_file
    return plan(wanted, current, bounds)


async def _chosen(
    admin: Admin, parsed: argparse.Namespace, current: Iterable[TopicPartition], from_file: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions to reset, all of which exist."""
    choice = choice_of(parsed.topics, "--topic")
    topics = await admin.list_topics() if parsed.all_topics else {}
    for partition in [*from_file, *(one for one in current if one.topic in topics)]:
        numbers = choice.setdefault(partition.topic, [])
        if numbers is not None:
            numbers.append(partition.partition)
    if not choice:
        raise UserError(
            f"group {parsed.name} has committed nothing for topics that exist: name some with --topic TOPIC"
        )
    return sorted(set(await existing(admin, choice)))


async def _bounds(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {partition: Bounds(starts[partition].offset, ends[partition].offset) for partition in partitions}


async def _targets(
    client: Client, admin: Admin, parsed: argparse.Namespace, current: Offsets, bounds: Mapping[TopicPartition, Bounds]
) -> Offsets:
    """The requested offset of each partition, possibly outside of the log."""
    if parsed.to_earliest:
        return {partition: each.start for partition, each in bounds.items()}
    if parsed.to_latest:
        return {partition: each.end for partition, each in bounds.items()}
    if parsed.to_offset is not None:
        return dict.fromkeys(bounds, parsed.to_offset)
    if parsed.to_time is not None:
        moment = _moment(parsed.to_time, client.ports.clock.wall_ms())
        found = await admin.list_offsets(dict.fromkeys(bounds, moment))
        return {one: at.offset if at.offset >= 0 else bounds[one].end for one, at in found.items()}
    unset = [str(partition) for partition in bounds if partition not in current]
    if unset and parsed.shift_by is not None:
        raise UserError(
            f"--shift-by: group {parsed.name} has committed nothing for {', '.join(unset)}; "
            "use --to-earliest, --to-latest, --to-time or --to-offset there"
        )
    return {one: current[one] + (parsed.shift_by or 0) for one in bounds if one in current}


def _moment(text: str, now_ms: int) -> int:
    moment = moment_ms(text, now_ms)
    if moment is None:
        raise UserError(f"--to-time {text!r}: expected {MOMENT_FORMS}")
    return moment


def plan(wanted: Offsets, current: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]) -> list[Move]:
    moves = []
    for partition, offset in sorted(wanted.items()):
        start, end = bounds[partition]
        new = min(max(offset, start), end)
        note = ""
        if offset != new:
            note = f"{offset:,} is {'before the start' if offset < start else 'after the end'} of the log"
        moves.append(Move(partition, current.get(partition), new, note))
    return moves


def read_offsets(name: str) -> Offsets:
    """Offsets by partition, from the output of --json or lines of topic,partition,offset. Raises UserError."""
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            with open(name, encoding="utf-8") as file:
                text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--from-file {name}: {getattr(error, 'strerror', None) or error}") from None
    offsets: Offsets = {}
    for place, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                partition, offset = _file_line(line.strip())
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"--from-file {name}, line {place}: expected topic,partition,offset or an object with topic, "
                    f"partition and new_offset, not {line.strip()[:80]!r}"
                ) from None
            offsets[partition] = offset
    if not offsets:
        raise UserError(f"--from-file {name}: it names no partition")
    return offsets


def _file_line(line: str) -> tuple[TopicPartition, int]:
    if line.startswith("{"):
        fields = json.loads(line)
        topic, partition, offset = fields["topic"], fields["partition"], fields["new_offset"]
    else:
        topic, partition, offset = (part.strip().strip('"') for part in line.split(","))
    if not topic or int(partition) < 0 or int(offset) < 0:
        raise ValueError(line)
    return TopicPartition(topic, int(partition)), int(offset)


def _print(parsed: argparse.Namespace, moves: Sequence[Move], *, applied: bool) -> None:
    if parsed.json:
        for move in moves:
            sys.stdout.write(json_line(_fields(parsed.name, move, applied=applied)))
        return
    noted = any(move.note for move in moves)
    columns = [
        TableColumn("Topic", wraps=True),
        *map(number, ("Partition", "Current", "New", "Difference")),
        *([TableColumn("Note", wraps=True)] if noted else []),
    ]
    rows: list[list[str | Text]] = [
        [
            move.partition.topic,
            str(move.partition.partition),
            "none" if move.current is None else f"{move.current:,}",
            f"{move.new:,}",
            "" if move.difference is None else f"{move.difference:+,}" if move.difference else "0",
            *([move.note] if noted else []),
        ]
        for move in moves
    ]
    print_table(stdout(), columns, rows)


def _fields(group: str, move: Move, *, applied: bool) -> dict[str, Any]:
    return {
        "group": group,
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "current_offset": move.current,
        "new_offset": move.new,
        "difference": move.difference,
        "note": move.note or None,
        "applied": applied,
    }
