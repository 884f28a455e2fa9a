"""A group changes its protocol while it runs: classic members in a consumer group, there and back."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from consumer_harness import ASSIGNMENT_MS, Consumer, Coordinator, durable, settle_all

from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer.embedded import read_assignment
from ottla.core.groups.group import GroupClient
from ottla.core.runtime.decision import PARKED, Token
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.codec import encode
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from ottla.wire.errors import Error, Refused

VERSION = 3
REBALANCE_MS = 20_000


class ClassicConsumer:
    """A client of the classic protocol with one assignor."""

    def __init__(
        self, coordinator: Coordinator, topics: list[str], *, instance_id: str | None = None, protocol: str = "range"
    ) -> None:
        self.coordinator = coordinator
        self.topics = topics
        self.instance_id = instance_id
        self.protocol = protocol
        self.member_id = ""
        self.generation_id = -1
        self.owned: dict[str, list[int]] = {}

    def join(self) -> JoinGroupResponse:
        """As far as the first answer; a classic group may have it wait."""
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[TopicPartition(topic=topic, partitions=p) for topic, p in self.owned.items()],
        )
        metadata = VERSION.to_bytes(2, "big") + encode(subscription, VERSION)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )
        client = GroupClient("old", "/127.0.0.1", 9)
        response = self._answered(lambda shard, now_ms, token: shard.join(request, client, now_ms, token))
        assert isinstance(response, JoinGroupResponse)
        self.member_id = response.member_id
        if response.error_code == Error.MEMBER_ID_REQUIRED:
            return self.join()
        self.generation_id = response.generation_id
        return response

    def sync(self, assignments: Mapping[str, dict[str, list[int]]] | None = None) -> SyncGroupResponse:
        """With assignments: as the leader."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=embedded(parts))
                for member_id, parts in (assignments or {}).items()
            ],
        )
        response = self._answered(lambda shard, now_ms, token: shard.sync(request, now_ms, token))
        assert isinstance(response, SyncGroupResponse)
        if response.error_code == Error.NONE:
            told = read_assignment(response.assignment)
            self.owned = {one.topic: one.partitions for one in told.assigned_partitions}
        return response

    def heartbeat(self) -> Error:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return Error(self._answered(lambda shard, now_ms, _: shard.heartbeat(request, now_ms)).error_code)

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self.member_id)])
        self._answered(lambda shard, now_ms, _: shard.leave(request, now_ms))

    def follow(self) -> None:
        """Join again and sync when told to."""
        if self.heartbeat() is Error.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()

    def _answered(self, handle: Any) -> Any:
        seen: list[Token] = []

        def noting(shard: Any, now_ms: int, token: Token) -> Any:
            seen.append(token)
            return handle(shard, now_ms, token)

        reply = self.coordinator.decide(noting)
        self.coordinator.settle()
        if reply is PARKED:
            self.coordinator.advance(3_000)
            reply = self.coordinator.told.pop(seen[0])
        return reply


def embedded(partitions: Mapping[str, list[int]], user_data: bytes | None = None) -> bytes:
    told = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=topic, partitions=p) for topic, p in partitions.items()],
        user_data=user_data,
    )
    return VERSION.to_bytes(2, "big") + encode(told, VERSION)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator({"foo": 6})


@pytest.fixture
def old(coordinator: Coordinator) -> ClassicConsumer:
    """The only member of a stable classic group, with all partitions."""
    member = ClassicConsumer(coordinator, ["foo"])
    member.join()
    member.sync({member.member_id: {"foo": [0, 1, 2, 3, 4, 5]}})
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)
    return member


def mixed(coordinator: Coordinator, old: ClassicConsumer) -> Consumer:
    """A consumer joins, and both come to rest."""
    new = coordinator.client("new", topics=["foo"])
    new.send()
    for _ in range(4):
        coordinator.advance(ASSIGNMENT_MS)
        old.follow()
        new.send()
    return new


