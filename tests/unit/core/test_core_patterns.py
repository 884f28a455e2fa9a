"""Patterns of clients: what they may cost is known before they are matched."""

import pytest

from ottla.core.groups.consumer.regexes import Regexes, Resolution
from ottla.core.patterns import compile_pattern, match_cost
from ottla.wire.errors import Error, Refused

NAME = "a" * 249


@pytest.mark.parametrize("nested", [1, 1_000, 8_000, 16_000])
def test_parentheses_cost_nothing(nested: int) -> None:
    """With groups to be told of, 8,000 of them took a gigabyte and a second for each name that was matched."""
    pattern = compile_pattern("(" * nested + "a*" + ")" * nested, "Pattern")
    assert pattern.groups == 0
    assert pattern.programsize < 20
    assert pattern.fullmatch(NAME) is not None
    assert match_cost(pattern) == 1


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 16_000,
        "a?" * 4_000,
        "a{0,1000}" * 30,
        "(a?){1000}" * 16,
        "(^|a)" * 6_000,
        "(a|)" * 8_000,
        "[a-c]?" * 5_000,
    ],
    ids=lambda pattern: pattern[:20],
)
def test_pattern_that_takes_seconds_to_compile_or_to_match_is_refused(pattern: str) -> None:
    """RE2 compiles some of these in quadratic time, and matches the others the slow way."""
    with pytest.raises(Refused) as refused:
        compile_pattern(pattern, "Pattern")
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern",
    [
        "|".join(f"a.topic.with.a.name-{number}" for number in range(1_200)),
        "|".join(f"topic{number}-.*" for number in range(400)),
        "x" * 32_767,
        "(?i)" * 1_000 + "a*",
        "a{1000}|a{100,249}",
        "[a-z" + "a-z" * 5_000 + "]*",
    ],
    ids=lambda pattern: pattern[:20],
)
def test_long_pattern_without_thousands_of_repetitions_is_taken(pattern: str) -> None:
    """Such as a list of all topics that a consumer reads: Kafka takes it, too."""
    assert compile_pattern(pattern, "Pattern").programsize > 0


def test_long_pattern_takes_more_of_a_slice() -> None:
    names = [f"t{number}" for number in range(100)]
    resolution, regexes = Resolution(names, 1), Regexes()
    long = "(a|b|c?)*" * 50 + "x" * 2_000
    cost = match_cost(compile_pattern(long, "Pattern"))
    assert cost > 100
    assert resolution.step(regexes, ["t.*"], 1_000) == 900
    assert resolution.step(regexes, [long], 10 * cost) == 0
    assert not resolution.has([long]), "ten names were matched"
    assert resolution.step(regexes, [long], 0) == 0
    for _ in range(8):
        assert resolution.step(regexes, [long], 10 * cost) == 0
        assert not resolution.has([long])
    resolution.step(regexes, [long], 10 * cost)
    assert resolution.has([long])


def test_pattern_that_costs_more_than_a_slice_gets_on() -> None:
    """One name at a time."""
    resolution, regexes = Resolution(["a", "b"], 1), Regexes()
    long = "x" * 30_000
    for _ in range(2):
        assert not resolution.has([long])
        assert resolution.step(regexes, [long], 1) == 0
    assert resolution.has([long])
