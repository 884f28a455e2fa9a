"""The classic protocol: who joins, who leads, who is told what, and what silence costs."""

from dataclasses import replace

import pytest
from group_samples import SETTINGS, Home, subscription

from ottla.core.groups.classic_group import ClassicGroup, State
from ottla.wire.errors import Error, Refused


def group_of(home: Home, group_id: str = "g") -> ClassicGroup:
    group = home.shard.groups[group_id]
    assert isinstance(group, ClassicGroup)
    return group


# Joining.


def test_a_new_member_joins_a_second_time_with_the_id_it_was_given() -> None:
    """One whose first answer was lost would otherwise stay as a ghost until its session is over (KIP-394)."""
    home = Home()
    told = home.join()
    assert (told.error_code, told.member_id) == (Error.MEMBER_ID_REQUIRED, "client-uuid1")
    assert home.join("client-uuid1") not in home.answers
    assert group_of(home).members.keys() == {"client-uuid1"}


def test_older_clients_are_members_at_once() -> None:
    home = Home()
    token = home.join(version=3)
    home.advance(3_000)
    assert home.answers[token].error_code == Error.NONE
    assert home.answers[token].member_id == home.answers[token].leader


def test_the_first_generation_waits_for_members_as_long_as_they_come() -> None:
    home = Home()
    _, first = home.enter()
    home.advance(2_000)
    _, second = home.enter()
    home.advance(1_000)
    assert home.answers == {}, "a member came during the delay, which begins again"
    home.advance(2_999)
    assert home.answers == {}
    home.advance(1)
    assert {home.answers[one].generation_id for one in (first, second)} == {1}


def test_the_delay_ends_with_the_rebalance_timeout() -> None:
    """However many members come, the first of them does not wait longer than it said."""
    home = Home()
    _, first = home.enter(rebalance_ms=7_000)
    for _ in range(5):
        home.advance(1_500)
        home.enter(rebalance_ms=7_000)
    assert first in home.answers


def test_only_the_leader_is_told_who_is_in_the_group() -> None:
    home = Home()
    leader, first = home.enter()
    other, second = home.enter()
    home.advance(6_000)
    assert home.answers[first].leader == home.answers[second].leader == leader
    assert [one.member_id for one in home.answers[first].members] == [leader, other]
    assert home.answers[first].members[0].metadata == subscription("t")
    assert home.answers[second].members == []


def test_the_protocol_is_one_that_all_have_and_most_prefer() -> None:
    home = Home()
    _, one = home.enter(protocols={"a": b"1", "b": b"1"})
    home.enter(protocols={"b": b"2", "a": b"2"})
    home.enter(protocols={"b": b"3", "c": b"3", "a": b"3"})
    home.advance(9_000)
    assert home.answers[one].protocol_name == "b"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"protocols": {}}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "instance": "i"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_cannot_join_a_new_group(arguments: dict[str, str], error: Error) -> None:
    assert Home().join(**arguments).error_code == error  # type: ignore[arg-type]


def test_who_shares_no_protocol_stays_out() -> None:
    home = Home()
    home.stable(2)
    assert home.join(protocols={"sticky": b""}).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert home.join(protocol_type="connect").error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert group_of(home).phase is State.STABLE


def test_a_full_group_takes_nobody_else() -> None:
    home = Home(replace(SETTINGS, members_max=2))
    ids = home.stable(2)
    assert home.join().error_code == Error.GROUP_MAX_SIZE_REACHED
    assert home.heartbeat(ids[0], 1) is Error.NONE


def test_a_group_that_would_not_fit_into_its_record_takes_nobody_else() -> None:
    home = Home()
    home.stable(1)
    with pytest.raises(Refused, match=r"max\.message\.bytes"):
        home.join(protocols={"range": bytes(100_000)})
    assert group_of(home).phase is State.STABLE


def test_a_lost_answer_is_given_again_without_a_rebalance() -> None:
    home = Home()
    member, _ = home.enter()
    home.advance(3_000)
    again = home.join(member)
    assert (again.generation_id, [one.member_id for one in again.members]) == (1, [member])
    changed = home.join(member, protocols={"range": b"changed"})
    assert changed.generation_id == 2, "what it says has changed: a rebalance, of one member"


def test_a_follower_that_joins_a_stable_group_again_changes_nothing() -> None:
    home = Home()
    _, follower = home.stable(2)
    assert home.join(follower).generation_id == 1
    assert group_of(home).phase is State.STABLE


