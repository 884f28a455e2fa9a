"""The pipeline that a file holds, or what is wrong with it."""

import os

from ottla.cli.errors import UserError
from ottla.pipelines import InvalidPipeline, Pipeline, load_toml
from ottla.pipelines.declared import NotOne, load_python


def load(path: str) -> Pipeline:
    """Raises InvalidPipeline, and UserError where there is no such file or no pipeline in it."""
    try:
        return load_python(path) if path.endswith(".py") else load_toml(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except NotOne as error:
        raise UserError(str(error)) from None


def load_valid(path: str) -> Pipeline:
    """For who does more with it than look at it. Raises UserError with every mistake."""
    try:
        return load(path)
    except InvalidPipeline as invalid:
        problems = "\n".join(map(str, invalid.problems))
        raise UserError(f"{path} has mistakes, and nothing was run:\n{problems}") from None


def directory_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
