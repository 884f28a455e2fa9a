"""`python -m ottla.sim.play`: run fresh seeds on all cores, and shrink those that fail.

The range is drawn from the clock, and printed: `--first` runs it again.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from queue import Empty
from typing import NamedTuple

from ottla.sim.shrinking import shrink
from ottla.sim.worlds import WORLDS, WorldSpec, kind_of

_SHRUNK_MAX = 6
"""Failures shrunk per run; more of one kind tell little."""
_SHRINKING_S = 90.0
_PATIENCE_S = 10.0
"""After this long without a result the processes are checked."""


class Played(NamedTuple):
    world: str
    seed: int
    seconds: float
    """Of virtual time."""
    losses: int
    kind: str = ""
    """Of its failure."""
    failure: str = ""


@dataclass
class Score:
    seeds: int = 0
    seconds: float = 0.0
    losses: int = 0
    failed: list[Played] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    first = int(time.time() * 100) if options.first is None else options.first
    worlds = [WORLDS[name] for name in options.worlds.split(",")]
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    if not options.minutes and not options.seeds:
        raise SystemExit("say when to end: --minutes M, or --seeds N")
    print(f"seeds from {first} on, of {', '.join(world.name for world in worlds)}, in {options.processes} processes")
    began = time.monotonic()
    scores = _play_all(worlds, first, options.seeds, until, options.processes)
    wall_s = time.monotonic() - began
    for name, score in scores.items():
        print(_summary(name, first, score))
    simulated_s = sum(score.seconds for score in scores.values())
    print(f"{simulated_s / wall_s:.0f} simulated hours per wall hour ({wall_s:.0f} s)")
    return _report([one for score in scores.values() for one in score.failed])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim.play", description=__doc__)
    parser.add_argument("--worlds", default=",".join(WORLDS), metavar="A,B", help="which of them; all by default")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="how many of each world; 0: until time is up")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="M", help="for how long at most; 0: no limit")
    parser.add_argument("--first", type=int, metavar="N", help="the first seed; drawn from the clock by default")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="one a core by default")
    return parser


# Playing.


def _play_all(worlds: list[WorldSpec], first: int, seeds: int, until: float, processes: int) -> dict[str, Score]:
    context = multiprocessing.get_context("spawn")
    reports: Queue[Played | None] = context.Queue()
    names = [world.name for world in worlds]
    players = [
        context.Process(target=_play, args=(names, first + number, seeds - number, processes, until, reports))
        for number in range(processes)
    ]
    for player in players:
        player.start()
    scores = {name: Score() for name in names}
    playing = processes
    while playing:
        try:
            played = reports.get(timeout=_PATIENCE_S)
        except Empty:
            _check_alive(players)
            continue
        if played is None:
            playing -= 1
            continue
        score = scores[played.world]
        score.seeds += 1
        score.seconds += played.seconds
        score.losses += played.losses
        if played.failure:
            score.failed.append(played)
            print(f"{played.world} seed {played.seed} failed: {played.failure}", flush=True)
            print(f"  replay: {WORLDS[played.world].replay_command(played.seed)}", flush=True)
    for player in players:
        player.join()
    _check_alive(players)
    return scores


def _check_alive(players: Sequence[BaseProcess]) -> None:
    """A process that died has not run its seeds: that is no success."""
    if died := [player for player in players if player.exitcode]:
        for player in players:
            player.terminate()
        raise SystemExit(f"{died[0].name} ended with code {died[0].exitcode} before it had played its seeds")


def _play(names: list[str], first: int, seeds: int, step: int, until: float, reports: "Queue[Played | None]") -> None:
    """One process: every `step`-th seed. Worlds share its time, not its seeds, because seeds of one take longer."""
    spent = dict.fromkeys(names, 0.0)
    left: dict[str, Iterator[int]] = {
        name: iter(range(first, first + seeds, step) if seeds > 0 else range(first, sys.maxsize, step))
        for name in names
    }
    try:
        while left and time.monotonic() < until:
            name = min(left, key=spent.__getitem__)
            seed = next(left[name], None)
            if seed is None:
                del left[name]
                continue
            began = time.monotonic()
            reports.put(play_one(WORLDS[name], seed))
            spent[name] += time.monotonic() - began
    finally:
        reports.put(None)


def play_one(world: WorldSpec, seed: int) -> Played:
    outcome = world(seed)
    failure = outcome.failure
    played = Played(world.name, seed, outcome.seconds, outcome.losses)
    return played if failure is None else played._replace(kind=kind_of(failure), failure=_text_of(failure))


def _text_of(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"


# Reporting.


def _summary(name: str, first: int, score: Score) -> str:
    return (
        f"{name}: {score.seeds} seeds from {first} on, {score.losses} power losses, "
        f"{score.seconds / 3600:.1f} hours, {len(score.failed)} failed"
    )


def _report(failed: list[Played]) -> int:
    """Shrink failed seeds and print them, first one of each kind of failure."""
    kinds: dict[tuple[str, str], list[Played]] = {}
    for one in failed:
        kinds.setdefault((one.world, one.kind), []).append(one)
    in_turn = [alike[0] for alike in kinds.values()] + [one for alike in kinds.values() for one in alike[1:]]
    for one in in_turn[:_SHRUNK_MAX]:
        world = WORLDS[one.world]
        failure = world(one.seed).failure
        if failure is None:
            print(f"{one.world} seed {one.seed} does not fail again: it is not deterministic")
            continue
        shrunk = shrink(world, one.seed, failure, seconds=_SHRINKING_S)
        print(
            f"\n{one.world} seed {one.seed}, as small as {shrunk.runs} runs could make it: {_text_of(shrunk.failure)}"
        )
        print(f"  {shrunk.swarm}")
        print(f"  replay: {world.replay_command(one.seed, shrunk.variation)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
