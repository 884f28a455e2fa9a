"""The loads of the broker's benchmark, and the aim of each."""

from dataclasses import dataclass
from typing import Any

from bench.bare import Mode
from bench.load import BATCH_16K, BATCH_128K, ONE_RECORD, Job
from ottla.kernel import IMPLEMENTATION

SHORT_BACK_OFF: dict[str, Any] = {"fetch.queue.backoff.ms": 10}
"""By default librdkafka fetches nothing for a second once 100,000 records are queued, which the application takes in a
twentieth of that: the load would measure the pauses. Without any back-off it would poll its full queue on a core that
the application needs."""

THROUGHPUT_AIM = 1.0
BARE_AIM = 3.0
LATENCY_AIM = 1.0
LOAD_FOR_LATENCY = 0.5
"""As a share of Kafka's maximum."""
_CATCH_UP = "catch-up"
_PACED_CONNECTIONS = 50


@dataclass
class Load:
    name: str
    job: Job
    cpu_aim: float = 1.0
    """The aim for the broker's CPU as a ratio of Kafka's, with the native kernel; the aim of the reference is 1."""

    @property
    def bare(self) -> Mode | None:
        """The bare limit to compare with; loads of small records and of single ones have none."""
        if self.job["value_bytes"] != 1000 or self.job["kind"] == "produce paced":
            return None
        return "send" if reads(self.job) else "receive"

    @property
    def times_the_rounds(self) -> int:
        """How many times the usual rounds. Reading costs a broker so little that scheduling of the client dominates the
        variation. Writers have slow rounds when the system requests memory from the host of a virtual machine.
        Latencies suffer from single pauses of the machine."""
        times = {"consume": 8, "read bytes": 3, "produce": 2, "produce from many": 3, "produce paced": 2}
        return times.get(self.job["kind"], 1)

    @property
    def is_the_clients(self) -> bool:
        """Whether its time is limited by a client that cannot keep up with either broker."""
        return self.job["kind"] == "consume"

    def __post_init__(self) -> None:
        if IMPLEMENTATION == "reference":
            self.cpu_aim = 1.0


def throughput_loads(scale: float) -> list[Load]:
    """`scale` is 1 for the whole benchmark."""

    def produce(
        name: str, records: int, value_bytes: int, client: dict[str, Any], cpu_aim: float, *, mixed: bool = False
    ) -> Load:
        job = Job(kind="produce", records=int(records * scale), value_bytes=value_bytes, client=client, mixed=mixed)
        return Load(name, job, cpu_aim)

    def from_many(name: str, records: int, connections: int) -> Load:
        job = Job(kind="produce from many", records=int(records * scale), value_bytes=100, records_per_batch=10)
        return Load(name, job | {"connections": connections})

    def catch_up(name: str, records: int, value_bytes: int, kind: str = "consume") -> Load:
        topic = f"{_CATCH_UP}-{value_bytes}"
        job = Job(kind=kind, topic=topic, keep=True, records=int(records * scale), value_bytes=value_bytes)
        return Load(name, job | {"client": SHORT_BACK_OFF}, 0.7)

    return [
        produce("produce 100 B, 16 KiB batches", 600_000, 100, BATCH_16K, 0.45),
        produce("produce 50 to 150 B, 16 KiB batches", 600_000, 100, BATCH_16K, 0.45, mixed=True),
        produce("produce 1,000 B, 16 KiB batches", 200_000, 1000, BATCH_16K, 0.45),
        produce("produce 1,000 B, 128 KiB batches", 200_000, 1000, BATCH_128K, 0.6),
        produce("produce 100 B, one record per batch", 50_000, 100, ONE_RECORD, 0.5),
        from_many("produce 10 x 100 B, 1 connection", 40_000, 1),
        from_many("produce 10 x 100 B, 100 connections", 200_000, 100),
        catch_up("consume 100 B, catch-up", 1_000_000, 100),
        catch_up("consume 1,000 B, catch-up", 600_000, 1000),
        catch_up("read 1,000 B, catch-up, bytes only", 600_000, 1000, kind="read bytes"),
    ]


def tail_loads(scale: float) -> list[Load]:
    def tail(name: str, per_s: int, readers: int, cpu_aim: float) -> Load:
        seconds = max(4 * scale, 0.1)
        return Load(name, Job(kind="tail", value_bytes=100, connections=readers, per_s=per_s, seconds=seconds), cpu_aim)

    return [tail("1,000 records/s, 1 reader", 1000, 1, 1.0), tail("50 records/s, 100 readers", 50, 100, 0.8)]


def most_possible(scale: float) -> Load:
    """Like `paced`, but as fast as responses come: determines the pace."""
    records = max(int(320_000 * scale), 16 * _PACED_CONNECTIONS)
    job = Job(kind="produce from many", records=records, value_bytes=1000, records_per_batch=16)
    return Load("produce 16 x 1,000 B, 50 connections", job | {"connections": _PACED_CONNECTIONS})


def paced(scale: float, per_s: float) -> Load:
    job = Job(kind="produce paced", value_bytes=1000, records_per_batch=16, connections=_PACED_CONNECTIONS)
    return Load("produce 16 x 1,000 B, half load", job | {"per_s": per_s, "seconds": max(6 * scale, 0.1)})


def filling(job: Job) -> Job:
    """The job that writes the records a load reads."""
    return job | {"kind": "produce", "client": BATCH_16K}


def reads(job: Job) -> bool:
    return job["kind"] in ("consume", "read bytes")
