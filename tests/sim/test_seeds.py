"""Seeded lives of a log on a faulty disk, each checked against its history."""

from pathlib import Path

import pytest

from ottla.sim.worlds import WORLDS

SEEDS = 400
PER_TEST = 25
KEPT = Path(__file__).with_name("kept_seeds.txt")


def kept_seeds() -> list[int]:
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text().splitlines())
    return [int(line) for line in lines if line]


def play(seed: int) -> None:
    outcome = WORLDS["log"](seed)
    assert outcome.failure is None, f"{outcome.summary()}\nreplay: {WORLDS['log'].replay_command(seed)}"


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        play(seed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_kept_seed(seed: int) -> None:
    play(seed)


def test_seeds_are_worth_playing() -> None:
    """Runs in which nothing happens would find nothing: among these, power is lost, errors strike, the cleaner runs."""
    lines = [line for seed in range(60) for line in WORLDS["log"](seed).lines]
    for happened in ("power lost", "directory.offline", "log.cleaned", "log.rolled", "log.cut", "log.truncated"):
        assert any(happened in line for line in lines), happened
