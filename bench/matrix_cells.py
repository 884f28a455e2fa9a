"""The cells of the matrix of loads: every combination of a few values per dimension, and samples of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from random import Random
from typing import Any, Generic, TypeVar

C = TypeVar("C")


@dataclass(frozen=True)
class Produce:
    client: str
    """java: Kafka's ProducerPerformance; librdkafka; frames: a client that sends the same request again and again."""
    places: str
    """Topics x partitions."""
    records: str
    batching: str
    acks: str
    codec: str
    producers: int

    @property
    def topics(self) -> int:
        return int(self.places.partition("x")[0])

    @property
    def partitions(self) -> int:
        """Of each topic."""
        return int(self.places.partition("x")[2])

    @property
    def is_possible(self) -> bool:
        """Kafka's tool writes to one topic, and twenty JVMs do not fit beside two brokers. The client of frames has
        neither sequences nor codecs."""
        if self.client == "java":
            return self.topics == 1 and self.producers <= 4
        return self.client != "frames" or (self.acks != "idempotent" and self.codec == "none")

    @property
    def cpu_aim(self) -> float:
        return 0.6 if self.batching == "128 KiB" else 0.5

    def __str__(self) -> str:
        parts = [self.client, f"{self.places} partitions", self.records, self.batching, self.acks, self.codec]
        return ", ".join([*parts, f"{self.producers} producer{'s'[: self.producers > 1]}"])


@dataclass(frozen=True)
class Consume:
    partitions: int
    assignment: str
    """group: by a coordinator; assigned: by hand."""
    way: str
    """catch-up: from the beginning; tail: what is written meanwhile, at a fixed rate."""
    consumers: int

    is_possible = True
    cpu_aim = 0.7

    def __str__(self) -> str:
        parts = [f"{self.partitions} partition{'s'[: self.partitions > 1]}", self.assignment, self.way]
        return ", ".join([*parts, f"{self.consumers} consumer{'s'[: self.consumers > 1]}"])


class Dimensions(Generic[C]):
    """The values of each field of a cell."""

    def __init__(self, cell: type[C], **values: Sequence[Any]) -> None:
        self._cell = cell
        self._values: Mapping[str, Sequence[Any]] = values

    def every(self) -> list[C]:
        found = (self._cell(*chosen) for chosen in product(*self._values.values()))
        return [cell for cell in found if cell.is_possible]  # type: ignore[attr-defined]

    def sample(self, random: Random) -> list[C]:
        """Cells in which every two values of two dimensions meet, if they can: few, and no pair is left out."""
        cells = self.every()
        random.shuffle(cells)
        missing = {pair for cell in cells for pair in _pairs(cell)}
        chosen = []
        while missing:
            best = max(cells, key=lambda cell: sum(pair in missing for pair in _pairs(cell)))
            chosen.append(best)
            missing.difference_update(_pairs(best))
        return chosen


def _pairs(cell: Any) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    return combinations(asdict(cell).items(), 2)


PRODUCE = Dimensions(
    Produce,
    client=("java", "librdkafka", "frames"),
    places=("1x1", "1x6", "1x50", "2x3"),
    records=("100 B", "1,000 B", "mixed"),
    batching=("default", "one record", "128 KiB"),
    acks=("1", "all", "idempotent"),
    codec=("none", "lz4", "zstd"),
    producers=(1, 4, 20),
)
CONSUME = Dimensions(
    Consume,
    partitions=(1, 6, 50),
    assignment=("group", "assigned"),
    way=("catch-up", "tail"),
    consumers=(1, 10),
)
