"""A data directory written by real Kafka, with what Kafka itself says is in it.

Made once per test run and shared by all its processes: the broker writes the scenario, compacts, is killed, is started
again (so it recovers), tells what it serves, and is stopped cleanly. Kept are copies of the directory as the kill and
as the clean stop left it, and of the compacted partitions as they were before each pass of the cleaner.
"""

import pickle
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from peers import scenario
from peers.broker import KafkaBroker, wait_until
from peers.client import Client, Found, Read
from peers.jars import exclusive

SETTINGS = {
    "log.index.size.max.bytes": "16384",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
}

BATCH_OVERHEAD = 61
TIMES_PER_PARTITION = 60


class Truth(NamedTuple):
    """What Kafka says of one partition."""

    log_start: int
    log_end: int
    last_stable: int
    records: list[Read]
    committed: list[Read]
    by_time: dict[int, Found]
    newest: Found


@dataclass(frozen=True)
class Written:
    """Directories of Kafka's, to be copied before anything writes to them, and the truth by partition directory."""

    clean: Path
    killed: Path
    before_cleaning: Path
    dirty_from: dict[str, int]
    """Where the cleaner's pass over a partition of `before_cleaning` began to be dirty."""
    truth: dict[str, Truth]


def written_by_kafka(jars: Path, shared: Path) -> Written:
    """The directory of this run; made by the process that comes first."""
    home = shared / "written-by-kafka"
    kept = home / "written.pickle"
    with exclusive(shared / "written-by-kafka.lock"):
        if not kept.exists():
            shutil.rmtree(home, ignore_errors=True)
            kept.write_bytes(pickle.dumps(_make(jars, home)))
        written: Written = pickle.loads(kept.read_bytes())
    return written


def _make(jars: Path, home: Path) -> Written:
    broker = KafkaBroker(jars, home / "node", SETTINGS)
    killed, clean, before = home / "killed", home / "clean", home / "before-cleaning"
    before.mkdir(parents=True)
    broker.start()
    try:
        client = Client(broker.bootstrap)
        writer = scenario.Writer(client)
        client.create_topics(scenario.TOPICS, scenario.PARTITIONS)
        for write in scenario.PLAIN:
            write(writer)
        open_transaction = scenario.write_transactions(writer)
        dirty_from = _compact(client, writer, broker.log_dir, before)
        _wait_for_trimming(broker.log_dir)
        broker.kill()
        del open_transaction
        _tear(broker.log_dir / "torn-0")
        _rot(broker.log_dir / "rotten-0")
        shutil.copytree(broker.log_dir, killed)
        broker.start()
        truth = _interrogate(Client(broker.bootstrap))
        broker.stop()
        shutil.copytree(broker.log_dir, clean)
    finally:
        if broker.running:
            broker.kill()
    return Written(clean, killed, before, dirty_from, truth)


def _compact(client: Client, writer: scenario.Writer, log_dir: Path, before: Path) -> dict[str, int]:
    """Keep each partition as it is, let the cleaner at it, wait until it is through."""
    scenario.write_purged_once(writer)
    once = ("compacted", "compacted-transactions")
    for topic in once:
        shutil.copytree(log_dir / f"{topic}-0", before / f"{topic}-0")
    for topic in (*once, "purged"):
        client.alter_topic(topic, {"cleanup.policy": "compact"} | scenario.CLEANABLE)
    _wait_for_cleaner(log_dir, (*once, "purged"))
    client.alter_topic("purged", scenario.UNCLEANABLE)
    dirty_from = cleaner_checkpoint(log_dir)
    scenario.write_purged_again(writer)
    shutil.copytree(log_dir / "purged-0", before / "purged-0")
    if cleaner_checkpoint(log_dir)["purged-0"] != dirty_from["purged-0"]:
        raise AssertionError("the cleaner ran although nothing was dirty enough")
    client.alter_topic("purged", scenario.CLEANABLE)
    _wait_for_cleaner(log_dir, ("purged",))
    return dict.fromkeys((f"{topic}-0" for topic in once), 0) | {"purged-0": dirty_from["purged-0"]}


