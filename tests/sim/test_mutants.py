"""The simulator finds what is wrong: safety checks are taken out one at a time, and each is missed by some seed.

That the same seeds pass on the code as it is, is for test_seeds.py to say.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import FOUND_BY, MUTANTS
from mutate import SEEDS, Mutant, NotHere, found_by, mutated, planted
from test_seeds import SEEDS as PLAYED
from test_seeds import kept_seeds

RUNNER = Path(__file__).with_name("mutate.py")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    name = mutant.name
    try:
        with planted(mutant):
            assert found_by("log", FOUND_BY.get(name)) is not None, f"{name} survived"
    except NotHere:
        command = [sys.executable, str(RUNNER), name, "log"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        assert f"{name}: found by " in result.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_one_change_of_code_that_is_there(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    compile(mutated(source, mutant), mutant.module, "exec")


def test_mutants_are_many_and_get_no_seed_that_is_not_played_elsewhere() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14
    assert len(SEEDS["log"]) <= PLAYED
    assert all(seed < PLAYED or seed in kept_seeds() for seed in FOUND_BY.values())
