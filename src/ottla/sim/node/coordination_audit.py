"""The final audit: transactions are complete or absent, groups are at their offsets, everything was done exactly once.

Rule 1: no transaction stays open: every log becomes stable, and then every transaction in it has its marker.
Rule 2: a record missing at read_committed counts only if nothing else may have removed it.
Rule 3: if no power was lost before a sync, a group's output has exactly one record for each input record before its
        offset (I12).
"""

from collections import Counter

from ottla.rpc.errors import ClientError
from ottla.sim.node.group_offsets import INPUT, Hindered, fetch_offsets
from ottla.sim.node.ledger import Key, name_of
from ottla.sim.node.readers import Damaged, read_all
from ottla.sim.node.scene import Line, Scene
from ottla.sim.node.workers import OUTPUT
from ottla.sim.played import Violation
from ottla.sim.records import DecodedRecord


async def audit_coordination(scene: Scene, line: Line) -> None:
    """Read all topics and group offsets, and check them against the histories of transactions and groups. It retries
    until it succeeds; the caller limits the time."""
    committed = {key: await _read_stable(line, key) for key in scene.all_keys()}
    offsets = {group: await _offsets(scene, line, group) for group in scene.workers}
    check_transactions(scene, committed)
    for group, positions in offsets.items() if not scene.has_lost else ():
        check_exactly_once(scene, group, positions, committed)


async def _read_stable(line: Line, key: Key) -> dict[int, DecodedRecord]:
    while True:
        try:
            unmarked: dict[int, int] = {}
            found, _, stable = await read_all(line, key, committed=True)
            # This second read comes later, so it contains a marker that was written between the two.
            _, _, end = await read_all(line, key, unmarked=unmarked)
            if stable >= end:
                check_marked(key, unmarked)
                return found
        except (ClientError, Damaged) as error:
            line.scene.note(f"audit: {error}")
        await line.scene.pause(0.5)


async def _offsets(scene: Scene, line: Line, group: str) -> dict[Key, int]:
    topic = scene.topics[INPUT]
    while True:
        try:
            return await fetch_offsets(line, group, [(topic.topic_id, index) for index in range(topic.partitions)])
        except (ClientError, Hindered) as error:
            scene.note(f"audit: {error}")
        await scene.pause(0.5)


def check_marked(key: Key, unmarked: dict[int, int]) -> None:
    """Check that in a stable log every transaction with data has its marker (I20)."""
    for producer_id, offset in unmarked.items():
        raise Violation("I20", f"{name_of(key)}: nothing tells how the transaction of {producer_id} at {offset} ended")


def check_transactions(scene: Scene, committed: dict[Key, dict[int, DecodedRecord]]) -> None:
    visible = [scene.ledger.id_of(record) for found in committed.values() for record in found.values()]
    seen = set(visible)
    missing = []
    for transaction in scene.transactions.all:
        for sent in transaction.writes:
            history = scene.ledger.partition(sent.where)
            kept = history.plan.retention_ms < 0 and not history.plan.compacts and sent.where in committed
            if kept and sent.offset is not None and sent.offset >= history.start_asked and sent.id not in seen:
                missing.append(sent.id)
    scene.transactions.audited(visible, missing)


def check_exactly_once(
    scene: Scene, group: str, positions: dict[Key, int], committed: dict[Key, dict[int, DecodedRecord]]
) -> None:
    """Check the output of a group against its input (I12). Only groups that transform records have an output."""
    if not group.endswith("transformers"):
        return
    topic = scene.topics[OUTPUT]
    outputs = [committed[topic.topic_id, index] for index in range(topic.partitions)]
    written: Counter[tuple[Key, int]] = Counter()
    for record in (record for found in outputs for record in found.values()):
        source = scene.sources.get(scene.ledger.id_of(record))
        if source is not None and source[0] == group:
            written[source[1:]] += 1
    wanted = {(key, offset) for key, end in positions.items() for offset in committed[key] if offset < end}
    for (key, offset), times in written.items():
        if (key, offset) not in wanted:
            raise Violation("I12", f"{group} wrote for {name_of(key)} {offset}, but is at {positions.get(key)}")
        if times > 1:
            raise Violation("I12", f"{group} wrote {times} times for {name_of(key)} {offset}")
    lacking = sorted(wanted - written.keys())
    if lacking:
        raise Violation("I12", f"{group} never wrote for {name_of(lacking[0][0])} {lacking[0][1]}")
