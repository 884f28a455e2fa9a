"""Committed offsets: who may commit, what is told, what transactions hide, what expires."""

from dataclasses import replace

import pytest
from group_samples import SETTINGS, Home, durable, subscription
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.groups.offsets import OffsetCommits, tombstone
from ottla.core.runtime.shard import RecordOrigin, encode_record
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequestGroup
from ottla.wire.errors import Error, Refused
from ottla.wire.records.groups import LegacyOffsetCommitKey, LegacyOffsetCommitValue

T0 = ("t", 0)


def delete(home: Home, *places: tuple[str, int], group: str = "g") -> list[Error]:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in places
        ],
    )
    response = home.handle(lambda shard, _now_ms, _: shard.offset_requests.delete(request))
    return [Error(topic.partitions[0].error_code) for topic in response.topics]


# Committing.


def test_what_was_committed_is_told() -> None:
    home = Home()
    assert home.commit({T0: 5}, metadata="here") is Error.NONE
    assert home.fetch() == (5, Error.NONE)
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    (topic,) = home.shard.offset_requests.fetch(asked, require_stable=False).topics
    (told,) = topic.partitions
    assert (topic.name, told.committed_offset, told.committed_leader_epoch, told.metadata) == ("t", 5, 3, "here")


def test_nothing_committed_is_minus_one_whether_the_group_exists_or_not() -> None:
    home = Home()
    home.commit({T0: 5})
    assert home.fetch(index=1) == home.fetch(group="other") == (-1, Error.NONE)
    asked = OffsetFetchRequestGroup(group_id="other", topics=None)
    assert home.shard.offset_requests.fetch(asked, require_stable=False).topics == []


def test_an_offset_of_an_earlier_topic_of_the_same_name_is_not_told() -> None:
    home = Home()
    home.commit({T0: 5})
    offsets = home.shard.offsets.by_group["g"]
    offsets[T0] = offsets[T0]._replace(topic_id=b"a" * 16)
    assert home.fetch(topic_id=b"a" * 16) == home.fetch() == (5, Error.NONE)
    assert home.fetch(topic_id=b"b" * 16) == (-1, Error.NONE)


def test_metadata_has_a_limit() -> None:
    home = Home()
    assert home.commit({T0: 5}, metadata="x" * 100) is Error.NONE
    assert home.commit({T0: 6}, metadata="x" * 101) is Error.OFFSET_METADATA_TOO_LARGE
    assert home.commit({T0: 5}, metadata="é" * 100) is Error.NONE
    assert home.commit({T0: 5}, metadata="🦦" * 50) is Error.NONE
    assert home.commit({T0: 6}, metadata="🦦" * 51) is Error.OFFSET_METADATA_TOO_LARGE, "Java counts two for each"
    assert home.fetch() == (5, Error.NONE)


@pytest.mark.parametrize(
    ("member", "generation", "version", "error"),
    [
        ("", -1, 9, Error.UNKNOWN_MEMBER_ID),
        ("stranger", 1, 9, Error.UNKNOWN_MEMBER_ID),
        ("me", 0, 9, Error.ILLEGAL_GENERATION),
        ("me", 2, 9, Error.ILLEGAL_GENERATION),
        ("me", -1, 9, Error.ILLEGAL_GENERATION),
        ("me", 1, 9, Error.NONE),
    ],
)
def test_in_a_group_with_members_only_they_commit_in_their_generation(
    member: str, generation: int, version: int, error: Error
) -> None:
    home = Home()
    (leader,) = home.stable(1)
    member = leader if member == "me" else member
    assert home.commit({T0: 5}, member, generation, version=version) is error


