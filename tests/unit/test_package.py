"""What `import ottla` offers."""

import subprocess
import sys

import ottla
import ottla.client


def test_the_client_is_at_the_top_of_the_package() -> None:
    for name in ottla.__all__:
        assert getattr(ottla, name) is getattr(ottla.client, name)
    assert set(ottla.__all__) <= set(dir(ottla))
    assert not hasattr(ottla, "nonsense")


def test_importing_the_package_loads_nothing_of_it() -> None:
    """`ottla --help` imports it, too."""
    script = "import sys, ottla; print([name for name in sys.modules if name.startswith('ottla.')])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
