"""ConsumerGroupHeartbeat: joining, sharing, giving up, leaving, being fenced."""

from typing import Any

import pytest
from consumer_harness import (
    ASSIGNMENT_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Consumer,
    Coordinator,
    durable,
    settle_all,
)

from ottla.core.groups.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec
from ottla.core.groups.consumer.member import MemberState
from ottla.core.groups.group import Committer, GroupClient
from ottla.wire.api.consumer_group_heartbeat import TopicPartitions
from ottla.wire.errors import Error, Refused
from ottla.wire.records import consumer_groups as wire


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator({"foo": 6, "bar": 3})


def refusal(consumer: Consumer, **changes: Any) -> Error:
    with pytest.raises(Refused) as refused:
        consumer.send(**changes)
    return refused.value.error


def kinds(coordinator: Coordinator) -> list[str]:
    return [type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key") for record in coordinator.log]


def test_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo", "bar", "unknown"])
    response = one.send()
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m1", 2, 5_000)
    assert (one.partitions("foo"), one.partitions("bar")) == ([0, 1, 2, 3, 4, 5], [0, 1, 2])
    assert coordinator.group().state == "Stable"


def test_a_join_writes_what_kafka_writes(coordinator: Coordinator) -> None:
    """A directory goes back and forth between the two."""
    coordinator.client("m1", topics=["foo"]).send()
    assert kinds(coordinator) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    member, epoch, target, target_epoch, current = (record.value for record in coordinator.log)
    foo = coordinator.topics.id_of("foo")
    assert member == wire.ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=["foo"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=30_000,
        server_assignor=None,
        classic_member_metadata=None,
    )
    assert isinstance(epoch, wire.ConsumerGroupMetadataValue)
    assert (epoch.epoch, epoch.metadata_hash) == (2, coordinator.topics.view.hash_of(["foo"]))
    partitions = [0, 1, 2, 3, 4, 5]
    assert target == wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[wire.TopicPartition(topic_id=foo, partitions=partitions)]
    )
    assert target_epoch == wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=2, assignment_timestamp=coordinator.now_ms
    )
    assert current == wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[
            wire.TopicPartitions(topic_id=foo, partitions=partitions, assignment_epochs=[2] * len(partitions))
        ],
        partitions_pending_revocation=[],
    )


