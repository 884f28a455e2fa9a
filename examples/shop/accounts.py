"""The demo's accounts: every event that came in is counted, late or a dead letter, in every sink.

Each figure has a source of its own: what came in is asked of the topics' ends, what was counted of the results, dead
letters of their topic, and late events of the engine.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass
class Windows:
    """The rows that a sink has: each city and minute once."""

    events: int = 0
    minutes: Counter[str] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)
    couriers: dict[str, int] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, row: Mapping[str, Any]) -> None:
        city, minute = row["city"], str(row["minute"])
        if (city, minute) in self._seen:
            self.twice.append(f"{city} {minute}")
        self._seen.add((city, minute))
        self.events += row["orders"] + row["positions"]
        self.minutes[city] += 1
        self.orders[city] += row["orders"]
        self.cents[city] += row["cents"]
        self.couriers[city] = row["couriers"]


class Sink(NamedTuple):
    """What became of the events on the way to one sink."""

    windows: Windows
    late: int


@dataclass(frozen=True)
class Accounts:
    records: int
    """In the topics of orders and couriers."""
    off_duty: int
    """Among them: messages that only say that nothing more comes."""
    dead_letters: int
    sinks: Mapping[str, Sink]

    @property
    def events(self) -> int:
        return self.records - self.off_duty

    def faults(self) -> Iterator[str]:
        """A sentence for everything that does not add up."""
        for name, sink in self.sinks.items():
            found = sink.windows.events + sink.late + self.dead_letters
            if found != self.events:
                what = "missing" if found < self.events else "too many"
                yield (
                    f"{name}: {self.events:,} events came in, but {sink.windows.events:,} counted, {sink.late:,} late "
                    f"and {self.dead_letters:,} dead letters are {found:,}: {abs(found - self.events):,} {what}"
                )
            if sink.windows.twice:
                yield f"{name}: written twice: {', '.join(sink.windows.twice[:5])}"
