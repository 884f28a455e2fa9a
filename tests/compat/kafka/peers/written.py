"""A data directory written by real Kafka, with what Kafka itself says is in it.

Made once per test run and shared by all its processes: the broker writes the scenario, compacts, is killed, is started
again (so it recovers), tells what it serves, and is stopped cleanly. Kept are copies of the directory as the kill and
as the clean stop left it, and of the compacted partitions before and after each pass of the cleaner.
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


class CleanerPass(NamedTuple):
    """One pass of Kafka's cleaner over one partition."""

    topic: str
    number: int
    before: Path
    after: Path
    """The partition at a later time: compare what lies below `end` only."""
    start: int
    """Where the dirty part began."""
    end: int
    """The first offset that was not cleaned."""


@dataclass(frozen=True)
class Written:
    """Directories of Kafka's, to be copied before anything writes to them, and the truth by partition directory."""

    clean: Path
    killed: Path
    passes: list[CleanerPass]
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
    killed, clean = home / "killed", home / "clean"
    broker.start()
    try:
        client = Client(broker.bootstrap)
        writer = scenario.Writer(client)
        client.create_topics(scenario.TOPICS, scenario.PARTITIONS)
        for write in scenario.PLAIN:
            write(writer)
        open_transaction = scenario.write_transactions(writer)
        compaction = _Compaction(client, writer, broker.log_dir, home)
        compaction.run()
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
    return Written(clean, killed, compaction.passes(clean), truth)


class _Compaction:
    """Lets the cleaner at the compacted topics when they are written and not before, and keeps what it starts from."""

    def __init__(self, client: Client, writer: scenario.Writer, log_dir: Path, home: Path) -> None:
        self._client = client
        self._writer = writer
        self._log_dir = log_dir
        self._home = home
        self._checkpoints: list[dict[str, int]] = [{}]

    def run(self) -> None:
        again = scenario.CleanedAgain(self._writer)
        again.write(0)
        self._clean(scenario.COMPACTED)
        for number in range(1, scenario.PASSES):
            for topic in scenario.CLEANED_AGAIN:
                self._client.alter_topic(topic, scenario.UNCLEANABLE)
            again.write(number)
            self._clean(scenario.CLEANED_AGAIN)

    def passes(self, final: Path) -> list[CleanerPass]:
        found = []
        for topic in scenario.COMPACTED:
            name = f"{topic}-0"
            last = scenario.PASSES - 1 if topic in scenario.CLEANED_AGAIN else 0
            for number in range(last + 1):
                after = final if number == last else self._before(number + 1)
                start, end = (self._checkpoints[index].get(name, 0) for index in (number, number + 1))
                found.append(CleanerPass(topic, number, self._before(number) / name, after / name, start, end))
        return found

    def _before(self, number: int) -> Path:
        return self._home / f"before-cleaning-{number}"

    def _clean(self, topics: Iterable[str]) -> None:
        self._wait_for_markers(topics)
        before = self._before(len(self._checkpoints) - 1)
        for topic in topics:
            shutil.copytree(self._log_dir / f"{topic}-0", before / f"{topic}-0")
        checkpoint_now = cleaner_checkpoint(self._log_dir)
        if checkpoint_now != self._checkpoints[-1]:
            raise AssertionError(f"the cleaner was not to run: {self._checkpoints[-1]} became {checkpoint_now}")
        for topic in topics:
            self._client.alter_topic(topic, {"cleanup.policy": "compact"} | scenario.CLEANABLE)
        _wait_for_cleaner(self._log_dir, topics)
        self._checkpoints.append(cleaner_checkpoint(self._log_dir))

    def _wait_for_markers(self, topics: Iterable[str]) -> None:
        """A commit returns before its markers are in the logs, and the cleaner stops at what is undecided."""
        latest = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics}
        wait_until(
            lambda: self._client.list_offsets(latest) == self._client.list_offsets(latest, committed=True),
            "all transactions of the compacted topics have ended",
        )


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
