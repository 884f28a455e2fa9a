"""Seeded lives of a whole node with its clients, on a network and a disk that fail."""

from pathlib import Path

import pytest

from ottla.sim.worlds import WORLDS

SEEDS = 200
PER_TEST = 10
KEPT = Path(__file__).with_name("kept_node_seeds.txt")


def kept_seeds() -> list[int]:
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text().splitlines())
    return [int(line) for line in lines if line]


def play(seed: int) -> None:
    outcome = WORLDS["node"](seed)
    assert outcome.failure is None, f"{outcome.summary()}\nreplay: {WORLDS['node'].replay_command(seed)}"


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_seeds_of_a_node(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        play(seed)


@pytest.mark.parametrize("seed", [seed for seed in kept_seeds() if seed >= SEEDS])
def test_kept_seed_of_a_node(seed: int) -> None:
    """Those below `SEEDS` are played above."""
    play(seed)


def test_seeds_of_a_node_are_worth_playing() -> None:
    """Among these the power goes, processes die, topics come and go, disks fail, clients are refused and cut off;
    coordinators come back, zombies are fenced, members are replaced."""
    lines = [line for seed in range(0, 40, 2) for line in WORLDS["node"](seed).lines]
    for happened in (
        "the power is lost",
        "the process is killed",
        "the node is stopped",
        "recovered twice with the same result",
        "directory.offline",
        "connection.refused",
        "quorum.snapshot",
        "log.taken_out",
        "log.rolled",
        "log.cleaned",
        "log.segments_expired",
        "coordinator.loaded",
        "an answer was not waited for",
        "INVALID_PRODUCER_EPOCH",
        "UNKNOWN_MEMBER_ID",
    ):
        assert any(happened in line for line in lines), happened