def log_gives_the_same(coordinator: Coordinator) -> bool:
    return durable(coordinator.loaded_from(coordinator.log)) == durable(coordinator.shard)


def test_a_consumer_that_joins_makes_the_group_a_consumer_group(coordinator: Coordinator, old: ClassicConsumer) -> None:
    new = coordinator.client("new", topics=["foo"])
    new.send()
    assert coordinator.group().members[old.member_id].classic is not None
    assert new.owned == {}, "the classic member has yet to give something up"
    assert old.heartbeat() is Error.REBALANCE_IN_PROGRESS
    new = mixed(coordinator, old)
    assert (old.owned, new.partitions("foo")) == ({"foo": [0, 1, 2]}, [3, 4, 5])
    assert old.heartbeat() is Error.NONE
    assert coordinator.group().state == "Stable"
    assert log_gives_the_same(coordinator)


def test_who_waits_in_the_classic_group_is_told_to_join_again(coordinator: Coordinator, old: ClassicConsumer) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=old.member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    late = ClassicConsumer(coordinator, ["foo"])
    with pytest.raises(KeyError):
        late.join()  # Parked: the group waits for the other one to join again.
    client = GroupClient("old", "/127.0.0.1", 9)
    coordinator.decide(lambda shard, now_ms, token: shard.classic.join(request, client, now_ms, token))
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    waiting = [member.sync_token or member.join_token for member in group.members.values()]
    coordinator.told.clear()
    coordinator.client("new", topics=["foo"]).send()
    told = {token: Error(response.error_code) for token, response in coordinator.told.items()}
    assert told == {token: Error.REBALANCE_IN_PROGRESS for token in waiting if token is not None}


def test_a_classic_member_joins_a_consumer_group(coordinator: Coordinator) -> None:
    new, old = coordinator.client("new", topics=["foo"]), ClassicConsumer(coordinator, ["foo"])
    new.send()
    assert old.join().protocol_name == "range"
    assert old.sync().error_code == Error.NONE
    for _ in range(4):
        coordinator.advance(ASSIGNMENT_MS)
        new.send()
        old.follow()
    assert (len(old.owned["foo"]), len(new.partitions("foo"))) == (3, 3)
    assert coordinator.shard.describe("g", 6).error_code == Error.GROUP_ID_NOT_FOUND


def test_the_last_consumer_that_leaves_makes_the_group_classic(coordinator: Coordinator, old: ClassicConsumer) -> None:
    new = mixed(coordinator, old)
    new.leave()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert log_gives_the_same(coordinator)
    assert (group.state, list(group.members)) == ("PreparingRebalance", [old.member_id])
    assert old.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert old.join().leader == old.member_id
    old.sync({old.member_id: {"foo": [0, 1, 2, 3, 4, 5]}})
    assert coordinator.shard.groups["g"].state == "Stable"


def test_a_consumer_whose_session_ends_makes_the_group_classic(coordinator: Coordinator, old: ClassicConsumer) -> None:
    mixed(coordinator, old)
    for _ in range(10):
        coordinator.advance(5_000)
        if not isinstance(coordinator.shard.groups["g"], ClassicGroup):
            old.follow()
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)


def test_a_static_consumer_that_comes_back_as_a_classic_one_makes_the_group_classic(coordinator: Coordinator) -> None:
    static = coordinator.client("m1", topics=["foo"], instance_id="i1")
    static.send()
    back = ClassicConsumer(coordinator, ["foo"], instance_id="i1")
    joined = back.join()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (list(group.members), group.generation_id) == ([joined.member_id], joined.generation_id)
    assert log_gives_the_same(coordinator)
    assert back.sync().error_code == Error.NONE
    assert back.owned == {"foo": [0, 1, 2, 3, 4, 5]}


