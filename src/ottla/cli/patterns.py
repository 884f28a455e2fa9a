"""Names as people choose them: `order*`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns fits; without patterns every name does."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
