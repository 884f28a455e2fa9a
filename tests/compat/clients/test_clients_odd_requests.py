"""Odd requests are answered as Apache Kafka answers them: drawn from the declarations, and in sequences.

    ODD_SEEDS=100:200 pytest tests/compat/clients/test_clients_odd_requests.py -k drawn

draws fresh ones: a seed makes a world and the requests about it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from odd.generator import Generator, warm_ups
from odd.pair import Difference, Pair, report, running_pair, unexplained
from odd.scenarios import SCENARIOS
from odd.world import World

SEEDS = "ODD_SEEDS"
REQUESTS = 30


def seeds() -> range:
    first, _, last = os.environ.get(SEEDS, "0:16").partition(":")
    return range(int(first), int(last or int(first) + 1))


@pytest.fixture(scope="module")
def pair(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Servers of their own: what is tried here would be in the way of other tests."""
    with running_pair(kafka_jars, tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.mark.parametrize("seed", seeds())
def test_drawn_requests_are_answered_alike(pair: Pair, seed: int) -> None:
    """Half of the Produce requests come after others like them, and so on Ottla's short way."""
    world, worlds = World(f"odd{seed}"), 1
    pair.build(world)
    generator = Generator(seed, world)
    found: list[Difference] = []
    for number in range(REQUESTS):
        case = generator.draw()
        differences = pair.ask_all([*(warm_ups(case) if number % 2 else ()), case], world)
        found += unexplained(differences)
        if any(one.changes_state for one in differences):
            # What follows would differ for no other reason than this.
            world, worlds = World(f"odd{seed}x{worlds}"), worlds + 1
            pair.build(world)
            generator.go_on_in(world)
    assert not found, f"{SEEDS}={seed} draws them again{report(found)}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_sequences_are_answered_alike(pair: Pair, name: str) -> None:
    world = World(f"odd-{name.replace(' ', '-')}")
    pair.build(world)
    found = unexplained(pair.ask_all(SCENARIOS[name](world), world))
    assert not found, report(found)
