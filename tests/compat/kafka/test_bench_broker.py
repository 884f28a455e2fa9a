"""The benchmark of the whole node runs. It is measured with by hand, so nothing else would notice that it broke."""

import sys
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import matrix
from bench.broker import run, run_reference
from bench.matrix_cells import CONSUME, PRODUCE
from bench.sizes import TINY


def test_every_load_runs_and_has_its_row() -> None:
    """Against a second Ottla: what is tested is the benchmark."""
    section = run(TINY)
    tables = {table.title.partition(",")[0]: len(table.rows) for table in section.tables}
    if any(finding.startswith("bare limits: not measured") for finding in section.findings):
        tables["Bare limits"] = 5  # There is no C compiler here, and that was said.
    assert tables == {
        "Throughput": 11,
        "From sending a record to its arrival at a waiting reader": 2,
        "From sending a batch to its acknowledgement": 1,
        "Bare limits": 5,
        "The process": 3,
    }


def test_the_produce_loads_run_on_the_reference_kernel() -> None:
    section = run_reference(TINY)
    assert [len(table.rows) for table in section.tables] == [7]


def test_cells_of_the_matrix_run_and_have_their_rows() -> None:
    section = matrix.run(TINY)
    assert [len(table.rows) for table in section.tables] == [4, 4]


def test_a_sample_of_the_matrix_leaves_no_pair_of_values_out() -> None:
    for seed in range(3):
        for dimensions in (PRODUCE, CONSUME):
            sample, every = dimensions.sample(Random(seed)), dimensions.every()  # type: ignore[attr-defined]
            assert len(sample) < len(every) / 2
            assert {pair for cell in every for pair in pairs(cell)} == {pair for cell in sample for pair in pairs(cell)}


def pairs(cell: object) -> list[object]:
    return list(combinations(asdict(cell).items(), 2))  # type: ignore[call-overload]
