"""How two that were timed turn about are compared."""

import random

from bench.paired import TimesAsLong


def test_few_rounds_leave_all_of_them_possible() -> None:
    assert TimesAsLong.of([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == (2.0, 1.0, 3.0)


def test_rounds_are_compared_with_those_beside_them() -> None:
    """The machine was slow for a while, for both."""
    assert TimesAsLong.of([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == (2.0, 2.0, 2.0)


def test_outliers_are_outside_the_limits() -> None:
    """Of 40 rounds the 13 smallest and the 13 largest; these are the tables' numbers for the sign test."""
    found = TimesAsLong.of([float(time) for time in range(1, 41)], [1.0] * 40)
    assert found == (20.5, 14.0, 27.0)


def test_limits_are_as_certain_as_they_say() -> None:
    """Of a thousand comparisons of the same with the same, some fifty may find a difference."""
    chance = random.Random(1)

    def times() -> list[float]:
        return [chance.lognormvariate(0, 0.1) for _ in range(40)]

    found = [TimesAsLong.of(times(), times()) for _ in range(1000)]
    wrong = sum(not each.least <= 1 <= each.most for each in found)
    assert 15 <= wrong <= 65


def test_what_cannot_be_told_apart_is_neither_met_nor_missed() -> None:
    assert TimesAsLong(0.99, 0.97, 1.01).verdict(1.0) == "0.99 (0.97 to 1.01), aim 1.00: met"
    assert TimesAsLong(1.01, 0.99, 1.03).verdict(1.0) == "1.01 (0.99 to 1.03), aim 1.00: no difference to be seen"
    assert TimesAsLong(1.04, 1.02, 1.06).verdict(1.0) == "1.04 (1.02 to 1.06), aim 1.00: MISSED"
