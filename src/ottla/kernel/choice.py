"""Selects the kernel implementation once, when the package is imported.

Rule 1: the native one if it was built, else the reference, which is much slower and has the same results.
Rule 2: OTTLA_KERNEL=reference or =native in the environment overrides that. If =native is set and the native kernel is
        missing, importing fails: otherwise the wrong one would be measured or tested unnoticed.
"""

import os
from importlib.util import find_spec
from typing import Final, Literal

Implementation = Literal["native", "reference"]

VARIABLE: Final = "OTTLA_KERNEL"


def chosen(asked: str, native_built: bool) -> Implementation:
    """The implementation for this value of OTTLA_KERNEL."""
    match asked:
        case "":
            return "native" if native_built else "reference"
        case "reference":
            return "reference"
        case "native" if native_built:
            return "native"
        case "native":
            raise ImportError(
                f"{VARIABLE}=native, but the native kernel is not installed: install Rust and then Ottla again, "
                f"or unset {VARIABLE}"
            )
    raise ImportError(f"{VARIABLE}={asked}; it may be native, reference, or unset")


IMPLEMENTATION: Final = chosen(os.environ.get(VARIABLE, ""), find_spec("ottla.kernel._native") is not None)
