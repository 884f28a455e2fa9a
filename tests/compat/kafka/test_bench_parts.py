"""The parts of the benchmark run. They are measured with by hand: nothing else would notice that a change broke one."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.__main__ import PARTS
from bench.report import Section, page
from bench.sizes import TINY, Sizes

WITH_NODES = ("broker", "partitions", "connections", "length", "groups", "coordinators", "pipelines")
"""Each of these has a test of its own, here or beside the tests of pipelines."""
LOADS = {PARTS["holds"]: "list_offsets"}
"""Of parts that would take minutes. All requests of the sweep are measured beside the tests of hostile clients."""
IN_PROCESS = {name: part for name, part in PARTS.items() if name not in WITH_NODES}


@pytest.mark.parametrize("part", IN_PROCESS.values(), ids=IN_PROCESS)
def test_part_runs_and_fills_its_tables(part: Callable[[Sizes], Section]) -> None:
    section = part(replace(TINY, load=LOADS.get(part, "")))
    assert section.tables
    for table in section.tables:
        assert table.rows
        assert len({len(line) for line in table.text().splitlines()[2:]}) == 1, "the columns are not aligned"
    assert section.title in page([section], [])
