"""What groups see of topics: Kafka's metadata hash, and patterns in linear time."""

import pytest
from consumer_harness import Topics
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.consumer.regexes import Regexes, Resolution
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.metadata.image import Image
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord

ID = bytes(7) + b"\x01" + bytes(7) + b"\x02"


def view(racks: dict[int, str | None], replicas: list[list[int]]) -> TopicView:
    image = Image()
    for broker_id, rack in racks.items():
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker_id, incarnation_id=ID, broker_epoch=1, end_points=[], features=[], rack=rack
            )
        )
    image.replay(TopicRecord(name="foo", topic_id=ID))
    for index, those in enumerate(replicas):
        image.replay(
            PartitionRecord(
                partition_id=index,
                topic_id=ID,
                replicas=those,
                isr=those,
                removing_replicas=[],
                adding_replicas=[],
                leader=those[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    return TopicView(image)


def test_hash_of_a_topic_is_kafkas() -> None:
    """Another hash would have every group rebalance when its coordinator moves between Kafka and Ottla.

    The figure is hash4j's xxh3 over: a zero byte, the id as the longs 1 and 2, "foo", 3 partitions, no racks.
    """
    topics = view({1: None}, [[1], [1], [1]])
    assert topics._hash(topics.image.topics["foo"]) == 8773618633639361573


def test_racks_and_their_order_count_as_in_kafka() -> None:
    here = view({1: "b", 2: "a"}, [[1, 2]])
    assert here.hash_of(["foo"]) == view({1: "a", 2: "b"}, [[1, 2]]).hash_of(["foo"])
    assert here.hash_of(["foo"]) != view({1: "a", 2: "c"}, [[1, 2]]).hash_of(["foo"])


def test_no_topics_have_no_hash_and_order_does_not_matter() -> None:
    topics = Topics({"a": 1, "b": 2}).view
    assert topics.hash_of([]) == topics.hash_of(["unknown"]) == 0
    assert topics.hash_of(["a", "b"]) == topics.hash_of(["b", "unknown", "a"])
    assert topics.hash_of(["a"]) != topics.hash_of(["b"])


def test_a_pattern_matches_whole_names() -> None:
    names = ["foo", "xfoo", "foox", "bar", "baz-1"]
    assert list(Regexes().matching("fo+", names)) == ["foo"]
    assert list(Regexes().matching("(?i)BAR|baz.*", names)) == ["bar", "baz-1"]


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{1001}", "(?=a)", r"(a)\1", "a**", "(((a{100}){100}){100})", "(?x)a", "\ud800", "*"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        Regexes().check(pattern)
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION


def test_a_hostile_pattern_takes_no_longer_than_the_text() -> None:
    """A backtracking matcher would take 2**40 steps; this test would not end."""
    hostile = "(a|a)*(a|aa)*" * 10 + "b"
    assert list(Regexes().matching(hostile, ["a" * 249])) == []


def test_patterns_without_end_take_no_memory_without_end() -> None:
    """A member may bring another one with every heartbeat, and each may take a MiB."""
    regexes = Regexes()
    for number in range(20):
        regexes.check(f"{number}" + "x" * 32_000)
    assert 400_000 < regexes.kept_instructions <= 500_000
    for number in range(1_000):
        regexes.check(f"topic-{number}")
    assert 0 < regexes.kept_instructions < 10_000, "the large ones had to go"
    assert list(regexes.matching("topic-1", ["topic-1", "topic-2"])) == ["topic-1"]


def test_a_pattern_another_release_took_matches_nothing() -> None:
    assert list(Regexes().matching("(?=a)", ["a"])) == []


@given(st.integers(1, 12))
def test_patterns_are_resolved_alike_whatever_a_slice_takes(matches: int) -> None:
    names = [f"{letter}{number}" for letter in "ab" for number in range(5)]
    patterns = ["a.*", "b[12]", "nothing", "[ab]0"]
    resolution, steps = Resolution(names, 7), 0
    while not resolution.has(patterns):
        resolution.step(Regexes(), patterns, matches)
        steps += 1
    assert steps == -(-len(names) * len(patterns) // matches)
    assert resolution.found["a.*"] == set(names[:5])
    assert resolution.found["b[12]"] == {"b1", "b2"}
    assert resolution.found["nothing"] == frozenset()
    assert resolution.found["[ab]0"] == {"a0", "b0"}


def test_a_pattern_that_nobody_has_any_more_is_not_resolved() -> None:
    resolution = Resolution(["a", "b"], 7)
    resolution.step(Regexes(), ["a", "b"], 3)
    assert not resolution.has(["b"])
    assert resolution.step(Regexes(), ["a"], 5) == 5
    assert resolution.has(["a"])
