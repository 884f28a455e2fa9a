"""Which segments go, and in whose name."""

import pytest
from core_log_samples import NOW, config, log_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import Config
from ottla.core.log.retention import Expired, beyond_topic_limit, expired_segments
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState


def ages(*ms: int):  # type: ignore[no-untyped-def]
    """Largest timestamps by base offset of segments ten offsets apart: so many milliseconds ago."""
    return lambda segment: NOW - ms[segment.base_offset // 10]


def three(settings: Config | None = None, sizes: tuple[int, int, int] = (100, 100, 100)) -> LogState:
    return log_of([(0, sizes[0]), (10, sizes[1]), (20, sizes[2])], 30, settings)


def young(*_: object) -> int:
    return NOW


def test_nothing_goes_before_its_time() -> None:
    assert expired_segments(three(config(retention_ms=100)), NOW, ages(100, 50, 0)) is None


def test_old_segments_go_from_the_front() -> None:
    expired = expired_segments(three(config(retention_ms=100)), NOW, ages(101, 101, 0))
    assert expired == Expired(2, "retention.ms=100")


def test_an_old_segment_behind_a_young_one_stays() -> None:
    """Otherwise the log would have a hole."""
    assert expired_segments(three(config(retention_ms=100)), NOW, ages(50, 101, 101)) is None


def test_the_active_segment_goes_only_with_all_others() -> None:
    assert expired_segments(three(config(retention_ms=100)), NOW, ages(101, 101, 101)) == Expired(3, "retention.ms=100")


def test_an_empty_active_segment_stays() -> None:
    """Removing it would make another empty one, again and again."""
    log = three(config(retention_ms=100), (100, 100, 0))
    expired = expired_segments(log, NOW, ages(101, 101, 101))
    assert expired is not None
    assert expired.segments == 2


@pytest.mark.parametrize(
    ("limit", "gone"), [(301, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2), (0, 3)]
)
def test_size_removes_while_the_rest_is_at_least_the_limit(limit: int, gone: int) -> None:
    """As Kafka: the limit is what is kept at least, not at most."""
    expired = expired_segments(three(config(retention_bytes=limit, retention_ms=-1)), NOW, young)
    assert (expired.segments if expired else 0) == gone


def test_no_limit_keeps_everything() -> None:
    assert expired_segments(three(config(retention_ms=-1)), NOW, ages(10**12, 10**12, 10**12)) is None


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_what_lies_before_the_log_start_goes_whatever_the_policy(start: int, gone: int) -> None:
    log = three(config(cleanup_policy="compact"))
    log.advance_log_start(start)
    expired = expired_segments(log, NOW, young)
    assert (expired.segments if expired else 0) == gone


@pytest.mark.parametrize("policy", ["compact", ""])
def test_without_delete_nothing_goes_by_time_or_size(policy: str) -> None:
    settings = config(cleanup_policy=policy, retention_ms=1, retention_bytes=1)
    assert expired_segments(three(settings), NOW, ages(9999, 9999, 9999)) is None


@given(st.integers(0, 30))
def test_nothing_above_the_watermark_goes(high_watermark: int) -> None:
    """A follower may not have it yet, and no consumer has seen it."""
    log = LogState("t-0", config(retention_ms=100), [Segment(base, size=100) for base in (0, 10, 20)], end_offset=30)
    log.advance_high_watermark(high_watermark)
    expired = expired_segments(log, NOW, ages(101, 101, 101))
    assert (expired.segments if expired else 0) == high_watermark // 10


# A limit for a whole topic.


def by_age(table: dict[tuple[str, int], int]):  # type: ignore[no-untyped-def]
    return lambda log, segment: NOW - table[log.name, segment.base_offset]


def test_the_oldest_segment_of_all_partitions_goes_first() -> None:
    a, b = (log_of([(0, 100), (10, 100), (20, 100)], 30, name=name) for name in ("t-0", "t-1"))
    ages_ms = {("t-0", 0): 50, ("t-0", 10): 40, ("t-1", 0): 60, ("t-1", 10): 45}
    assert beyond_topic_limit([a, b], 600, by_age(ages_ms)) == {}
    assert beyond_topic_limit([a, b], 599, by_age(ages_ms)) == {"t-1": 1}
    assert beyond_topic_limit([a, b], 400, by_age(ages_ms)) == {"t-1": 1, "t-0": 1}
    assert beyond_topic_limit([a, b], 399, by_age(ages_ms)) == {"t-1": 2, "t-0": 1}


def test_active_segments_stay_even_beyond_the_limit() -> None:
    logs = [log_of([(0, 100), (10, 100)], 20, name=name) for name in ("t-0", "t-1")]
    assert beyond_topic_limit(logs, 0, young) == {"t-0": 1, "t-1": 1}


def test_no_topic_limit_keeps_everything() -> None:
    assert beyond_topic_limit([three()], -1, young) == {}


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_topic_limit_does_not_touch_what_is_not_deleted(policy: str) -> None:
    """Of a compacted topic the last value of every key is promised, whatever it takes."""
    assert beyond_topic_limit([three(config(cleanup_policy=policy))], 0, young) == {}


partitions = st.lists(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), min_size=1, max_size=5), min_size=1, max_size=4
)


@given(partitions, st.integers(0, 400), st.integers(0, 5))
def test_a_topic_limit_is_that_of_one_log_in_order_of_age(
    sizes_and_ages: list[list[tuple[int, int]]], limit: int, committed: int
) -> None:
    logs, ages_ms = list[LogState](), dict[tuple[str, int], int]()
    for number, segments in enumerate(sizes_and_ages):
        name = f"t-{number}"
        log = LogState(
            name,
            Config.of(),
            [Segment(10 * n, size=s) for n, (s, _) in enumerate(segments)],
            end_offset=10 * len(segments),
        )
        log.advance_high_watermark(10 * committed)
        logs.append(log)
        ages_ms |= {(name, 10 * n): age for n, (_, age) in enumerate(segments)}
    going = beyond_topic_limit(logs, limit, by_age(ages_ms))
    left, expected = sum(log.size for log in logs), dict[str, int]()
    while left > limit:
        fronts = [
            (NOW - ages_ms[log.name, 10 * expected.get(log.name, 0)], number, log)
            for number, log in enumerate(logs)
            if expected.get(log.name, 0) < min(len(log.segments) - 1, committed)
        ]
        if not fronts:
            break
        *_, log = min(fronts, key=lambda front: front[:2])
        left -= log.segments[expected.get(log.name, 0)].size
        expected[log.name] = expected.get(log.name, 0) + 1
    assert going == expected
