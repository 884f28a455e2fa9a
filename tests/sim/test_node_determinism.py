"""A seed of the node's world is a run: the same one whenever and wherever it is played."""

import os
import subprocess
import sys

import pytest

from ottla.sim.node.run import run_seed


def replay(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "ottla.sim", "node", "--seed", str(seed), "--trace"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", [0, 20, 24])
def test_same_trace_of_a_node_in_a_fresh_process_under_another_hash_seed(seed: int) -> None:
    first, second = replay(seed, "1"), replay(seed, "2")
    assert first == second
    assert run_seed(seed).summary() in first


def test_same_trace_of_a_node_after_other_seeds_were_played() -> None:
    """No state leaks from one run into the next."""
    first = run_seed(2)
    run_seed(3)
    assert run_seed(2).lines == first.lines
    assert run_seed(3).digest != first.digest
