"""The node's world finds what is wrong with a node: its safety checks are taken out one at a time.

That the same seeds pass on the code as it is, is for test_node_seeds.py to say.
"""

import pytest
from mutate import SEEDS, Mutant, source_with, survives
from node_mutants import FOUND_BY, MUTANTS
from test_node_seeds import SEEDS as PLAYED
from test_node_seeds import kept_seeds


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_of_a_node_is_found(mutant: Mutant) -> None:
    assert (said := survives(mutant, "node", FOUND_BY.get(mutant.name))) is None, said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_of_a_node_is_one_change_of_code_that_is_there(mutant: Mutant) -> None:
    source_with(mutant)  # Which says what is wrong.


def test_mutants_of_a_node_get_no_seed_that_is_not_played_elsewhere() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 8
    assert len(SEEDS["node"]) <= PLAYED
    assert all(seed < PLAYED or seed in kept_seeds() for seed in FOUND_BY.values())