def test_a_classic_member_that_does_not_join_again_in_time_is_taken_out(
    coordinator: Coordinator, old: ClassicConsumer
) -> None:
    new = coordinator.client("new", topics=["foo"])
    new.send()
    for _ in range(REBALANCE_MS // 5_000 + 1):
        if old.member_id in coordinator.group().members:
            assert old.heartbeat() is Error.REBALANCE_IN_PROGRESS
        coordinator.advance(5_000)
        new.send()
    assert list(coordinator.group().members) == ["new"]
    new.send()
    assert len(new.partitions("foo")) == 6


@pytest.mark.parametrize(
    ("generation", "protocol", "error"),
    [
        (-1, None, Error.ILLEGAL_GENERATION),
        (0, "roundrobin", Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_must_fit_its_join(
    coordinator: Coordinator, old: ClassicConsumer, generation: int, protocol: str | None, error: Error
) -> None:
    mixed(coordinator, old)
    old.generation_id += generation
    old.protocol = protocol or old.protocol
    with pytest.raises(Refused) as refused:
        old.sync()
    assert refused.value.error is error


def test_a_classic_member_without_a_common_assignor_stays_out(coordinator: Coordinator, old: ClassicConsumer) -> None:
    mixed(coordinator, old)
    with pytest.raises(Refused) as refused:
        ClassicConsumer(coordinator, ["foo"], protocol="sticky").join()
    assert refused.value.error is Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("policy", "upgrades", "downgrades"), [("upgrade", True, False), ("disabled", False, False)])
def test_the_policy_decides_which_way_a_group_may_go(policy: str, upgrades: bool, downgrades: bool) -> None:
    coordinator = Coordinator({"foo": 6}, {"group.consumer.migration.policy": policy})
    old = ClassicConsumer(coordinator, ["foo"])
    old.join()
    old.sync({old.member_id: {"foo": [0, 1, 2, 3, 4, 5]}})
    new = coordinator.client("new", topics=["foo"])
    if not upgrades:
        with pytest.raises(Refused) as refused:
            new.send()
        assert refused.value.error is Error.GROUP_ID_NOT_FOUND
        return
    new = mixed(coordinator, old)
    new.leave()
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup) is downgrades


def test_an_assignor_with_data_of_its_own_keeps_the_group_classic(coordinator: Coordinator) -> None:
    """The consumer protocol has no place for it."""
    old = ClassicConsumer(coordinator, ["foo"])
    old.join()
    old.sync({old.member_id: {"foo": [0]}})
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    group.members[old.member_id].assignment = embedded({"foo": [0]}, b"mine")
    with pytest.raises(Refused, match="data of its own"):
        coordinator.client("new", topics=["foo"]).send()


def test_an_empty_group_becomes_what_its_next_member_is(coordinator: Coordinator, old: ClassicConsumer) -> None:
    old.leave()
    new = coordinator.client("new", topics=["foo"])
    new.send()
    assert len(new.partitions("foo")) == 6
    new.leave()
    assert coordinator.group().is_empty
    again = ClassicConsumer(coordinator, ["foo"])
    again.join()
    assert isinstance(coordinator.shard.groups["g"], ClassicGroup)
    assert coordinator.loaded_from(coordinator.log).groups["g"].type == "classic"


def test_a_mixed_group_survives_a_restart(coordinator: Coordinator, old: ClassicConsumer) -> None:
    new = mixed(coordinator, old)
    coordinator.restart()
    settle_all(coordinator, new, rounds=1)
    assert old.heartbeat() is Error.NONE
    assert coordinator.group().state == "Stable"


def test_what_a_classic_member_brings_is_read_when_it_is_known(coordinator: Coordinator) -> None:
    """A stranger with an id of its own is told so, whatever its subscription looks like."""
    coordinator.client("m1", topics=["foo"]).send()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id="stranger",
        group_instance_id="one",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"odd")],
    )
    with pytest.raises(Refused) as refused:
        coordinator.decide(lambda shard, now_ms, token: shard.join(request, GroupClient("c", "/h", 7), now_ms, token))
    assert refused.value.error is Error.UNKNOWN_MEMBER_ID