def test_a_heartbeat_that_changes_nothing_writes_nothing(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    written = len(coordinator.log)
    response = one.send()
    assert (response.assignment, len(coordinator.log)) == (None, written)
    full = one.send(rebalance_timeout_ms=30_000, subscribed_topic_names=["foo"])
    assert full.assignment is not None
    assert len(coordinator.log) == written


def test_a_newcomer_waits_until_the_others_have_given_up(coordinator: Coordinator) -> None:
    """The old owner keeps its epoch until it reports that it owns none of it any more."""
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    two.send()
    assert (two.epoch, two.partitions("foo")) == (3, [])
    before = one.request()
    response = coordinator.heartbeat(before)
    assert response.member_epoch == 2, "it has yet to give up"
    assert coordinator.group().members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert coordinator.group().state == "Reconciling"
    two.send()
    assert two.partitions("foo") == []
    one.take(response)
    one.send()
    assert (one.epoch, one.partitions("foo")) == (3, [0, 1, 2])
    two.send()
    assert two.partitions("foo") == [3, 4, 5]
    assert coordinator.group().state == "Stable"


def test_targets_are_not_computed_more_often_than_the_interval_allows(coordinator: Coordinator) -> None:
    """A thousand members that join at once cost one assignment, not a thousand."""
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    two.send()
    assert (coordinator.group().epoch, coordinator.group().assignment_epoch) == (3, 2)
    assert coordinator.group().state == "Assigning"
    coordinator.advance(ASSIGNMENT_MS)
    two.send()
    assert coordinator.group().assignment_epoch == 3


def test_three_members_share_evenly_and_one_that_leaves_is_replaced(coordinator: Coordinator) -> None:
    members = [coordinator.client(f"m{n}", topics=["foo"]) for n in range(3)]
    for member in members:
        member.send()
    settle_all(coordinator, *members)
    assert [len(member.partitions("foo")) for member in members] == [2, 2, 2]
    members[0].leave()
    settle_all(coordinator, *members[1:])
    assert [len(member.partitions("foo")) for member in members[1:]] == [3, 3]


def test_members_of_a_large_group_get_what_the_assignor_gives() -> None:
    """There the target's balance stands in for a look at everyone; nobody may tell the difference."""
    coordinator = Coordinator({"foo": 200}, {"group.consumer.assignment.interval.ms": "0"})
    foo, partitions = coordinator.topics.id_of("foo"), 200
    for number in range(150):
        before = dict(coordinator.group().target) if number else {}
        coordinator.client(f"m{number * 61 % 150}", topics=["foo"]).send()
        group = coordinator.group()
        specs = dict.fromkeys(group.members, MemberSpec({foo}))
        changed = ASSIGNORS["uniform"](GroupSpec(specs, {foo: partitions}, is_homogeneous=True, assigned=before))
        assert group.target == before | changed
        if number == 100:
            partitions = 260
            coordinator.topics.grow("foo", partitions)
            coordinator.client("m0", topics=["foo"]).leave()


def test_a_silent_member_is_taken_out(coordinator: Coordinator) -> None:
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    two.send()
    settle_all(coordinator, one, two)
    for _ in range(SESSION_MS // HEARTBEAT_MS + 2):
        coordinator.advance(HEARTBEAT_MS)
        two.send()
    assert list(coordinator.group().members) == ["m2"]
    assert len(two.partitions("foo")) == 6
    assert refusal(one) is Error.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_taken_out(coordinator: Coordinator) -> None:
    """It still sends heartbeats, so its session alone would never end."""
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    two.send()
    held = one.owned
    for _ in range(7):
        if "m1" in coordinator.group().members:
            one.send()
            one.owned = held
        coordinator.advance(HEARTBEAT_MS)
        two.send()
    assert list(coordinator.group().members) == ["m2"]
    two.send()
    assert len(two.partitions("foo")) == 6


def test_the_epoch_before_is_taken_when_the_answer_was_lost(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    lost = coordinator.heartbeat(one.request(subscribed_topic_names=["foo", "bar"]))
    assert (one.epoch, lost.member_epoch) == (2, 3)
    again = one.send(subscribed_topic_names=["foo", "bar"], rebalance_timeout_ms=30_000)
    assert (again.error_code, one.epoch, one.partitions("bar")) == (Error.NONE, 3, [0, 1, 2])
    assert refusal(one, member_epoch=1) is Error.FENCED_MEMBER_EPOCH
    assert refusal(one, member_epoch=9) is Error.FENCED_MEMBER_EPOCH


def test_the_epoch_before_with_more_than_it_has_is_fenced(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    coordinator.heartbeat(one.request(subscribed_topic_names=["foo", "bar"]))
    claimed = [TopicPartitions(topic_id=coordinator.topics.id_of("foo"), partitions=[7])]
    assert refusal(one, topic_partitions=claimed) is Error.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_with_epoch_zero(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    one.epoch, one.owned = 0, {}
    one.send()
    assert (one.epoch, len(one.partitions("foo"))) == (2, 6)


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions(coordinator: Coordinator) -> None:
    static = coordinator.client("m1", topics=["foo"], instance_id="i1")
    other = coordinator.client("m2", topics=["foo"])
    static.send()
    other.send()
    settle_all(coordinator, static, other)
    had, epoch = static.partitions("foo"), coordinator.group().epoch
    static.leave()
    assert coordinator.group().members["m1"].member_epoch == -2
    back = coordinator.client("m3", topics=["foo"], instance_id="i1")
    back.send()
    assert (back.partitions("foo"), coordinator.group().epoch) == (had, epoch)
    assert sorted(coordinator.group().members) == ["m2", "m3"]


def test_a_static_member_that_does_not_come_back_is_taken_out(coordinator: Coordinator) -> None:
    static, other = coordinator.client("m1", topics=["foo"], instance_id="i1"), coordinator.client("m2", topics=["foo"])
    static.send()
    other.send()
    settle_all(coordinator, static, other)
    static.leave()
    for _ in range(SESSION_MS // HEARTBEAT_MS + 2):
        coordinator.advance(HEARTBEAT_MS)
        other.send()
    assert len(other.partitions("foo")) == 6


def test_an_instance_id_in_use_is_not_given_away(coordinator: Coordinator) -> None:
    static = coordinator.client("m1", topics=["foo"], instance_id="i1")
    static.send()
    thief = coordinator.client("m2", topics=["foo"], instance_id="i1")
    assert refusal(thief) is Error.UNRELEASED_INSTANCE_ID
    assert refusal(thief, member_epoch=2) is Error.FENCED_INSTANCE_ID
    assert refusal(coordinator.client("m1", instance_id="i2"), member_epoch=2) is Error.UNKNOWN_MEMBER_ID


def test_a_topic_that_is_dropped_is_given_up_even_before_a_new_target(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo", "bar"])
    one.send()
    one.send(subscribed_topic_names=["foo"])
    assert one.partitions("bar") == []
    assert one.partitions("foo") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("change", ["grow", "delete", "recreate", "create"])
def test_topics_that_change_bring_a_new_epoch(coordinator: Coordinator, change: str) -> None:
    one = coordinator.client("m1", topics=["foo", "bar", "later"])
    one.send()
    epoch = coordinator.group().epoch
    coordinator.advance(ASSIGNMENT_MS)
    topics = coordinator.topics
    if change == "grow":
        topics.grow("bar", 4)
    elif change == "create":
        topics.create("later", 1)
    else:
        topics.delete("bar")
    if change == "recreate":
        topics.create("bar", 2)
    one.send()
    one.send()
    assert coordinator.group().epoch == epoch + 1
    owned = {topics.view.image.topics_by_id[topic].name: len(parts) for topic, parts in one.owned.items()}
    assert (
        owned
        == {
            "grow": {"foo": 6, "bar": 4},
            "delete": {"foo": 6},
            "recreate": {"foo": 6, "bar": 2},
            "create": {"foo": 6, "bar": 3, "later": 1},
        }[change]
    )


def test_a_topic_of_somebody_else_changes_nothing(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    written = len(coordinator.log)
    coordinator.topics.grow("bar", 9)
    one.send()
    assert len(coordinator.log) == written


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": " "}, Error.INVALID_REQUEST),
        ({"member_id": ""}, Error.INVALID_REQUEST),
        ({"instance_id": ""}, Error.INVALID_REQUEST),
        ({"rack_id": ""}, Error.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, Error.INVALID_REQUEST),
        ({"topic_partitions": None}, Error.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]}, Error.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        ({"member_epoch": -2}, Error.INVALID_REQUEST),
        ({"member_epoch": -3}, Error.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, Error.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, Error.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, Error.GROUP_ID_NOT_FOUND),
        ({"subscribed_topic_regex": "foo("}, Error.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(a)\\1"}, Error.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing(
    coordinator: Coordinator, changes: dict[str, Any], error: Error
) -> None:
    assert refusal(coordinator.client("m1", topics=["foo"]), **changes) is error
    assert coordinator.log == []
    assert coordinator.shard.groups == {}


def test_version_zero_is_given_a_member_id(coordinator: Coordinator) -> None:
    one = coordinator.client("", topics=["foo"])
    assert coordinator.heartbeat(one.request(), version=0).member_id == "uuid-1"


def test_a_full_group_takes_nobody_in() -> None:
    coordinator = Coordinator({"foo": 6}, {"group.consumer.max.size": "1"})
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    assert refusal(two) is Error.GROUP_MAX_SIZE_REACHED
    assert one.send().error_code == Error.NONE


def test_the_assignor_that_most_members_ask_for_is_used(coordinator: Coordinator) -> None:
    members = [coordinator.client(f"m{n}", topics=["foo", "bar"], assignor="range") for n in range(2)]
    for member in members:
        member.send()
    settle_all(coordinator, *members)
    assert [member.partitions("bar") for member in members] == [[0, 1], [2]]
    assert coordinator.shard.consumer.describe("g").assignor_name == "range"


def test_a_groups_own_settings_count_within_the_bounds(coordinator: Coordinator) -> None:
    coordinator.topics.configure("g", "consumer.heartbeat.interval.ms", "7000")
    coordinator.topics.configure("g", "consumer.session.timeout.ms", "1")
    one = coordinator.client("m1", topics=["foo"])
    assert one.send().heartbeat_interval_ms == 7_000
    coordinator.advance(SESSION_MS - 1)
    assert "m1" in coordinator.group().members, (
        "the shortest session allowed, not what was set before there were bounds"
    )
    coordinator.advance(1)
    assert coordinator.group().is_empty


def test_sessions_begin_anew_after_a_restart(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    coordinator.advance(SESSION_MS - 1)
    coordinator.restart()
    coordinator.advance(SESSION_MS - 1)
    assert one.send().error_code == Error.NONE
    coordinator.advance(SESSION_MS)
    assert coordinator.group().is_empty


def test_an_expired_group_is_loaded_as_it_was_left(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"], regex="ba.*")
    one.send()
    coordinator.advance(SESSION_MS)
    assert coordinator.group().is_empty
    assert durable(coordinator.loaded_from(coordinator.log)) == durable(coordinator.shard)
    coordinator.decide(lambda shard, _now, _token: shard.delete(["g"]))
    assert coordinator.shard.groups == {}
    assert coordinator.loaded_from(coordinator.log).groups == {}


# Patterns.


def test_a_pattern_is_resolved_after_the_heartbeat_that_brings_it(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", regex="fo+|b.r")
    one.send()
    assert one.owned == {}
    assert coordinator.group().resolved_regexes["fo+|b.r"].topics == {"foo", "bar"}
    one.send()
    assert (len(one.partitions("foo")), len(one.partitions("bar"))) == (6, 3)
    assert coordinator.group().subscriptions.are_homogeneous(1)


def test_patterns_of_many_topics_are_resolved_a_slice_at_a_time() -> None:
    """A group may bring many patterns, and a cluster have many topics: nobody else is held up for as long as it takes.

    One that is brought meanwhile is resolved with the others.
    """
    coordinator = Coordinator({f"t-{number}": 1 for number in range(1_500)})
    one, two = coordinator.client("m1", regex="t-1.*"), coordinator.client("m2", regex="t-2.*")
    client = GroupClient("client", "/127.0.0.1", 1)

    def joins(who: Consumer) -> None:
        coordinator.decide(lambda shard, now_ms, _: shard.consumer.heartbeat(who.request(), client, now_ms))

    def ticks() -> int:
        """How many times a shard has to do what is due until nothing is."""
        before, count = len(coordinator.log), 0
        while coordinator.shard.next_deadline() == coordinator.now_ms:
            assert len(coordinator.log) == before, "nothing is written down before all of it is known"
            coordinator.tick()
            count += 1
        return count

    joins(one)
    coordinator.tick()
    assert coordinator.group().resolved_regexes == {}
    joins(two)
    assert ticks() == 2
    found = coordinator.group().resolved_regexes
    assert {regex: len(one.topics) for regex, one in found.items()} == {"t-1.*": 611, "t-2.*": 111}
    assert not coordinator.shard.consumer._here.resolutions


def test_a_pattern_finds_new_topics_and_forgets_deleted_ones(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", regex="foo.*")
    one.send()
    coordinator.topics.create("foo2", 2)
    coordinator.advance(HEARTBEAT_MS)
    one.send()
    assert "foo2" not in coordinator.group().subscriptions.matched, "patterns are not resolved all the time"
    coordinator.advance(2 * HEARTBEAT_MS)
    one.send()
    one.send()
    assert one.partitions("foo2") == [0, 1]
    coordinator.topics.delete("foo")
    coordinator.advance(ASSIGNMENT_MS)
    one.send()
    one.send()
    assert [len(parts) for parts in one.owned.values()] == [2]


def test_a_pattern_whose_topics_stay_the_same_brings_no_new_epoch(coordinator: Coordinator) -> None:
    """A topic elsewhere makes the group look again; what it finds is what it had."""
    one = coordinator.client("m1", regex="foo")
    one.send()
    one.send()
    epoch = coordinator.group().epoch
    coordinator.topics.create("other", 1)
    one.send()
    coordinator.advance(3 * HEARTBEAT_MS)
    one.send()
    assert coordinator.group().epoch == epoch


def test_the_last_subscriber_takes_its_pattern_along(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", regex="foo")
    two = coordinator.client("m2", regex="foo")
    one.send()
    two.send()
    one.leave()
    assert "foo" in coordinator.group().resolved_regexes
    two.send(subscribed_topic_regex="", subscribed_topic_names=["bar"])
    assert coordinator.group().resolved_regexes == {}
    assert not coordinator.group().subscriptions.matched


def test_a_member_that_gives_up_a_pattern_leaves_it_to_the_others(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", regex="foo")
    two = coordinator.client("m2", regex="foo")
    one.send()
    two.send()
    one.send(subscribed_topic_regex="", subscribed_topic_names=["bar"])
    assert coordinator.group().resolved_regexes["foo"].topics == {"foo"}


# Offsets.


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("m1", 3, 9, None),
        ("m1", 3, 8, Error.UNSUPPORTED_VERSION),
        ("m1", 4, 9, Error.STALE_MEMBER_EPOCH),
        ("m9", 3, 9, Error.UNKNOWN_MEMBER_ID),
        ("", -1, 9, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_are_checked_against_the_members_epoch(
    coordinator: Coordinator, member_id: str, epoch: int, version: int, error: Error | None
) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    one.send(subscribed_topic_names=["foo", "bar"])
    assert one.epoch == 3
    committer = Committer(member_id, None, epoch, version)
    if error is None:
        assert coordinator.group().check_commit(committer) is None
    else:
        with pytest.raises(Refused) as refused:
            coordinator.group().check_commit(committer)
        assert refused.value.error is error


def test_an_older_epoch_commits_what_the_member_has_had_since(coordinator: Coordinator) -> None:
    """A rebalance that leaves a partition where it is must not make its commits fail."""
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    one.send(subscribed_topic_names=["foo", "bar"])
    check = coordinator.group().check_commit(Committer("m1", None, 2, 9))
    assert check is not None
    check("foo", coordinator.topics.id_of("foo"), 0)
    for topic, partition in (("bar", 0), ("foo", 99)):
        with pytest.raises(Refused) as refused:
            check(topic, coordinator.topics.id_of(topic), partition)
        assert refused.value.error is Error.STALE_MEMBER_EPOCH


def test_who_is_no_member_commits_while_the_group_is_empty(coordinator: Coordinator) -> None:
    one = coordinator.client("m1", topics=["foo"])
    one.send()
    group = coordinator.group()
    assert group.check_commit(Committer("", None, -1, 9, is_transactional=True)) is None
    one.leave()
    assert group.check_commit(Committer("", None, -1, 9)) is None


def test_a_description_tells_what_is_owned_and_what_is_wanted(coordinator: Coordinator) -> None:
    one, two = coordinator.client("m1", topics=["foo"]), coordinator.client("m2", topics=["foo"])
    one.send()
    coordinator.advance(ASSIGNMENT_MS)
    two.send()
    coordinator.heartbeat(one.request())
    told = coordinator.shard.consumer.describe("g")
    assert (told.group_state, told.group_epoch, told.assignment_epoch, told.assignor_name) == (
        "Reconciling",
        3,
        3,
        "uniform",
    )
    first = next(member for member in told.members if member.member_id == "m1")
    assert [one.partitions for one in first.assignment.topic_partitions] == [[0, 1, 2, 3, 4, 5]]
    assert [one.partitions for one in first.target_assignment.topic_partitions] == [[0, 1, 2]]
    assert (first.member_type, first.client_host, first.subscribed_topic_names) == (1, "/127.0.0.1", ["foo"])
    assert coordinator.shard.consumer.describe("none").error_code == Error.GROUP_ID_NOT_FOUND
