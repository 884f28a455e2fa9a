"""Name patterns such as `order*`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches; without patterns every name does."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
