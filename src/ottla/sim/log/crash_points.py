"""Every crash point of one script: before each change of the disk a power loss is simulated in several ways, and the
result checked.

The script itself is never interrupted. Before each change a copy of the disk loses power, the log is opened on it, and
the checkers compare it with a copy of the history.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ottla.observe.trace import sink_installed
from ottla.sim.log import checkers
from ottla.sim.log.subject import Subject
from ottla.sim.log.swarm import OPERATIONS, Swarm, draw
from ottla.sim.log.workload import Workload
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import SimLoop, run
from ottla.sim.transcript import Transcript

OPERATIONS_IN_SCRIPT = 200
OUTCOMES_PER_POINT = 3


@dataclass
class Report:
    points: int = 0
    outcomes: int = 0
    operations: int = 0
    lost: int = 0
    """The number of crashes that lost a record that was not durable; with none the simulated disk would be too kind."""


class CrashPoint(AssertionError):
    """The violation after a crash before one disk step."""


def script(seed: int) -> Swarm:
    """A script with all operations, no faults, tiny segments, and both cleaner and retention."""
    drawn = draw(Random(seed))
    settings = drawn.topic | {
        "internal.segment.bytes": "1500",
        "index.interval.bytes": "200",
        "segment.index.bytes": "10485760",
        "flush.messages": "7",
        "cleanup.policy": "compact" if seed % 2 else "delete",
        "min.compaction.lag.ms": "0",
        "min.cleanable.dirty.ratio": "0.0",
    }
    return drawn.replaced(
        topic=settings, operations=OPERATIONS_IN_SCRIPT, weights=dict(OPERATIONS), faults=(), crash_steps=0, rot=False
    )


def run_crash_points(seed: int, progress: Callable[[Report], None] = lambda _: None) -> Report:
    clock = SimClock()
    transcript = Transcript(clock)
    workload = Workload(script(seed), Random(seed), clock, transcript)
    report = Report()

    def before_change(step: int, operation: str, path: str) -> None:
        report.points += 1
        with sink_installed(lambda _: None):
            for outcome in range(OUTCOMES_PER_POINT):
                try:
                    _crash(workload, Random(f"{seed}/{report.points}/{outcome}"), report)
                except Exception as error:
                    done = transcript.lines[-1].strip() if transcript.lines else "the start"
                    where = f"crash point {report.points} (step {step}, before {operation} {path}, in '{done}')"
                    raise CrashPoint(f"{where}, outcome {outcome}: {type(error).__name__}: {error}") from error
        progress(report)

    async def main(_: SimLoop) -> None:
        workload.disk.observer = before_change
        await workload.play()

    with transcript.listening():
        run(main, seed, clock)
    report.operations = workload.swarm.operations
    return report


def _crash(workload: Workload, random: Random, report: Report) -> None:
    found = workload.disk.copy().after_power_loss(random)
    history = workload.history.copy()
    end_offset = history.end_offset
    checkers.check_recovered(history, Subject(found, workload.config, Random(0)).look())
    report.outcomes += 1
    report.lost += history.end_offset < end_offset
