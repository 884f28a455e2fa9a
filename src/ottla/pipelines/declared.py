"""Finds the pipeline that a Python file declares. The file is run, as importing it would."""

import importlib.util
import os
import sys
import traceback

from ottla.pipelines.problems import InvalidPipeline, Place, Problem
from ottla.pipelines.registry import Declaration
from ottla.pipelines.spec import Pipeline


class NotOne(ValueError):
    """The file declares no pipeline, or several."""


def load_python(path: str) -> Pipeline:
    """Raises OSError, NotOne, and InvalidPipeline with every mistake."""
    with open(path, "rb"):
        pass  # A file that cannot be read is no fault of what is in it.
    declared = [value for value in _globals_of(path).values() if isinstance(value, Declaration)]
    different = list(dict.fromkeys(declared))
    if not different:
        raise NotOne(f"{path} declares no pipeline: it has no Declaration at its top level")
    if len(different) > 1:
        raise NotOne(f"{path} declares {len(different)} pipelines; keep one in a file")
    return different[0].build()


def _globals_of(path: str) -> dict[str, object]:
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    directory = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, directory)  # As if it were run as a script: it may import what lies beside it.
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidPipeline([_failed(error, path)]) from error
    finally:
        sys.path.remove(directory)
    return vars(module)


def _failed(error: Exception, path: str) -> Problem:
    """At the deepest line of the file itself."""
    own = os.path.abspath(path)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
    return Problem(Place(path, line or 1), "", None, f"cannot be run: {type(error).__name__}: {error}", "")
