"""The measurements of growth run. They are measured with by hand, so nothing else would notice that they broke."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import growth_connections, growth_groups, growth_length, growth_partitions
from bench.report import Section
from bench.sizes import TINY, Sizes


@pytest.mark.parametrize("part", [growth_partitions.run, growth_connections.run, growth_length.run, growth_groups.run])
def test_every_size_has_its_row_and_every_figure_is_said(part: Callable[[Sizes], Section]) -> None:
    section = part(TINY)
    assert all(len(table.rows) == 2 for table in section.tables)
    assert section.findings