def test_the_leader_that_joins_again_wants_another_assignment() -> None:
    home = Home()
    leader, follower = home.stable(2)
    home.join(leader)
    assert home.heartbeat(follower, 1) is Error.REBALANCE_IN_PROGRESS
    home.join(follower)
    assert group_of(home).generation_id == 2


# Syncing.


def test_the_assignment_goes_to_everybody_untouched_once_it_is_written() -> None:
    home = Home()
    leader, first = home.enter()
    follower, _ = home.enter()
    home.advance(6_000)
    waiting = home.sync(follower, 1)
    assert waiting not in home.answers
    records = len(home.log)
    told = home.sync(leader, 1, {leader: b"\x00mine", follower: b"yours"})
    assert (told.assignment, home.answers[waiting].assignment) == (b"\x00mine", b"yours")
    assert len(home.log) == records + 1
    assert home.sync(follower, 1).assignment == b"yours"
    assert home.answers[first].protocol_name == "range"


def test_who_was_forgotten_by_the_leader_gets_nothing_and_stays() -> None:
    home = Home()
    leader, _ = home.enter()
    follower, _ = home.enter()
    home.advance(6_000)
    waiting = home.sync(follower, 1)
    home.sync(leader, 1, {leader: b"all"})
    assert (home.answers[waiting].error_code, home.answers[waiting].assignment) == (Error.NONE, b"")


