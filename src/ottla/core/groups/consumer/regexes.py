"""Subscriptions by regular expression, in linear time.

Rule 1: patterns are RE2's, as in Kafka (which runs RE2/J): no back-references, no look-around, hence no pattern that
        takes longer than the text is long. A pattern that is none is refused with INVALID_REGULAR_EXPRESSION; so is one
        that repeats repetitions beyond a thousand, such as ((a{100}){100}){100}, for which RE2/J would take the memory.
        What RE2 takes and RE2/J does not is let be: \\C, and names of groups given twice or not in ASCII.
Rule 2: a pattern must match a topic's whole name.
Rule 3: a pattern is resolved by its group, not by each member: all who subscribed to it get the same topics, and the
        result is written down with the version of the metadata that it was found in.
Rule 4: matching a name takes microseconds, so that many patterns of many topics are resolved a slice at a time, and
        others have their turn in between. A long pattern counts for many. What is found is that of the topics that
        there were at the beginning.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.core.patterns import Pattern, compile_pattern, match_cost
from ottla.wire.errors import Refused

_KEPT_MAX: Final = 200
_KEPT_INSTRUCTIONS_MAX: Final = 500_000
"""Of all kept patterns together, some 20 MiB: a member may bring another pattern with every heartbeat."""


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """The offset of the last metadata record that was seen."""
    timestamp: int


class Resolution:
    """The patterns of a group on their way through the topics."""

    def __init__(self, names: Iterable[str], version: int) -> None:
        self.version = version
        self.found: dict[str, frozenset[str]] = {}
        self._names = tuple(names)
        self._regex: str | None = None
        self._at = 0
        self._matched: list[str] = []

    def step(self, compiled: "Regexes", wanted: Iterable[str], matches: int) -> int:
        """Go on with the patterns that are wanted now, for so many matches; how many of them were left over."""
        for regex in wanted:
            if regex in self.found:
                continue
            if matches <= 0:
                return 0
            if regex != self._regex:
                self._regex, self._at, self._matched = regex, 0, []
            cost = compiled.cost_of(regex)
            part = self._names[self._at : self._at + max(matches // cost, 1)]
            self._matched += compiled.matching(regex, part)
            self._at += len(part)
            matches -= len(part) * cost
            if self._at < len(self._names):
                return 0
            self.found[regex] = frozenset(self._matched)
        return max(matches, 0)

    def has(self, wanted: Iterable[str]) -> bool:
        """All of these are resolved."""
        return all(regex in self.found for regex in wanted)


class Regexes:
    """Compiled patterns, the latest kept for the next look."""

    def __init__(self) -> None:
        self._compiled: dict[str, Pattern] = {}
        self.kept_instructions = 0

    def check(self, regex: str) -> None:
        """Refuses a pattern that is none."""
        self._compile(regex)

    def cost_of(self, regex: str) -> int:
        """Of one match, counted in those of a short pattern."""
        try:
            return match_cost(self._compile(regex))
        except Refused:
            return 1

    def matching(self, regex: str, names: Iterable[str]) -> Iterator[str]:
        """The names that a pattern matches; one that cannot be compiled (another release took it) matches none."""
        try:
            pattern = self._compile(regex)
        except Refused:
            return iter(())
        return (name for name in names if pattern.fullmatch(name) is not None)

    def _compile(self, regex: str) -> Pattern:
        found = self._compiled.get(regex)
        if found is None:
            found = compile_pattern(regex, "SubscribedTopicRegex")
            self._keep(regex, found)
        return found

    def _keep(self, regex: str, compiled: Pattern) -> None:
        """In the place of the oldest, where there is no room."""
        self._compiled[regex] = compiled
        self.kept_instructions += compiled.programsize
        while len(self._compiled) > _KEPT_MAX or self.kept_instructions > _KEPT_INSTRUCTIONS_MAX:
            oldest = next(iter(self._compiled))
            self.kept_instructions -= self._compiled.pop(oldest).programsize
