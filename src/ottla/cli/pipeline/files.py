"""Loads the pipeline of a TOML or Python file."""

import os

from ottla.cli.errors import UserError
from ottla.pipelines import InvalidPipeline, Pipeline, load_toml
from ottla.pipelines.authoring.declared import NotOnePipeline, load_python


def load(path: str) -> Pipeline:
    """Raises InvalidPipeline for mistakes, and UserError if there is no such file or no pipeline in it."""
    try:
        return load_python(path) if path.endswith(".py") else load_toml(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except NotOnePipeline as error:
        raise UserError(str(error)) from None


def load_valid(path: str) -> Pipeline:
    """Load a pipeline to run it. Raises UserError with all mistakes."""
    try:
        return load(path)
    except InvalidPipeline as invalid:
        problems = "\n".join(map(str, invalid.problems))
        raise UserError(f"{path} has mistakes, and nothing was run:\n{problems}") from None


def directory_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
