"""Archives of the classes that a Java program loads (class data sharing): with one, a JVM starts in half the time.

Rule 1: an archive is made once, by a run of the program itself, under a lock. It gets its name when it is complete.
Rule 2: a JVM with another class path, or of another version, ignores the archive and says nothing about it.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from peers.jars import exclusive

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Otherwise a JVM prints to its standard output why it ignores an archive."""


def made_once(archive: Path, run: Callable[[list[str]], object]) -> Path:
    """The archive; if there is none, `run` has to run the program with the given flags, to its end."""
    with exclusive(archive.with_suffix(".lock")):
        if not archive.exists():
            begun = archive.with_suffix(".begun")
            begun.unlink(missing_ok=True)
            run([f"-XX:ArchiveClassesAtExit={begun}", *_QUIET])
            if begun.exists():
                os.rename(begun, archive)
            else:
                print(f"no archive of classes was written to {archive}: JVMs start without", file=sys.stderr)
    return archive


def using(archive: Path) -> list[str]:
    """The flags of a JVM that uses an archive, if that was made."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []
