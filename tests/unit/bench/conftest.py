"""The benchmark is a package beside `src`, not an installed one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
