"""A seed is a run: the same one whenever and wherever it is played."""

import os
import subprocess
import sys

import pytest

from ottla.sim.log.run import run_seed

EVERY_HUNDREDTH = range(0, 400, 100)


def replay(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "ottla.sim", "--seed", str(seed), "--trace"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", EVERY_HUNDREDTH)
def test_same_trace_in_a_fresh_process_under_another_hash_seed(seed: int) -> None:
    first, second = replay(seed, "1"), replay(seed, "2")
    assert first == second
    assert run_seed(seed).summary() in first


def test_same_trace_after_other_seeds_were_played() -> None:
    """No state leaks from one run into the next."""
    first = run_seed(7)
    run_seed(8)
    assert run_seed(7).lines == first.lines


def test_another_seed_is_another_run() -> None:
    assert run_seed(7).digest != run_seed(8).digest