def test_a_protocol_of_no_letters_is_told_as_none(coordinator: Coordinator) -> None:
    """As Kafka does since its clients can read null."""
    coordinator.client("new", topics=["foo"]).send()
    assert ClassicConsumer(coordinator, ["foo"], protocol="").join().protocol_name is None


# One owner through any number of changes.


def test_what_a_classic_member_still_owns_survives_the_way_there_and_back(
    coordinator: Coordinator, old: ClassicConsumer
) -> None:
    """The target that was computed meanwhile is not what it has: it was never told."""
    new = coordinator.client("new", topics=["foo"])
    new.send()
    new.leave()
    again = coordinator.client("again", topics=["foo"])
    again.send()
    assert again.partitions("foo") == [], "the classic member has all six, and was not asked to give up any"
    for _ in range(4):
        coordinator.advance(ASSIGNMENT_MS)
        with suppress(Refused):  # ILLEGAL_GENERATION, as for any classic member that missed a rebalance.
            old.follow()
            again.send()
            continue
        old.owned = {}
        old.join()
        old.sync()
        again.send()
    assert sorted([*old.owned["foo"], *again.partitions("foo")]) == [0, 1, 2, 3, 4, 5]


def test_a_member_that_waits_for_the_others_keeps_what_it_was_last_told(coordinator: Coordinator) -> None:
    """A cooperative member goes on reading through a rebalance."""
    staying, going = ClassicConsumer(coordinator, ["foo"]), ClassicConsumer(coordinator, ["foo"])
    staying.join()
    staying.sync({staying.member_id: {"foo": [0, 1, 2]}})
    with pytest.raises(KeyError):
        going.join()  # It waits for the other one, who joins again.
    assert staying.join().error_code == Error.NONE
    going.member_id = next(one for one in coordinator.shard.groups["g"].members if one != staying.member_id)
    assert coordinator.shard.groups["g"].state == "CompletingRebalance"
    going.leave()
    assert coordinator.shard.groups["g"].state == "PreparingRebalance"
    new = coordinator.client("new", topics=["foo"])
    new.send()
    assert new.partitions("foo") == [3, 4, 5]


def test_a_group_that_was_rebalancing_is_assigned_anew_under_the_consumer_protocol(coordinator: Coordinator) -> None:
    """Nobody's subscription changes where one static member takes the place of another, so nothing else asks for it."""
    ClassicConsumer(coordinator, ["foo"], instance_id="i1").join()
    assert coordinator.shard.groups["g"].state == "CompletingRebalance"
    heir = coordinator.client("heir", topics=["foo"], instance_id="i1")
    settle_all(coordinator, heir, rounds=3)
    assert heir.partitions("foo") == [0, 1, 2, 3, 4, 5]


def test_a_group_that_became_classic_rebalances_though_the_coordinator_was_replaced(
    coordinator: Coordinator, old: ClassicConsumer
) -> None:
    """What the last consumer had is nobody's: the others hear of it, or it stays nobody's for ever."""
    new = mixed(coordinator, old)
    new.leave()
    coordinator.restart()
    assert old.heartbeat() is Error.REBALANCE_IN_PROGRESS
    assert old.join().leader == old.member_id
    old.sync({old.member_id: {"foo": [0, 1, 2, 3, 4, 5]}})
    coordinator.restart()
    assert old.heartbeat() is Error.NONE


@pytest.mark.usefixtures("old")
def test_a_static_member_that_comes_back_classic_takes_nothing_that_is_not_given_up(coordinator: Coordinator) -> None:
    static = coordinator.client("m1", topics=["foo"], instance_id="i1")
    static.send()
    assert static.partitions("foo") == [], "the target has three for it, which the other still owns"
    back = ClassicConsumer(coordinator, ["foo"], instance_id="i1")
    back.join()
    group = coordinator.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state == "PreparingRebalance"
    assert back.sync().error_code == Error.ILLEGAL_GENERATION, "it has to join again, with all others"
