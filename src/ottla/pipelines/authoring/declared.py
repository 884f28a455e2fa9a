"""Loads the pipeline that a Python file declares, by running the file as an import does."""

import importlib.util
import os
import sys
import traceback

from ottla.pipelines.authoring.registry import Declaration
from ottla.pipelines.spec.model import Pipeline
from ottla.pipelines.spec.problems import FileLine, InvalidPipeline, Problem


class NotOnePipeline(ValueError):
    """The file declares no pipeline, or several."""


def load_python(path: str) -> Pipeline:
    """The pipeline that a file declares. Raises OSError, NotOnePipeline, and InvalidPipeline with every mistake."""
    with open(path, "rb"):
        pass  # An unreadable file is an OSError, not a mistake in the pipeline.
    declared = [value for value in _globals_of(path).values() if isinstance(value, Declaration)]
    different = list(dict.fromkeys(declared))
    if not different:
        raise NotOnePipeline(f"{path} declares no pipeline: it has no Declaration at its top level")
    if len(different) > 1:
        raise NotOnePipeline(f"{path} declares {len(different)} pipelines; keep one in a file")
    return different[0].build()


def _globals_of(path: str) -> dict[str, object]:
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    directory = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, directory)  # As for a script: the file may import modules beside it.
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidPipeline([_failed(error, path)]) from error
    finally:
        sys.path.remove(directory)
    return vars(module)


def _failed(error: Exception, path: str) -> Problem:
    """The exception as a problem at the innermost line of the file itself."""
    own = os.path.abspath(path)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
    return Problem(FileLine(path, line or 1), "", None, f"the file cannot be run: {type(error).__name__}: {error}", "")