@pytest.mark.parametrize(("version", "error"), [(8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist_cannot_commit(version: int, error: Error) -> None:
    assert Home().commit({T0: 5}, "member", 3, version=version) is error


def test_nobody_commits_between_joining_and_the_assignment() -> None:
    """It would be an offset of a partition that is someone else's by now."""
    home = Home()
    member, _ = home.enter()
    home.advance(3_000)
    assert home.commit({T0: 5}, member, 1) is Error.REBALANCE_IN_PROGRESS
    home.sync(member, 1, {member: b""})
    assert home.commit({T0: 5}, member, 1) is Error.NONE


def test_members_may_commit_what_they_gave_up_while_the_group_prepares() -> None:
    home = Home()
    leader, follower = home.stable(2)
    home.join(leader)
    assert home.commit({T0: 5}, follower, 1) is Error.NONE


# Transactions.


def test_an_offset_of_a_transaction_is_told_when_it_commits() -> None:
    home = Home()
    home.commit({T0: 1})
    assert home.commit_in_transaction({T0: 5}, 7) is Error.NONE
    assert home.fetch() == (1, Error.NONE)
    assert home.fetch(stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert home.fetch(index=1, stable=True) == (-1, Error.NONE)
    home.end_transaction(7, committed=True)
    assert home.fetch(stable=True) == (5, Error.NONE)


def test_an_offset_of_an_aborted_transaction_never_was() -> None:
    home = Home()
    home.commit({T0: 1})
    home.commit_in_transaction({T0: 5}, 7)
    home.end_transaction(7, committed=False)
    assert home.fetch(stable=True) == (1, Error.NONE)


def test_the_later_record_wins_whenever_its_transaction_ends() -> None:
    home = Home()
    home.commit_in_transaction({T0: 5}, 7)
    home.commit_in_transaction({T0: 6}, 8)
    home.commit({("t", 1): 9})
    home.end_transaction(8, committed=True)
    assert home.fetch(stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    home.end_transaction(7, committed=True)
    assert home.fetch() == (6, Error.NONE)


def test_a_plain_commit_during_a_transaction_stays() -> None:
    home = Home()
    home.commit_in_transaction({T0: 5}, 7)
    home.commit({T0: 6})
    home.end_transaction(7, committed=True)
    assert home.fetch() == (6, Error.NONE)


def test_a_transaction_with_a_generation_is_fenced_like_a_commit() -> None:
    """KIP-447: a producer that serves a consumer which was thrown out must not commit for it."""
    home = Home()
    (member,) = home.stable(1)
    assert home.commit_in_transaction({T0: 5}, 7, member_id=member, generation=1) is Error.NONE
    assert home.commit_in_transaction({T0: 5}, 7, member_id=member, generation=0) is Error.ILLEGAL_GENERATION
    assert home.commit_in_transaction({T0: 5}, 7, member_id="other", generation=1) is Error.UNKNOWN_MEMBER_ID
    assert home.commit_in_transaction({T0: 5}, 7) is Error.NONE, "older producers do not say who they serve"
    assert home.commit_in_transaction({T0: 5}, 7, group="none", generation=1) is Error.ILLEGAL_GENERATION


# Deleting.


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    home = Home()
    (member,) = home.stable(1, protocols={"range": subscription("t")})
    home.commit({T0: 5, ("other", 0): 6}, member, 1)
    assert delete(home, T0, ("other", 0)) == [Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.NONE]
    assert (home.fetch()[0], home.fetch("other")[0]) == (5, -1)


def test_deleting_takes_what_is_pending_too() -> None:
    home = Home()
    home.commit_in_transaction({T0: 5}, 7)
    assert delete(home, T0) == [Error.NONE]
    home.end_transaction(7, committed=True)
    assert home.fetch(stable=True) == (-1, Error.NONE)


def test_offsets_of_a_group_that_does_not_exist_or_reads_unseen_cannot_be_deleted() -> None:
    home = Home()
    with pytest.raises(Refused) as missing:
        delete(home, T0)
    home.stable(1, protocol_type="connect", protocols={"x": b""})
    with pytest.raises(Refused) as busy:
        delete(home, T0)
    assert (missing.value.error, busy.value.error) == (Error.GROUP_ID_NOT_FOUND, Error.NON_EMPTY_GROUP)


def test_where_nobody_knows_what_is_read_nothing_is_deleted() -> None:
    home = Home()
    home.stable(1, protocols={"range": b"?"})
    assert delete(home, T0) == [Error.GROUP_SUBSCRIBED_TO_TOPIC]


def test_an_empty_group_can_be_deleted_with_all_it_has() -> None:
    home = Home()
    home.commit({T0: 5})
    home.commit_in_transaction({("t", 1): 5}, 7)
    (member,) = home.stable(1, group="busy")
    results = home.handle(lambda shard, _now_ms, _: shard.delete(["g", "none", "busy"]))
    assert [one.error_code for one in results] == [Error.NONE, Error.GROUP_ID_NOT_FOUND, Error.NON_EMPTY_GROUP]
    assert home.shard.groups.keys() == {"busy"}
    home.end_transaction(7, committed=True)
    home.reload()
    assert (list(home.shard.groups), home.shard.offsets.by_group) == (["busy"], {})
    assert home.heartbeat(member, 1, group="busy") is Error.NONE


def test_offsets_go_with_their_topic_and_not_with_a_later_one() -> None:
    home = Home()
    home.commit({T0: 5, ("other", 0): 6})
    home.commit_in_transaction({("t", 1): 7}, 7)
    for places, place in ((home.shard.offsets.by_group["g"], T0), (home.shard.offsets.pending[7]["g"], ("t", 1))):
        places[place] = places[place]._replace(topic_id=b"a" * 16)
    home.apply(home.shard.topics_deleted({"t": b"b" * 16}))
    assert home.fetch() == (5, Error.NONE)
    home.apply(home.shard.topics_deleted({"t": b"a" * 16}))
    assert (home.fetch()[0], home.fetch("other")[0]) == (-1, 6)
    home.end_transaction(7, committed=True)
    assert home.fetch(index=1) == (-1, Error.NONE)


# Expiring.


def test_offsets_without_members_expire_after_the_commit() -> None:
    home = Home()
    home.commit({T0: 5})
    home.advance(400_000)
    home.commit({("t", 1): 6})
    home.advance(240_000)
    assert (home.fetch()[0], home.fetch(index=1)[0]) == (-1, 6)
    home.advance(600_000)
    assert home.shard.groups == {}, "a group goes with its last offset"


def test_offsets_of_a_group_expire_after_it_became_empty() -> None:
    home = Home()
    (member,) = home.stable(1, session_ms=60_000)
    home.commit({T0: 5}, member, 1)
    for _ in range(20):
        home.advance(50_000)
        home.heartbeat(member, 1)
    assert home.fetch() == (5, Error.NONE), "its members read the topic"
    home.leave(member)
    home.advance(590_000)
    assert home.fetch() == (5, Error.NONE)
    home.advance(80_000)
    assert home.fetch() == (-1, Error.NONE)


def test_offsets_of_topics_that_a_group_no_longer_reads_expire() -> None:
    home = Home()
    (member,) = home.stable(1, session_ms=60_000)
    home.commit({T0: 5, ("old", 0): 6}, member, 1)
    for _ in range(14):
        home.advance(50_000)
        home.heartbeat(member, 1)
    assert (home.fetch()[0], home.fetch("old")[0]) == (5, -1)


def test_a_commit_may_say_how_long_it_is_kept() -> None:
    """Versions 2 to 4 of OffsetCommit."""
    home = Home()
    home.commit({T0: 5}, retention_ms=70_000, version=4)
    home.commit({("t", 1): 6}, retention_ms=2_000_000, version=4)
    home.advance(130_000)
    assert (home.fetch()[0], home.fetch(index=1)[0]) == (-1, 6)
    home.advance(1_000_000)
    assert home.fetch(index=1) == (6, Error.NONE)


def test_what_a_transaction_has_pending_keeps_an_offset() -> None:
    home = Home()
    home.commit({T0: 5})
    home.commit_in_transaction({T0: 6}, 7)
    home.advance(1_000_000)
    assert home.fetch() == (5, Error.NONE)


def test_offsets_do_not_expire_while_the_shard_loads() -> None:
    """KAFKA-8069: only when all of the log is known is it known what is old."""
    home = Home(replace(SETTINGS, offsets_check_interval_ms=1))
    home.commit({T0: 5})
    home.now_ms += 599_000
    home.commit({T0: 6})
    home.now_ms += 10_000
    home.shard = home.loaded(1)
    assert home.shard.next_deadline() is None
    home.reload()
    home.advance(1_000)
    assert home.fetch() == (6, Error.NONE)


def test_the_oldest_format_is_read() -> None:
    home = Home()
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=home.now_ms)
    home.shard.replay(home.read(b"\0\0" + _bytes(key), b"\0\0" + _bytes(value)), home.origin(0, -1))
    assert home.fetch() == (9, Error.NONE)


def _bytes(message: object) -> bytes:
    from ottla.wire.codec import encode

    return encode(message, 0)


OFFSETS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1)))


@given(OFFSETS)
def test_the_short_way_of_a_commit_leads_to_the_same_bytes_and_state(
    told: list[tuple[int, int, int]],
) -> None:
    """Nobody would notice until the log is read again, maybe by Kafka."""
    commits = OffsetCommits("g\N{SNOWMAN}", 1_000_000)
    for topic, part in (("t", told[::2]), ("u", told[1::2])):
        commits.add(topic, topic.encode() * 16, *([one[field] for one in part] for field in range(3)))
    records = list(commits)
    assert [encode_record(record) for record in records] == list(zip(commits.keys, commits.values, strict=True))
    assert commits.size == sum(map(len, (*commits.keys, *commits.values)))
    short, long = Home().shard, Home().shard
    if records:
        commits.replay(short, 7)
    for offset, record in enumerate(records, 7):
        long.replay(record, RecordOrigin(offset, 1_000_000))
    assert durable(short) == durable(long)


SAME, OTHERS, FEWER = [0, 1, 2], [2, 3], [1]


@given(st.lists(st.tuples(st.sampled_from([SAME, OTHERS, FEWER]), st.booleans()), max_size=8))
def test_commits_that_nobody_looked_at_count_as_if_each_had_been_put_down(
    steps: list[tuple[list[int], bool]],
) -> None:
    """One that the next replaces leaves no trace; one of other partitions, or a tombstone, comes after it."""
    short, long = Home().shard, Home().shard
    at = 0
    for number, (indexes, then_deleted) in enumerate(steps):
        commits = OffsetCommits("g", 1_000_000 + number)
        commits.add("t", b"t" * 16, indexes, [at + index for index in indexes], [-1] * len(indexes))
        commits.replay(short, at)
        for record in commits:
            long.replay(record, RecordOrigin(at, 1_000_000))
            at += 1
        if then_deleted:
            for shard in (short, long):
                shard.replay(tombstone("g", ("t", 2)), RecordOrigin(at, 1_000_000))
            at += 1
    assert durable(short) == durable(long)


# Listing and describing.


def test_groups_are_listed_by_state_and_type() -> None:
    home = Home()
    home.commit({T0: 5}, group="simple")
    home.stable(1, group="busy")
    told = {one.group_id: one for one in home.shard.listed([], [])}
    assert (told["simple"].group_state, told["simple"].protocol_type) == ("Empty", "")
    assert (told["busy"].group_state, told["busy"].group_type) == ("Stable", "classic")
    assert [one.group_id for one in home.shard.listed(["stable"], [])] == ["busy"]
    assert [one.group_id for one in home.shard.listed(["Empty", " STABLE"], ["Classic"])] == ["simple", "busy"]
    assert home.shard.listed([], ["consumer"]) == []


def test_a_group_is_described_with_what_its_members_said_once_it_is_stable() -> None:
    home = Home()
    (member,) = home.stable(1)
    told = home.shard.describe("g", 6)
    assert (told.group_state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    (one,) = told.members
    assert (one.member_id, one.client_id, one.client_host) == (member, "client", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (subscription("t"), member.encode())
    home.join(member, protocols={"range": b"changed"})
    assert home.shard.describe("g", 6).members[0].member_metadata == b""


@pytest.mark.parametrize(("version", "error"), [(5, Error.NONE), (6, Error.GROUP_ID_NOT_FOUND)])
def test_a_group_that_does_not_exist_is_dead(version: int, error: Error) -> None:
    told = Home().shard.describe("g", version)
    assert (told.group_state, told.error_code) == ("Dead", error)
