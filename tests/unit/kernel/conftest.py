"""Every test of this directory runs on both kernels: what one promises, the other keeps."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from kernel_comparison import implementation_named

from ottla import kernel
from ottla.kernel import reference


@pytest.fixture(scope="module", autouse=True, params=["native", "reference"])
def implementation(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Puts one kernel behind the façade; a module that names its kernels itself overrides this."""
    chosen = implementation_named(request.param)
    with pytest.MonkeyPatch.context() as patch:
        for name in reference.__all__:
            patch.setattr(kernel, name, getattr(chosen, name))
        yield chosen
