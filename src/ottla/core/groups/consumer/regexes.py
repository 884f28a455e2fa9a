"""Subscriptions by regular expression, in linear time.

Rule 1: patterns have the syntax of RE2, as in Kafka (which uses RE2/J): no back-references and no look-around, so the
        time to match is linear in the length of the text. An invalid pattern is refused with
        INVALID_REGULAR_EXPRESSION. So is one whose nested repetitions multiply to more than a thousand, such as
        ((a{100}){100}){100}, for which RE2/J would use the memory. Patterns that RE2 accepts and RE2/J does not are
        accepted: \\C, and group names that are repeated or not ASCII.
Rule 2: a pattern must match the whole name of a topic.
Rule 3: a pattern is resolved once per group, not once per member, so that all its subscribers get the same topics. The
        result is written with the version of the metadata that it is based on.
Rule 4: matching a name takes microseconds. So many patterns and many topics are resolved in slices, with other work in
        between. A match of a long pattern counts as several. The result is for the topics that existed at the start.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.core.patterns import Pattern, compile_pattern, match_cost
from ottla.wire.errors import Refused

_KEPT_MAX: Final = 200
_KEPT_INSTRUCTIONS_MAX: Final = 500_000
"""Total program size of all cached patterns, some 20 MiB. Limited because every heartbeat may have a new pattern."""


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """The offset of the last metadata record that the result is based on."""
    timestamp: int


class Resolution:
    """The unfinished resolution of a group's patterns."""

    def __init__(self, names: Iterable[str], version: int) -> None:
        self.version = version
        self.found: dict[str, frozenset[str]] = {}
        self._names = tuple(names)
        self._regex: str | None = None
        self._at = 0
        self._matched: list[str] = []

    def step(self, compiled: "Regexes", wanted: Iterable[str], matches: int) -> int:
        """Continue to resolve the patterns in `wanted`, with about `matches` matches. Returns how many are left."""
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
        """Whether all of these patterns are resolved."""
        return all(regex in self.found for regex in wanted)


class Regexes:
    """Compiles patterns and caches the most recently compiled ones."""

    def __init__(self) -> None:
        self._compiled: dict[str, Pattern] = {}
        self.kept_instructions = 0

    def check(self, regex: str) -> None:
        """Raises Refused if the pattern is invalid."""
        self._compile(regex)

    def cost_of(self, regex: str) -> int:
        """The cost of one match, as a multiple of that of a short pattern."""
        try:
            return match_cost(self._compile(regex))
        except Refused:
            return 1

    def matching(self, regex: str, names: Iterable[str]) -> Iterator[str]:
        """The names that a pattern matches. An invalid pattern, accepted by another release, matches no names."""
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
        """Cache a compiled pattern. Removes the oldest ones beyond the limits."""
        self._compiled[regex] = compiled
        self.kept_instructions += compiled.programsize
        while len(self._compiled) > _KEPT_MAX or self.kept_instructions > _KEPT_INSTRUCTIONS_MAX:
            oldest = next(iter(self._compiled))
            self.kept_instructions -= self._compiled.pop(oldest).programsize