def _wait_for_trimming(log_dir: Path) -> None:
    """Until the log start offset is on disk and the segments before it are gone: both happen in the background."""
    wait_until(
        lambda: (
            checkpoint(log_dir, "log-start-offset-checkpoint").get("trimmed-0") == scenario.TRIMMED_TO
            and int(segments(log_dir / "trimmed-0")[0].stem) > 0
        ),
        "Kafka has trimmed trimmed-0",
    )


def cleaner_checkpoint(log_dir: Path) -> dict[str, int]:
    """Partition directory to the first offset that was not cleaned."""
    return checkpoint(log_dir, "cleaner-offset-checkpoint")


def checkpoint(log_dir: Path, name: str) -> dict[str, int]:
    """Partition directory to offset, from one of the checkpoint files of a data directory."""
    path = log_dir / name
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in (line.split() for line in lines)}


def segments(partition_directory: Path) -> list[Path]:
    """The `.log` files in the order of their offsets."""
    return sorted(partition_directory.glob("*.log"))


def _wait_for_cleaner(log_dir: Path, topics: Iterable[str]) -> None:
    for topic in topics:
        name = f"{topic}-0"
        active = int(segments(log_dir / name)[-1].stem)
        wait_until(
            lambda name=name, active=active: cleaner_checkpoint(log_dir).get(name, 0) >= active,
            f"Kafka's cleaner has cleaned {name} up to {active}",
        )


def _batch_positions(log: bytes) -> list[int]:
    positions, position = [], 0
    while position + BATCH_OVERHEAD <= len(log):
        positions.append(position)
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return positions


def _tear(directory: Path) -> None:
    """Leave the first half of a batch at the end, as a crash inside a write does."""
    path = segments(directory)[-1]
    log = path.read_bytes()
    last = log[_batch_positions(log)[-1] :]
    next_offset = int.from_bytes(last[:8], "big") + int.from_bytes(last[23:27], "big") + 1
    path.write_bytes(log + next_offset.to_bytes(8, "big") + last[8 : len(last) // 2])


def _rot(directory: Path) -> None:
    """Flip one bit in the records of the last batch but one."""
    path = segments(directory)[-1]
    log = bytearray(path.read_bytes())
    log[_batch_positions(bytes(log))[-2] + BATCH_OVERHEAD + 20] ^= 0x10
    path.write_bytes(log)


def _interrogate(client: Client) -> dict[str, Truth]:
    names = scenario.NAMES
    partitions = [TopicPartition(*each) for each in names]
    starts = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))
    ends = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    stable = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), committed=True)
    newest = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.max_timestamp()))
    records = client.read_all(names)
    committed = client.read_all(names, committed=True)
    by_time = _look_up_times(client, {each: _interesting_times(records[each]) for each in names})
    return {
        f"{topic}-{partition}": Truth(
            starts[each].offset,
            ends[each].offset,
            stable[each].offset,
            records[each],
            committed[each],
            by_time[each],
            newest[each],
        )
        for each in names
        for topic, partition in (each,)
    }


def _interesting_times(records: list[Read]) -> list[int]:
    """Around the timestamps there are, evenly over the log, and outside of them."""
    times = sorted({record.timestamp + distance for record in records for distance in (-1, 0, 1)})
    step = max(1, len(times) // TIMES_PER_PARTITION)
    return [0, *times[::step], *times[-1:]]


def _look_up_times(client: Client, times: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], dict[int, Found]]:
    found: dict[tuple[str, int], dict[int, Found]] = {each: {} for each in times}
    for number in range(max(map(len, times.values()))):
        asked = {each: wanted[number] for each, wanted in times.items() if number < len(wanted)}
        specs = {TopicPartition(*each): OffsetSpec.for_timestamp(timestamp) for each, timestamp in asked.items()}
        for each, answer in client.list_offsets(specs).items():
            found[each][asked[each]] = answer
    return found