@pytest.mark.parametrize(
    ("member_id", "generation", "protocol_name", "error"),
    [
        ("stranger", 1, None, Error.UNKNOWN_MEMBER_ID),
        (None, 0, None, Error.ILLEGAL_GENERATION),
        (None, 2, None, Error.ILLEGAL_GENERATION),
        (None, 1, "sticky", Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_syncs_that_are_refused(member_id: str | None, generation: int, protocol_name: str, error: Error) -> None:
    home = Home()
    (leader,) = home.stable(1)
    assert home.sync(member_id or leader, generation, protocol_name=protocol_name).error_code == error


def test_a_rebalance_ends_the_wait_for_an_assignment() -> None:
    home = Home()
    home.enter()
    follower, _ = home.enter()
    home.advance(6_000)
    waiting = home.sync(follower, 1)
    home.enter()
    assert home.answers[waiting].error_code == Error.REBALANCE_IN_PROGRESS


def test_who_does_not_sync_in_time_is_out() -> None:
    """The others would wait for ever for a leader that is gone."""
    home = Home()
    leader, _ = home.enter(session_ms=60_000)
    follower, _ = home.enter(session_ms=60_000)
    home.advance(6_000)
    waiting = home.sync(follower, 1)
    home.advance(30_000)
    assert home.answers[waiting].error_code == Error.REBALANCE_IN_PROGRESS
    assert leader not in group_of(home).members
    token = home.join(follower)
    assert token.leader == follower


def test_an_assignment_too_large_for_a_record_is_refused_to_all() -> None:
    home = Home()
    leader, _ = home.enter()
    home.advance(3_000)
    told = home.sync(leader, 1, {leader: bytes(100_001)})
    assert told.error_code == Error.UNKNOWN_SERVER_ERROR
    assert group_of(home).phase is State.PREPARING_REBALANCE


# Silence.


def test_silence_costs_the_membership_and_heartbeats_keep_it() -> None:
    home = Home()
    quiet, lively = home.stable(2)
    for _ in range(3):
        home.advance(4_000)
        home.heartbeat(lively, 1)
    assert home.heartbeat(lively, 1) is Error.REBALANCE_IN_PROGRESS
    assert group_of(home).members.keys() == {lively}
    assert home.heartbeat(quiet, 1) is Error.UNKNOWN_MEMBER_ID


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    home = Home()
    (member,) = home.stable(1)
    for _ in range(3):
        home.advance(9_000)
        assert home.commit({("t", 0): 1}, member, 1) is Error.NONE


@pytest.mark.parametrize("request_", ["join", "sync"])
def test_who_is_told_its_part_again_is_heard(request_: str) -> None:
    """Otherwise a member is out, and its partitions somebody else's, right after it was told that they are its own."""
    home = Home()
    leader, follower = home.stable(2)
    for _ in range(3):
        home.advance(9_000)
        home.heartbeat(leader, 1)
        if request_ == "join":
            assert home.join(follower).generation_id == 1
        else:
            assert home.sync(follower, 1).error_code == Error.NONE
    assert group_of(home).members.keys() == {leader, follower}


def test_who_waits_for_an_answer_is_not_silent() -> None:
    home = Home()
    leader, follower = home.stable(2, session_ms=5_000, rebalance_ms=60_000)
    home.join(leader, session_ms=5_000, rebalance_ms=60_000)
    for _ in range(5):
        home.advance(4_000)
        home.heartbeat(follower, 1)
    assert group_of(home).members.keys() == {leader, follower}


def test_a_new_member_whose_client_is_gone_is_given_up_on() -> None:
    """It owes no heartbeat while it waits, so its first wait is bounded."""
    home = Home()
    leader, _ = home.stable(2, session_ms=60_000, rebalance_ms=10_000_000)
    new, token = home.enter(session_ms=10_000, rebalance_ms=10_000_000)
    for _ in range(10):
        home.advance(31_000)
        home.heartbeat(leader, 1)
    assert new not in group_of(home).members
    assert home.answers[token].error_code == Error.UNKNOWN_MEMBER_ID


def test_who_never_comes_back_with_its_id_is_forgotten() -> None:
    home = Home()
    home.join()
    assert group_of(home).pending_joins
    home.advance(10_000)
    assert not group_of(home).pending_joins


def test_who_does_not_join_again_in_time_is_out() -> None:
    home = Home()
    leader, follower = home.stable(2, rebalance_ms=5_000)
    token = home.join(leader, rebalance_ms=5_000)
    home.advance(5_000)
    assert [one.member_id for one in home.answers[token].members] == [leader]
    assert home.heartbeat(follower, 2) is Error.UNKNOWN_MEMBER_ID


def test_a_group_that_lost_everybody_is_empty_and_says_so_in_the_log() -> None:
    home = Home()
    home.stable(2)
    home.advance(30_000)
    group = group_of(home)
    assert (group.phase, group.generation_id, group.members) == (State.EMPTY, 2, {})
    assert group.written is not None
    assert group.written.members == []


# Leaving.


def test_leaving_makes_the_others_rebalance_at_once() -> None:
    home = Home()
    leader, follower = home.stable(2)
    assert home.leave(leader, "stranger") == [Error.NONE, Error.UNKNOWN_MEMBER_ID]
    assert home.heartbeat(follower, 1) is Error.REBALANCE_IN_PROGRESS
    assert home.join(follower).leader == follower


def test_the_last_one_leaves_an_empty_group() -> None:
    home = Home()
    (member,) = home.stable(1)
    home.leave(member)
    assert group_of(home).phase is State.EMPTY
    with pytest.raises(Refused, match="no group"):
        home.leave(member, group="other")


def test_a_member_that_leaves_while_it_joins_is_told_so() -> None:
    home = Home()
    member, token = home.enter()
    assert home.leave(member) == [Error.NONE]
    assert home.answers[token].error_code == Error.UNKNOWN_MEMBER_ID


def test_an_id_that_was_never_used_can_be_given_back() -> None:
    home = Home()
    told = home.join()
    assert home.leave(told.member_id) == [Error.NONE]
    assert not group_of(home).pending_joins


# Static members.


def static(home: Home, instance: str, **arguments: object) -> tuple[str, object]:
    token = home.join(instance=instance, **arguments)  # type: ignore[arg-type]
    return group_of(home).static_ids[instance], token


def stable_static(home: Home, *instances: str, session_ms: int = 10_000) -> list[str]:
    joined = [static(home, instance, session_ms=session_ms) for instance in instances]
    home.advance(9_000)
    for (member_id, _), instance in reversed([*zip(joined, instances, strict=True)]):
        home.sync(member_id, 1, {one: one.encode() for one, _ in joined}, instance=instance)
    return [member_id for member_id, _ in joined]


def test_a_restarted_static_member_gets_its_old_assignment_without_a_rebalance() -> None:
    home = Home()
    leader, old = stable_static(home, "a", "b")
    told = home.join(instance="b")
    assert (told.error_code, told.generation_id, told.skip_assignment) == (Error.NONE, 1, False)
    assert told.member_id != old
    assert home.sync(told.member_id, 1, instance="b").assignment == old.encode()
    assert home.heartbeat(leader, 1, instance="a") is Error.NONE
    assert group_of(home).written.members[-1].member_id == told.member_id  # type: ignore[union-attr]


def test_a_restarted_leader_is_told_to_skip_the_assignment() -> None:
    """It would otherwise compute one that nobody asked for (KIP-814); older clients are told that another leads."""
    home = Home()
    old, _ = stable_static(home, "a", "b")
    told = home.join(instance="a")
    assert (told.skip_assignment, told.leader, len(told.members)) == (True, told.member_id, 2)
    older = home.join(instance="a", version=8)
    assert (older.skip_assignment, older.leader, older.members) == (False, told.member_id, [])
    assert old not in group_of(home).members


def test_the_old_one_is_fenced() -> None:
    home = Home()
    _, old = stable_static(home, "a", "b")
    home.join(instance="b")
    assert home.heartbeat(old, 1, instance="b") is Error.FENCED_INSTANCE_ID
    assert home.sync(old, 1, instance="b").error_code == Error.FENCED_INSTANCE_ID
    assert home.join(old, instance="b").error_code == Error.FENCED_INSTANCE_ID
    assert home.commit({("t", 0): 1}, old, 1, instance="b") is Error.FENCED_INSTANCE_ID
    assert home.leave(old, instance="b") == [Error.FENCED_INSTANCE_ID]
    assert home.heartbeat(old, 1) is Error.UNKNOWN_MEMBER_ID


def test_one_that_waits_is_told_that_another_took_its_place() -> None:
    home = Home()
    old, token = static(home, "a")
    home.join(instance="a")
    assert home.answers[token].error_code == Error.FENCED_INSTANCE_ID  # type: ignore[index]
    assert home.answers[token].member_id == old  # type: ignore[index]


def test_a_restart_within_the_session_is_no_rebalance_and_a_longer_one_is() -> None:
    home = Home()
    leader, _ = stable_static(home, "a", "b")
    home.advance(9_000)
    assert home.heartbeat(leader, 1, instance="a") is Error.NONE
    home.advance(1_000)
    assert home.heartbeat(leader, 1, instance="a") is Error.REBALANCE_IN_PROGRESS
    assert group_of(home).static_ids.keys() == {"a"}


def test_a_static_member_keeps_its_place_in_a_rebalance_that_it_misses() -> None:
    home = Home()
    joined = [static(home, "a", session_ms=60_000), static(home, "b", session_ms=60_000)]
    home.advance(9_000)
    (leader, _), (other, _) = joined
    home.sync(other, 1, instance="b")
    home.sync(leader, 1, {leader: b"x", other: b"y"}, instance="a")
    token = home.join(leader, instance="a", session_ms=60_000)
    home.advance(30_000)
    assert [one.member_id for one in home.answers[token].members] == [leader, other]


def test_static_members_are_removed_by_instance() -> None:
    """As kafka-consumer-groups and admin clients do it: they know no member ids."""
    home = Home()
    stable_static(home, "a", "b")
    assert home.leave("", instance="b") == [Error.NONE]
    assert home.leave("", instance="c") == [Error.UNKNOWN_MEMBER_ID]
    assert home.leave("") == [Error.UNKNOWN_MEMBER_ID]
    assert group_of(home).static_ids.keys() == {"a"}


# Loading.


def test_a_loaded_group_goes_on_with_its_members_and_their_sessions_begin_anew() -> None:
    home = Home()
    leader, follower = home.stable(2)
    home.reload()
    assert home.heartbeat(leader, 1) is Error.NONE
    assert home.sync(follower, 1).assignment == follower.encode()
    home.advance(9_000)
    assert home.heartbeat(leader, 1) is Error.NONE
    home.advance(2_000)
    assert group_of(home).members.keys() == {leader}


def test_a_group_that_was_rebalancing_is_back_in_the_generation_before() -> None:
    home = Home()
    leader, follower = home.stable(2)
    home.join(leader)
    home.reload()
    assert (group_of(home).phase, group_of(home).generation_id) == (State.STABLE, 1)
    assert home.heartbeat(follower, 1) is Error.NONE


def test_a_loaded_group_that_is_too_large_now_shrinks() -> None:
    home = Home()
    leader, _, _ = home.stable(3)
    home.settings = replace(SETTINGS, members_max=2)
    home.reload()
    assert home.heartbeat(leader, 1) is Error.REBALANCE_IN_PROGRESS


def test_a_clock_that_is_set_costs_nobody_its_membership() -> None:
    home = Home()
    (member,) = home.stable(1)
    home.now_ms += 3_600_000
    home.shard.clock_set(3_600_000)
    home.advance(9_000)
    assert home.heartbeat(member, 1) is Error.NONE
    home.advance(10_000)
    assert home.heartbeat(member, 1) is Error.UNKNOWN_MEMBER_ID
