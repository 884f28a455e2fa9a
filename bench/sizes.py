"""The amount of work of each part."""

from dataclasses import dataclass

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Sizes:
    rounds: int
    round_seconds: float
    """A round repeats short work for this long."""
    codec_partitions: tuple[int, ...]
    append_bytes: int
    """Bytes appended in a round."""
    append_batches_max: int
    """A limit of batches per round: small batches would take long to fill the bytes."""
    random_reads: int
    recovery_bytes: tuple[int, ...]
    closed_segments: tuple[int, ...]
    partitions: int
    lookup_segments: tuple[int, ...]
    lookups: int
    broker_scale: float
    """1 is some hundred thousand records a load, and four seconds of tailing."""
    broker_rounds: int
    starts: int
    against_kafka: bool
    """False: against a second Ottla, which starts at once."""
    growth_partitions: tuple[int, ...]
    growth_connections: tuple[int, ...]
    growth_gib: tuple[int, ...]
    growth_groups: tuple[int, ...]
    growth_requests: int
    """Requests per figure; one figure uses all partitions or connections in turn, at least once each."""
    growth_idle_s: float
    """How long an idle node is measured."""
    coordinator_members: tuple[int, ...]
    coordinator_offsets: int
    """Committed before a start."""
    sweep_bytes: tuple[int, ...]
    """Of requests that hold as much as fits."""
    load: str = ""
    """Only loads with this text in their names, for parts that support it."""


FULL = Sizes(
    rounds=7,
    round_seconds=0.02,
    codec_partitions=(1, 10, 1000),
    append_bytes=32 * MiB,
    append_batches_max=10_000,
    random_reads=2000,
    recovery_bytes=(64 * MiB, 256 * MiB, 1 * GiB),
    closed_segments=(10, 100, 1000),
    partitions=1000,
    lookup_segments=(10, 1000, 100_000),
    lookups=2000,
    broker_scale=1.0,
    broker_rounds=5,
    starts=3,
    against_kafka=True,
    growth_partitions=(1, 1000, 10_000),
    growth_connections=(1, 100, 2000),
    growth_gib=(1, 10, 50),
    growth_groups=(1, 100, 1000),
    growth_requests=2000,
    growth_idle_s=5.5,
    coordinator_members=(3, 50, 300),
    coordinator_offsets=100_000,
    sweep_bytes=(1 * MiB, 8 * MiB),
)

TINY = Sizes(
    rounds=1,
    round_seconds=0.0,
    codec_partitions=(10,),
    append_bytes=64 * KiB,
    append_batches_max=20,
    random_reads=5,
    recovery_bytes=(64 * KiB, 128 * KiB),
    closed_segments=(1, 3),
    partitions=3,
    lookup_segments=(2, 5),
    lookups=5,
    broker_scale=0.002,
    broker_rounds=1,
    starts=1,
    against_kafka=False,
    growth_partitions=(1, 3),
    growth_connections=(1, 3),
    growth_gib=(1, 2),
    growth_groups=(1, 3),
    growth_requests=5,
    growth_idle_s=0.1,
    coordinator_members=(3,),
    coordinator_offsets=300,
    sweep_bytes=(64 * KiB,),
)
