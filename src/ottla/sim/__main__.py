"""`python -m ottla.sim`: run seeds, replay one, or crash one script at every disk step.

There are two worlds: `log`, one log on a faulty disk, and `node`, a whole node with its clients on a faulty network.
`python -m ottla.sim.play` runs fresh seeds.
"""

import argparse
import sys
import time
import traceback

from ottla.sim.log.crash_points import CrashPoint, Report, run_crash_points
from ottla.sim.play import play_one
from ottla.sim.played import Variation
from ottla.sim.worlds import WORLDS, WorldSpec


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.crash_points:
        return _crash_points(options.seed or 0)
    if options.seeds is not None:
        return _range(WORLDS[options.world], options.seeds)
    without = tuple(options.without.split(",")) if options.without else ()
    return _replay(WORLDS[options.world], options.seed or 0, Variation(without, options.salt), trace=options.trace)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    parser.add_argument("world", nargs="?", choices=list(WORLDS), default="log", help="what is played; log by default")
    parser.add_argument("--seed", type=int, metavar="N", help="replay one seed and print the hash of its trace")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every line of the trace")
    parser.add_argument("--without", default="", metavar="A,B", help="with --seed: leave out these parts of its swarm")
    parser.add_argument("--salt", type=int, default=0, metavar="N", help="with --seed: draw all that follows anew")
    parser.add_argument("--seeds", type=_seeds, metavar="A:B", help="play the seeds from A up to, not including, B")
    parser.add_argument(
        "--crash-points", action="store_true", help="play one script (--seed) and lose power before each disk step"
    )
    return parser


def _seeds(text: str) -> range:
    first, separator, end = text.partition(":")
    try:
        return range(int(first), int(end)) if separator else range(int(first), int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: two numbers with a colon between them, such as 0:200") from None


def _replay(world: WorldSpec, seed: int, variation: Variation, *, trace: bool) -> int:
    outcome = world(seed, variation)
    if trace:
        print("\n".join(outcome.lines))
    if outcome.failure is not None:
        traceback.print_exception(outcome.failure, file=sys.stdout)
    print(outcome.summary())
    return 1 if outcome.failure else 0


def _range(world: WorldSpec, seeds: range) -> int:
    began = time.monotonic()
    failed = losses = 0
    simulated_s = 0.0
    for seed in seeds:
        played = play_one(world, seed)
        losses += played.losses
        simulated_s += played.seconds
        if played.failure:
            failed += 1
            print(f"\rseed {seed} failed: {played.failure}\n  replay: {world.replay_command(seed)}", flush=True)
        _progress(f"seed {seed} of {seeds.start}:{seeds.stop}, {failed} failed")
    wall_s = max(time.monotonic() - began, 0.001)
    speed = f"{len(seeds) / wall_s:.1f} seeds/s, {simulated_s / wall_s:.0f} simulated hours per wall hour"
    print(f"\r{len(seeds)} seeds, {losses} power losses, {failed} failed, {wall_s:.1f} s ({speed})")
    return 1 if failed else 0


def _crash_points(seed: int) -> int:
    try:
        report = run_crash_points(seed, lambda report: _progress(f"crash point {report.points}"))
    except CrashPoint as error:
        traceback.print_exception(error, file=sys.stdout)
        print(f"replay: python -m ottla.sim --crash-points --seed {seed}")
        return 1
    print(f"\r{_summary(report)}")
    return 0


def _summary(report: Report) -> str:
    return (
        f"{report.operations} operations, {report.points} crash points, {report.outcomes} outcomes, "
        f"{report.lost} of them lost what was not durable, none what was"
    )


def _progress(text: str) -> None:
    """A progress line that is overwritten; only on a terminal."""
    if sys.stdout.isatty():
        print(f"\r{text:<70}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
