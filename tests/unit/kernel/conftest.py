"""Every test of this directory runs on both kernels: what one promises, the other keeps."""

import importlib
import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest

from ottla import kernel
from ottla.kernel import reference


def implementation_named(name: str) -> ModuleType:
    """The kernel `name`. A native one that was not built is no fault where nothing could build it."""
    if name == "reference":
        return reference
    try:
        return importlib.import_module("ottla.kernel._native")
    except ImportError:
        if shutil.which("cargo") is None:
            pytest.skip("the native kernel is not built: there is no Rust toolchain (cargo)")
        raise


@pytest.fixture(scope="module", autouse=True, params=["native", "reference"])
def implementation(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Puts one kernel behind the façade; a module that names its kernels itself overrides this."""
    chosen = implementation_named(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for name in reference.__all__:
            patch.setattr(kernel, name, getattr(chosen, name))
        yield chosen
