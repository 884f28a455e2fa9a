"""Memory as a broker finds it that has run for a while: full of pages that nobody needs any more.

A virtual machine gives free memory back to its host. Getting it again costs several times what writing a page does, and
counts for the process that writes: whoever writes many new pages would be measured by the host.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.sizes import MiB

_LEFT_FREE = 1 << 30
"""For the brokers and their clients, so that none of them has to wait for a page."""
_PIECE = 4 * MiB


@contextmanager
def filled(home: Path) -> Iterator[None]:
    """For as long as this lasts, the page cache has a file in it that nobody reads. It takes no room on the disk."""
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
    """What the system could give away without swapping; 0 where it does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
