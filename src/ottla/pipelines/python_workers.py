"""Python workers of Spark between two tasks: made light, so that short tasks are short.

Rule 1: Spark keeps a worker for the next task, and has it look at the import path anew before each: Python 3.11 then
        reads the index of every archive on it again, once for each package that was imported from there. That is
        Spark's own archive, and the jar beside it: a tenth of a second for each task. So a task ends by forgetting
        who looks into archives. Who is asked again later is made again from the index that Python keeps.
Rule 2: Spark has a worker collect garbage after each task, which goes through all that was ever imported. What is there
        after the first task stays anyway, and is set aside.
"""

import gc
import sys
from zipimport import zipimporter


def lighten() -> None:
    """At the end of what a task does in Python."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
