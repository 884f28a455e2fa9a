"""The server-side assignors: every partition once, balanced, sticky."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.groups.consumer.assignors import ASSIGNORS, Assignment, Balance, GroupSpec, MemberSpec

A, B, C, D = (bytes(15) + bytes([n]) for n in range(1, 5))
TOPICS = (A, B, C, D)


def spec_of(
    subscriptions: Mapping[str, set[bytes]],
    partitions: Mapping[bytes, int],
    assigned: Mapping[str, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    members = {
        member_id: MemberSpec(frozenset(topics), (instances or {}).get(member_id))
        for member_id, topics in subscriptions.items()
    }
    is_homogeneous = len({frozenset(topics) for topics in subscriptions.values()}) <= 1
    return GroupSpec(members, partitions, is_homogeneous, assigned or {})


def assign(name: str, spec: GroupSpec) -> dict[str, Assignment]:
    """What every member has then: an assignor leaves out those who keep what they have."""
    changed = ASSIGNORS[name](spec)
    assert set(changed) <= set(spec.members)
    return {member_id: changed.get(member_id, spec.assigned_to(member_id)) for member_id in spec.members}


def plain(assignment: Mapping[str, Assignment]) -> dict[str, dict[bytes, list[int]]]:
    return {
        member_id: {topic_id: sorted(partitions) for topic_id, partitions in topics.items()}
        for member_id, topics in assignment.items()
    }


def counts(assignment: Mapping[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, topics.values())) for member_id, topics in assignment.items()}


def kept(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    return sum(
        len(set(partitions) & set(after.get(member_id, {}).get(topic_id, ())))
        for member_id, topics in before.items()
        for topic_id, partitions in topics.items()
    )


@st.composite
def groups(draw: st.DrawFn, *, same: bool = False) -> GroupSpec:
    """Members with subscriptions and, in part, an assignment that they have from before."""
    partitions = {topic_id: draw(st.integers(1, 12)) for topic_id in TOPICS}
    member_ids = [f"m{n}" for n in range(draw(st.integers(1, 7)))]
    some_topics = st.sets(st.sampled_from(TOPICS))
    shared = draw(some_topics)
    subscriptions = {member_id: shared if same else draw(some_topics) for member_id in member_ids}
    owners = draw(
        st.lists(st.integers(-1, len(member_ids) - 1), min_size=(total := sum(partitions.values())), max_size=total)
    )
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in member_ids}
    flat = [(topic_id, partition) for topic_id in TOPICS for partition in range(partitions[topic_id])]
    for (topic_id, partition), owner in zip(flat, owners, strict=True):
        if owner >= 0:
            assigned[member_ids[owner]].setdefault(topic_id, set()).add(partition)
    return spec_of(subscriptions, partitions, assigned)


def check_complete(spec: GroupSpec, assignment: Mapping[str, Assignment]) -> None:
    assert set(assignment) == set(spec.members)
    owned = [
        (topic_id, partition)
        for member_id, topics in assignment.items()
        for topic_id, partitions in topics.items()
        for partition in partitions
        if topic_id in spec.members[member_id].topics or pytest.fail(f"{member_id} did not subscribe")
    ]
    wanted = {topic_id for member in spec.members.values() for topic_id in member.topics}
    assert sorted(owned) == sorted((topic, index) for topic in wanted for index in range(spec.partitions[topic]))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(spec=groups())
@settings(max_examples=60)
def test_every_partition_goes_to_one_subscriber(name: str, spec: GroupSpec) -> None:
    """Twice would be read twice, never would never be read."""
    assignment = assign(name, spec)
    check_complete(spec, assignment)
    assert assign(name, spec) == assignment


@given(spec=groups(same=True))
@settings(max_examples=80)
def test_uniform_balances_to_within_one_and_keeps_what_it_can(spec: GroupSpec) -> None:
    """Balance before stickiness; but nobody gives up a partition within its quota."""
    assignment = assign("uniform", spec)
    check_complete(spec, assignment)
    sizes = counts(assignment).values()
    assert max(sizes) - min(sizes) <= 1
    topics = next(iter(spec.members.values())).topics
    quota, more = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(spec.members))
    held = sorted(
        (sum(len(p) for t, p in spec.assigned_to(member_id).items() if t in topics) for member_id in spec.members),
        reverse=True,
    )
    best = sum(min(have, quota + (place < more)) for place, have in enumerate(held))
    assert kept(spec.assigned, assignment) == best


@given(spec=groups())
@settings(max_examples=60)
def test_uniform_is_settled_after_one_assignment(spec: GroupSpec) -> None:
    """A group whose members and topics stay the same must not shuffle partitions at every new epoch."""
    first = assign("uniform", spec)
    again = replace(spec, assigned=first)
    assert plain(assign("uniform", again)) == plain(first)


@given(spec=groups(same=True))
@settings(max_examples=60)
def test_uniform_names_only_those_whose_part_is_another(spec: GroupSpec) -> None:
    """Everyone who joins has it computed: what is named is compared, and what differs is written to the log."""
    changed = ASSIGNORS["uniform"](spec)
    assert all(part != spec.assigned_to(member_id) for member_id, part in changed.items())
    settled = replace(spec, assigned=assign("uniform", spec))
    assert ASSIGNORS["uniform"](settled) == {}


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 30), min_size=1),
    joining=st.lists(st.text("abc", min_size=1, max_size=4), unique=True, min_size=2, max_size=30),
)
@settings(max_examples=60)
def test_one_more_member_gets_what_the_assignor_would_give(partitions: dict[bytes, int], joining: list[str]) -> None:
    """Where the balance knows who gives and how much, it must be those whom a look at everyone finds."""
    balance, assigned = Balance(), dict[str, Assignment]()
    is_known = False
    for number, member_id in enumerate(joining, 1):
        others = sorted(assigned)
        subscriptions = {one: set(partitions) for one in joining[:number]}
        expected = assign("uniform", spec_of(subscriptions, partitions, assigned))
        changed = balance.one_more(member_id, others, assigned, partitions)
        assert changed is None or plain(assigned | changed) == plain(expected)
        is_known = changed is not None
        for one, part in expected.items():
            balance.put(one, assigned.get(one), part)
        assigned = expected
    assert is_known or len(joining) * (len(joining) - 1) < sum(partitions.values()), "the quota fell by one at most"


def test_a_balance_says_nothing_of_what_it_does_not_know() -> None:
    balance, part = Balance(), {A: {0, 1}}
    assert balance.one_more("m2", [], {}, {A: 2}) is None, "nobody has anything"
    balance.put("m1", None, part)
    assert balance.one_more("m2", ["m1"], {"m1": part}, {A: 2}) == {"m1": {A: {0}}, "m2": {A: {1}}}
    assert balance.one_more("m2", ["m1"], {"m1": part}, {A: 3}) is None, "a partition is nobody's"
    assert balance.one_more("m2", ["m1"], {"m1": part}, {B: 2}) is None, "another topic is wanted"
    balance.put("m1", part, None)
    assert balance.one_more("m2", [], {}, {A: 2}) is None


@given(spec=groups())
@settings(max_examples=60)
def test_mixed_subscriptions_are_balanced_topic_by_topic(spec: GroupSpec) -> None:
    """Of two subscribers of a topic, one with two more partitions than the other has none of that topic to give."""
    assignment = assign("uniform", spec)
    size = counts(assignment)
    for one, topics in assignment.items():
        for topic_id in topics:
            for other, member in spec.members.items():
                if topic_id in member.topics:
                    assert size[one] - size.get(other, 0) <= 1


def test_uniform_gives_a_newcomer_its_share_and_moves_nothing_else() -> None:
    before = {"m1": {A: {0, 1, 2}}, "m2": {A: {3, 4, 5}}}
    spec = spec_of({"m1": {A}, "m2": {A}, "m3": {A}}, {A: 6}, before)
    assert plain(assign("uniform", spec)) == {"m1": {A: [0, 1]}, "m2": {A: [3, 4]}, "m3": {A: [2, 5]}}


def test_uniform_takes_back_what_is_no_longer_subscribed() -> None:
    before = {"m1": {A: {0, 1}, B: {0}}, "m2": {B: {1}}}
    spec = spec_of({"m1": {B}, "m2": {B}}, {B: 2}, before)
    assert plain(assign("uniform", spec)) == {"m1": {B: [0]}, "m2": {B: [1]}}


def test_a_group_without_subscriptions_has_nothing() -> None:
    spec = spec_of({"m1": set(), "m2": set()}, {})
    assert all(not one for one in assign("uniform", spec).values())
    assert all(not one for one in assign("range", spec).values())


def test_range_gives_every_member_the_same_stretch_of_each_topic() -> None:
    """Records with equal keys in topics of equal size meet in one member."""
    spec = spec_of({"m1": {A, B}, "m2": {A, B}, "m3": {A, B}}, {A: 4, B: 4})
    assert plain(assign("range", spec)) == {
        "m1": {A: [0, 1], B: [0, 1]},
        "m2": {A: [2], B: [2]},
        "m3": {A: [3], B: [3]},
    }


def test_range_orders_static_members_by_instance_before_the_others() -> None:
    """So a static member that comes back under another id gets the partitions it had."""
    spec = spec_of({"a": {A}, "x": {A}, "y": {A}}, {A: 3}, instances={"y": "i1", "x": "i2"})
    assert plain(assign("range", spec)) == {"y": {A: [0]}, "x": {A: [1]}, "a": {A: [2]}}


def test_range_leaves_out_who_comes_too_late() -> None:
    spec = spec_of({"m1": {A}, "m2": {A}}, {A: 1})
    assert plain(assign("range", spec)) == {"m1": {A: [0]}, "m2": {}}
