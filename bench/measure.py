"""Times work: best of several rounds, alternating with its peers, in wall and CPU seconds."""

import cProfile
import gc
import os
import pstats
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Work = Callable[[], object]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Cost(NamedTuple):
    """Seconds of one call; each the best of all rounds."""

    wall: float
    cpu: float

    def per(self, count: float) -> "Cost":
        return Cost(self.wall / count, self.cpu / count)

    @property
    def wall_us(self) -> float:
        return self.wall * 1e6

    @property
    def cpu_us(self) -> float:
        return self.cpu * 1e6


def timed(work: Work, number: int = 1) -> Cost:
    """One round of `number` calls."""
    calls = range(number)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in calls:
        work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu).per(number)


def lowest(costs: list[Cost]) -> Cost:
    return Cost(min(cost.wall for cost in costs), min(cost.cpu for cost in costs))


def turn_about(works: Mapping[str, Work], rounds: int, round_seconds: float) -> dict[str, Cost]:
    """The best cost of each; every round runs each work with as many calls as fill the round."""
    numbers = {name: max(1, int(round_seconds / max(timed(work).wall, 1e-9))) for name, work in works.items()}
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    gc.collect()
    for _ in range(rounds):
        for name, work in works.items():
            costs[name].append(timed(work, numbers[name]))
    return {name: lowest(found) for name, found in costs.items()}


def profiled(work: Work, *, calls: int, unit: str, lines: int = 14) -> str:
    """Where `calls` units of work spend their time, function by function: own time per unit.

    The profiler itself slows every Python call down, so these are shares to compare, not times to quote.
    """
    profiler = cProfile.Profile()
    profiler.runcall(work)
    found = sorted(pstats.Stats(profiler).stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]
    total = sum(entry[2] for _, entry in found)
    text = [f"{'own time':>10}  share  {'calls':>7}  function (per {unit})"]
    for (path, line, function), (_, count, own, *_) in found[:lines]:
        name = _ADDRESS.sub("", function) + (f"  ({_shown(path)}:{line})" if line else "")
        text.append(f"{own / calls * 1e6:7.2f} µs  {own / total:5.0%}  {count / calls:7.2f}  {name}")
    return "\n".join(text)


def _shown(path: str) -> str:
    """The path without the part that is specific to this machine."""
    parts = Path(path).parts
    return "/".join(parts[parts.index("ottla") :]) if "ottla" in parts else Path(path).name


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # Without the descriptor of the listing.


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
