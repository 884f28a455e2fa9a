"""`make bench`: the cost of Ottla's parts, next to a named peer in the same run.

Rule 1: a figure counts as a ratio against a peer that did the same work on the same bytes in the same run, alternating.
Rule 2: the best of several rounds: other processes can only make a round slower.
Rule 3: CPU seconds are reported beside wall time, because they are steadier.
Rule 4: nothing here passes or fails. If a figure misses its aim the result says so, with a profile.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "compat" / "kafka"))  # For the package `peers`.
