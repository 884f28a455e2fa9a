"""Plant mutants that nobody has seen before, and count those that no test finds.

`python tests/sim/hunt.py --seed N --count 20` draws mutants (`drawn_mutants.py`), runs for each the unit tests of its
area and then some seeds of the simulator, and lists the ones that survive. Those are judged: a test is missing, a
checker is blind, or the change changes nothing that can be seen.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drawn_mutants import AREAS, Drawn, draw, install, mutants_of

ROOT = Path(__file__).parents[2]
UNIT = "tests/unit"
TESTS = {
    "core.fetch_sessions": [f"{UNIT}/core/test_core_fetch_sessions.py"],
    "core.groups": [f"{UNIT}/core/groups", f"{UNIT}/broker"],
    "core.transactions": [f"{UNIT}/core/transactions", f"{UNIT}/broker/coordinators"],
    "core.log": [f"{UNIT}/core", f"{UNIT}/storage"],
    "core.metadata": [f"{UNIT}/core/metadata", f"{UNIT}/broker"],
    "core": [f"{UNIT}/core", f"{UNIT}/broker"],
    "broker": [f"{UNIT}/broker", f"{UNIT}/cli"],
    "storage": [f"{UNIT}/storage", f"{UNIT}/broker"],
    "rpc": [f"{UNIT}/rpc", f"{UNIT}/client"],
    "client": [f"{UNIT}/client", f"{UNIT}/cli"],
}
"""The tests of an area, by the longest beginning of the module's name that is here."""
SEEDS = {"log": range(60), "node": range(80, 110)}
ON_DISK = ("core.log", "storage")
"""What the log's world can tell about."""
CPU_SECONDS_MAX = 240
"""A mutant that takes more goes round in circles: found."""
PATIENCE_S = 1800.0
"""A mutant that waits longer waits for ever: found."""


def main() -> int:
    options = _parser().parse_args()
    if options.play:
        return _play(options.play, options.world)
    if options.test:
        return _test(options.test)
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"mutants of seed {seed}: python tests/sim/hunt.py --seed {seed} --count {options.count}", flush=True)
    found: Counter[str] = Counter()
    survivors = []
    mutants = draw(seed, options.count, options.areas.split(","))[options.skip :]
    with ThreadPoolExecutor(options.processes) as hunters:
        for drawn, by in zip(mutants, hunters.map(hunt, mutants), strict=True):
            found[by or "nobody"] += 1
            print(f"{f'found by {by}' if by else 'SURVIVED':<24} {drawn}", flush=True)
            if not by:
                survivors.append(drawn)
    print(f"{len(mutants)} drawn: {', '.join(f'{count} found by {by}' for by, count in found.most_common())}")
    for drawn in survivors:
        print(f"  survived: {drawn}")
    return 1 if survivors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="draw these; from the clock by default")
    parser.add_argument("--count", type=int, default=20, help="how many")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of them, which were hunted before")
    parser.add_argument("--areas", default=",".join(AREAS), help="of which packages")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="hunt so many at a time")
    parser.add_argument("--test", metavar="MODULE:NUMBER", help="run the unit tests with one mutant")
    parser.add_argument("--play", metavar="MODULE:NUMBER", help="play seeds with one mutant")
    parser.add_argument("--world", default="node", help="with --play")
    return parser


def hunt(drawn: Drawn) -> str:
    """What found it; nothing if it survives."""
    place = f"{drawn.module}:{drawn.number}"
    worlds = ["log", "node"] if drawn.module.removeprefix("ottla.").startswith(ON_DISK) else ["node"]
    ways = {"unit tests": ["--test", place]}
    ways |= {f"{world} seeds": ["--play", place, "--world", world] for world in worlds}
    for by, arguments in ways.items():
        command = [sys.executable, __file__, *arguments]
        try:
            ended = subprocess.run(
                command, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=False, preexec_fn=_limit_cpu
            )
        except subprocess.TimeoutExpired:
            return f"{by} (no end)"
        if ended.returncode:
            return by
    return ""


def _limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))


def _planted(place: str) -> Drawn:
    module, _, number = place.partition(":")
    drawn = mutants_of(module)[int(number)]
    install(drawn)
    return drawn


def _test(place: str) -> int:
    drawn = _planted(place)
    import pytest

    name = drawn.module.removeprefix("ottla.")
    beginning = max((one for one in TESTS if name.startswith(one)), key=len)
    return int(
        pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *_nearest_first(drawn.module, TESTS[beginning])])
    )


def _nearest_first(module: str, places: list[str]) -> list[str]:
    """The test files of these places; those that import the module come before the others."""
    files = [file for place in places for file in sorted(_test_files(ROOT / place))]
    return [str(file) for file in sorted(files, key=lambda file: module not in file.read_text())]


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else list(place.rglob("test_*.py"))


def _play(place: str, world: str) -> int:
    _planted(place)
    from ottla.sim.worlds import WORLDS

    return int(any(WORLDS[world](seed).failure is not None for seed in SEEDS[world]))


if __name__ == "__main__":
    sys.exit(main())
