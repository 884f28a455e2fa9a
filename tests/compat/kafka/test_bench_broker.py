"""The benchmark of the whole node runs. It is measured with by hand, so nothing else would notice that it broke."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.broker import run
from bench.sizes import TINY


def test_every_load_runs_and_has_its_row() -> None:
    """Against a second Ottla: what is tested is the benchmark."""
    throughput, delay, process = run(TINY).tables
    assert len(throughput.rows) == 9
    assert len(delay.rows) == 2
    assert len(process.rows) == 3
