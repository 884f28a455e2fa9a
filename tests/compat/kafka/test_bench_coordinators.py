"""The benchmark of the coordinators runs. It is measured with by hand, so nothing else would notice that it broke."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.coordinators import run
from bench.sizes import TINY


def test_every_load_of_the_coordinators_runs_and_has_its_row_and_verdict() -> None:
    """Against a second Ottla: what is tested is the benchmark."""
    section = run(TINY)
    tables = {table.title.partition(" ")[0]: len(table.rows) for table in section.tables}
    assert tables == {"Offset": 4, "From": 2, "Transactions": 3, "Start": 2}
    assert len(section.findings) == sum(tables.values())
