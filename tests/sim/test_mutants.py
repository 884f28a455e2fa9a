"""The simulator finds what is wrong: safety checks are taken out one at a time, and each is missed by some seed.

That the same seeds pass on the code as it is, is for test_seeds.py to say.
"""

import pytest
from mutants import FOUND_BY, MUTANTS
from mutate import SEEDS, Mutant, source_with, survives
from test_seeds import SEEDS as PLAYED
from test_seeds import kept_seeds


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    assert (said := survives(mutant, "log", FOUND_BY.get(mutant.name))) is None, said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_one_change_of_code_that_is_there(mutant: Mutant) -> None:
    source_with(mutant)  # Which says what is wrong.


def test_mutants_are_many_and_get_no_seed_that_is_not_played_elsewhere() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14
    assert len(SEEDS["log"]) <= PLAYED
    assert all(seed < PLAYED or seed in kept_seeds() for seed in FOUND_BY.values())
