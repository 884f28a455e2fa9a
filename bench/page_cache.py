"""Fills the memory with page cache, as a broker finds it that has run for a while.

A virtual machine returns free memory to its host. Getting it back costs several times as much as writing a page, and
counts for the process that writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.sizes import MiB

_LEFT_FREE = 1 << 30
"""For the brokers and their clients, so that none has to wait for a page."""
_PIECE = 4 * MiB


@contextmanager
def filled(home: Path) -> Iterator[None]:
    """In this block the page cache holds an unused file. It takes no disk space."""
    size = _available() - _LEFT_FREE
    filler = home / "filler"
    with filler.open("wb") as file:
        file.truncate(max(size, 0))
    piece = bytearray(_PIECE)
    with filler.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
        yield
    filler.unlink()


def _available() -> int:
    """The memory that is available without swapping; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
