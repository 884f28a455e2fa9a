"""Failing seeds are made smaller as long as the same thing breaks; a seed is the same run in every process."""

import multiprocessing
import sys
from typing import Any, NamedTuple

import pytest

from ottla.sim import play
from ottla.sim.log.run import run_seed
from ottla.sim.machine.clock import SimClock
from ottla.sim.node.run import run_seed as run_node_seed
from ottla.sim.played import AS_DRAWN, PlayedSeed, Variation, Violation
from ottla.sim.shrinking import shrink
from ottla.sim.transcript import Transcript
from ottla.sim.worlds import WORLDS, WorldSpec, kind_of


class Parts(NamedTuple):
    names: tuple[str, ...]

    def parts(self) -> list[str]:
        return list(self.names)

    def reduced(self, without: tuple[str, ...]) -> "Parts":
        return Parts(tuple(name for name in self.names if name not in without))


def failing_with(*culprits: str, salts: tuple[int, ...] = (0, 1, 2, 3, 4)) -> WorldSpec:
    """A world whose seeds fail while all culprits are there; when something is left out, with certain salts only."""
    drawn = Parts(("a", "b", "c", "d", "e"))

    def run(seed: int, variation: Variation) -> PlayedSeed:
        left = drawn.reduced(variation.without).names
        fails = all(one in left for one in culprits) and (variation == AS_DRAWN or variation.salt in salts)
        other = Violation("I99", "another") if "a" not in left and "a" in culprits else None
        failure = Violation("I1", f"{left}") if fails else other
        return PlayedSeed(seed, Transcript(SimClock()), 0, 0, 1.0, failure)

    return WorldSpec("fake", run, lambda _: drawn)


@pytest.mark.parametrize("salts", [(0,), (3,)])
def test_what_has_nothing_to_do_with_a_failure_is_left_out(salts: tuple[int, ...]) -> None:
    world = failing_with("a", "d", salts=salts)
    shrunk = shrink(world, 7, Violation("I1", "as drawn"), seconds=60)
    assert (shrunk.variation, shrunk.swarm) == (Variation(("b", "c", "e"), salts[0]), Parts(("a", "d")))
    assert kind_of(shrunk.failure) == "I1"
    assert kind_of(ValueError()) == "ValueError"


def test_without_time_nothing_is_left_out() -> None:
    assert shrink(failing_with("a"), 7, Violation("I1", ""), seconds=-1).variation == AS_DRAWN


@pytest.mark.parametrize("name", list(WORLDS))
def test_everything_that_can_be_left_out_can_be_named(name: str) -> None:
    world = WORLDS[name]
    for seed in range(60):
        swarm: Any = world.draw(seed)
        parts = swarm.parts()
        assert len(set(parts)) == len(parts)
        assert str(swarm.reduced(())) == str(swarm)
        for part in parts:
            assert part not in swarm.reduced((part,)).parts() or "-" in part, "clients and faults are counted anew"
            assert len(swarm.reduced((part,)).parts()) < len(parts)


def test_a_reduced_seed_is_a_run_that_can_be_replayed() -> None:
    seed = next(one for one in range(100) if "crashes" in WORLDS["log"].draw(one).parts())
    variation = Variation(("crashes",), 2)
    first, second = run_seed(seed, variation), run_seed(seed, variation)
    assert first.lines == second.lines
    assert first.digest != run_seed(seed).digest
    command = WORLDS["node"].replay_command(seed, variation)
    assert command == f"python -m ottla.sim node --seed {seed} --without crashes --salt 2 --trace"
    everything = tuple(WORLDS["node"].draw(3).parts())
    assert run_node_seed(3, Variation(everything)).failure is None


def test_fresh_seeds_are_played_and_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    first = 4711
    assert play.main(["--worlds", "log", "--seeds", "3", "--first", str(first), "--processes", "2"]) == 0
    told = capsys.readouterr().out
    assert f"seeds from {first} on" in told
    assert "log: 3 seeds" in told
    assert "simulated hours per wall hour" in told
    with pytest.raises(SystemExit, match="say when to end"):
        play.main([])


def test_a_player_that_died_is_no_success() -> None:
    """Its seeds were not played."""
    player = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
    player.start()
    player.join()
    with pytest.raises(SystemExit, match="code 3"):
        play._check_alive([player])
