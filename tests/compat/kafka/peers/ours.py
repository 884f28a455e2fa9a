"""Ottla's side of a comparison: a node's logs in a data directory, and what they serve to a consumer."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.config import Config
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import BatchHeader, ControlType, read_end_txn_marker, read_records, scan
from ottla.storage.cleaner import Cleaned
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from peers import scenario
from peers.broker import CLUSTER_ID
from peers.client import Read
from peers.written import SETTINGS


def config_of(topic: str, overrides: Mapping[str, str] | None = None) -> Config:
    """The settings that a topic of the scenario has in Kafka, once it is compacted."""
    compaction = {"cleanup.policy": "compact"} | scenario.CLEANABLE if topic in scenario.COMPACTED else {}
    return Config.of(scenario.TOPICS.get(topic, {}) | compaction | dict(overrides or {}), broker=SETTINGS)


class OttlaNode:
    """The logs of a node that is alone in the world, so that everything written counts as replicated."""

    def __init__(self, data: Path, configs: Callable[[str], Config] = config_of) -> None:
        self.store = LogStore(LocalDisk(), SystemClock(), random.Random(1))
        asyncio.run(self.store.open([str(data)], CLUSTER_ID, 1, configs))
        self.commit()

    def log(self, name: str) -> PartitionLog:
        topic, _, partition = name.rpartition("-")
        return self.store.get(topic, int(partition))

    def commit(self) -> None:
        for log in self.store.logs.values():
            log.state.advance_high_watermark(log.state.end_offset)

    def clean(self) -> list[Cleaned]:
        """Let the cleaner work until nothing is dirty."""
        upkeep = Upkeep(self.store)
        done = []
        while (cleaned := asyncio.run(upkeep.clean())) is not None:
            done.append(cleaned)
        return done

    def retain(self) -> int:
        return asyncio.run(Upkeep(self.store).retain())

    def stop(self) -> None:
        """As an operator stops it: everything synced and marked as clean."""
        self.commit()
        asyncio.run(self.store.close())

    def kill(self) -> None:
        """As a crash ends it: the files stay as they are."""
        for directory in self.store.directories:
            directory.close(clean=False)


@contextmanager
def running_ottla(data: Path, configs: Callable[[str], Config] = config_of) -> Iterator[OttlaNode]:
    """A node on a data directory, stopped at the end of the block."""
    node = OttlaNode(data, configs)
    try:
        yield node
    except BaseException:
        node.kill()
        raise
    node.stop()


def batches(log: PartitionLog, upper_offset: int, max_bytes: int = 3000) -> Iterator[tuple[BatchHeader, bytes]]:
    """What fetches from the log start on return, one after the other."""
    offset = log.state.log_start_offset
    while offset < upper_offset:
        data = log.read(offset, max_bytes, upper_offset).read()
        scanned = scan(data)
        if not scanned.headers:
            assert not data, f"{log.name}: a fetch at {offset} brought {len(data)} bytes and no batch"
            return
        position = 0
        for header in scanned.headers:
            yield header, data[position : position + header.size]
            position += header.size
            offset = header.next_offset


def served(log: PartitionLog) -> list[Read]:
    """All records, as a consumer at read_uncommitted gets them."""
    return [
        Read(*record)
        for header, batch in batches(log, log.state.high_watermark)
        if not header.is_control
        for record in read_records(batch, header)
        if record.offset >= log.state.log_start_offset
    ]


def served_committed(log: PartitionLog) -> list[Read]:
    """The records that a consumer at read_committed gets: it drops what the list of aborted transactions tells it."""
    stable = log.state.last_stable_offset
    aborted = sorted(log.aborted_transactions(log.state.log_start_offset, stable), key=lambda txn: txn.first_offset)
    undone: set[int] = set()
    records = []
    for header, batch in batches(log, stable):
        while aborted and aborted[0].first_offset <= header.last_offset:
            undone.add(aborted.pop(0).producer_id)
        if header.is_control:
            if header.count and read_end_txn_marker(batch).control_type is ControlType.ABORT:
                undone.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in undone):
            records += [
                Read(*record) for record in read_records(batch, header) if record.offset >= log.state.log_start_offset
            ]
    return records
