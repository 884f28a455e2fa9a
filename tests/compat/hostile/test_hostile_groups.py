"""Members and producers that no group should suffer from: each gets the error that Kafka gives, and the members of the
group beside it keep what they have."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from nodes.ottla_node import MIB, OttlaNode, running_node, wait_until
from nodes.topics import KEEPING, QUICK_GROUPS, Server
from nodes.wire import Wire
from peers.client import Client
from peers.clusters import fresh
from victims import ASSIGNMENT, Victims, join_request, range_protocol, sync_request

from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.join_group import JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import Error

pytestmark = pytest.mark.usefixtures("honest")

LONGEST = 2**15 - 1
"""Bytes of the longest string that a request may hold."""
PATTERNS = 400
SOON = {"session_timeout_ms": 1_000, "rebalance_timeout_ms": 1_000}
"""A member that stops is missed."""
TRANSACTION = 1
"""FindCoordinator's type of key."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with running_node(tmp_path_factory.mktemp("ottla"), KEEPING | QUICK_GROUPS) as started:
        yield started


# What hostile members say; what they are answered is compared.


def wrong_generations(victims: Victims) -> Iterator[Any]:
    group, member, generation = victims.classic, victims.member, victims.generation
    for who, when in ((member, generation + 1), (member, generation - 1), (member, -1), ("x", generation), ("", 0)):
        request = HeartbeatRequest(group_id=group, generation_id=when, member_id=who)
        yield victims.wire.call(request, 4).error_code
        yield victims.sync(group, who, when).error_code
        yield victims.commit(group, who, when, offset=99)
    for epoch in (victims.epoch + 1, victims.epoch - 1, 2**31 - 1, -4):
        yield victims.beat("honest", epoch).error_code
        yield victims.commit(victims.consumer, "honest", epoch, offset=99)
    yield victims.beat("x", victims.epoch).error_code
    yield victims.commit(victims.consumer, "x", victims.epoch, offset=99)
    for name in (group, victims.consumer):
        identities = [MemberIdentity(member_id="x"), MemberIdentity(member_id="", group_instance_id="x")]
        answer = victims.wire.call(LeaveGroupRequest(group_id=name, members=identities), 5)
        yield answer.error_code, [one.error_code for one in answer.members]
        yield victims.join("x", group_id=name).error_code
        yield victims.commit(name, offset=99)


def wrong_generations_in_transactions(victims: Victims) -> Iterator[Any]:
    """Whose offsets would count when the transaction ends."""
    transactional_id = f"{victims.topic}-offsets"
    told = first_answer(victims, transactional_id)
    sender = (transactional_id, told.producer_id, told.producer_epoch)
    for group, member, generation in (
        (victims.classic, victims.member, victims.generation + 1),
        (victims.classic, "x", victims.generation),
        (victims.classic, "", -1),
        (victims.consumer, "honest", victims.epoch + 1),
        (victims.consumer, "x", victims.epoch),
        (victims.consumer, "", -1),
        ("", "", -1),
    ):
        yield commit_in_transaction(victims, sender, group, member, generation)
    for stranger in ((transactional_id, told.producer_id, told.producer_epoch + 1), (transactional_id, 2**60, 0)):
        yield commit_in_transaction(victims, stranger, victims.classic, victims.member, victims.generation)
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        committed=False,
    )
    yield victims.wire.call(request, 5).error_code


def first_answer(victims: Victims, transactional_id: str) -> Any:
    """Once there is a coordinator."""
    answers: list[Any] = []

    def is_answered() -> bool:
        victims.wire.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), 4)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answers.append(victims.wire.call(request, 5))
        return answers[-1].error_code not in (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)

    wait_until(is_answered, "transactions have a coordinator")
    return answers[-1]


def commit_in_transaction(
    victims: Victims, sender: tuple[str, int, int], group: str, member: str, generation: int, metadata: str = ""
) -> Error:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=99, committed_metadata=metadata)
    request = TxnOffsetCommitRequest(
        transactional_id=sender[0],
        group_id=group,
        producer_id=sender[1],
        producer_epoch=sender[2],
        generation_id=generation,
        member_id=member,
        topics=[TxnOffsetCommitRequestTopic(name=victims.topic, partitions=[partition])],
    )
    return Error(victims.wire.call(request, 5).topics[0].partitions[0].error_code)


def oversized_metadata(victims: Victims) -> Iterator[Any]:
    """Lengths are those of Java's strings: two for what is beyond the first 65,536 characters."""
    for text in ("x" * 4096, "x" * 4097, "é" * 4096, "é" * 4097, "🦦" * 2048, "🦦" * 2049, "x" * LONGEST):
        yield victims.commit(victims.classic, victims.member, victims.generation, metadata=text)
        yield victims.commit(victims.consumer, "honest", victims.epoch, metadata=text)


def long_transactional_ids(victims: Victims) -> Iterator[Any]:
    first_answer(victims, victims.topic)
    for transactional_id in ("", "x" * LONGEST, "é" * (LONGEST // 2)):
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
        yield victims.wire.call(request, 4).coordinators[0].error_code
        answer = victims.wire.call(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5
        )
        yield len(transactional_id), answer.error_code
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            committed=True,
        )
        yield victims.wire.call(request, 5).error_code


def long_group_ids(victims: Victims) -> Iterator[Any]:
    for group in ("", "x" * LONGEST):
        yield victims.wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code
        joined = victims.join(group_id=group)
        yield joined.error_code
        joined = victims.join(joined.member_id, group_id=group)
        yield joined.error_code
        yield victims.sync(group, joined.member_id, joined.generation_id).error_code
        yield victims.commit(group)
        yield victims.commit(group, "x", 1)
        yield victims.commit(group, joined.member_id, joined.generation_id)
        yield victims.committed(group)
        of_the_other_protocol = group.replace("x", "y")
        yield victims.beat("a", 0, group_id=of_the_other_protocol).error_code
        for name in (group, of_the_other_protocol):
            described = victims.wire.call(DescribeGroupsRequest(groups=[name]), 5).groups[0]
            yield described.error_code, described.group_state
            deleted = victims.wire.call(DeleteGroupsRequest(groups_names=[name]), 2).results[0]
            yield deleted.error_code


def huge_assignments(victims: Victims) -> Iterator[Any]:
    """A group is one record, which must fit into a batch."""
    group = f"{victims.topic}-huge"
    told = victims.join(victims.join(group_id=group).member_id, group_id=group)
    yield told.error_code
    request = sync_request(group, told.member_id, told.generation_id)
    request.assignments[0].assignment = bytes(3 * MIB)
    yield victims.wire.call(request, 5).error_code
    yield victims.commit(group, told.member_id, told.generation_id)
    beat = HeartbeatRequest(group_id=group, generation_id=told.generation_id, member_id=told.member_id)
    yield victims.wire.call(beat, 4).error_code


def absent_partitions(victims: Victims) -> Iterator[Any]:
    def places(count: int, metadata: str = "") -> list[OffsetCommitRequestPartition]:
        return [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata=metadata)
            for number in range(1, count + 1)
        ]

    group, who = victims.classic, (victims.member, victims.generation)
    for topics in (
        [OffsetCommitRequestTopic(name="absent", partitions=places(20_000))],
        [OffsetCommitRequestTopic(name=f"absent-{number}", partitions=places(1)) for number in range(5_000)],
        [OffsetCommitRequestTopic(name=victims.topic, partitions=places(3_000))],
        [OffsetCommitRequestTopic(name=victims.topic, partitions=places(20_000, "x" * 100))],
    ):
        codes = victims.commit_all(group, topics, *who)
        yield len(codes), set(codes)


def hostile_patterns(victims: Victims) -> Iterator[Any]:
    """What backtracking takes the age of the universe for, on a topic's name that is made for it."""
    patterns = [
        "(a+)+",
        "(a|a)*b",
        "(a|aa)+$",
        "(.*)*x",
        "((((a*)*)*)*)*b",
        "(a?){200}a{200}",
        "a{1000}",
        "(" * 2_000 + "a" + ")" * 2_000,
        "|".join(["a"] * 10_000),
        "[" + "a-z" * 10_000 + "]",
        "x" * LONGEST,
        "\0",
        "[",
        "a\\",
        "(?P<n>a)(",
        r"\8",
        "(?i)" * 1_000,
    ]
    for number, pattern in enumerate(patterns):
        group = f"{victims.topic}-pattern-{number}"
        fields = {"group_id": group, "subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        yield pattern[:30], victims.beat("a", 0, **fields).error_code
    made_for_it = "a" * 200 + victims.topic[-10:]
    Client(victims.bootstrap).create_topics({made_for_it: {}}, {})
    for number, pattern in enumerate(["(a|a)*(a|aa)*.{10}", "((((a*)*)*)*)*[^a]?.*", "a{100}(.*)*"]):
        group = f"{victims.topic}-match-{number}"
        fields = {"group_id": group, "subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        wait_until(partial(_gets_partitions, victims, fields), f"{pattern} finds its topic")


def _gets_partitions(victims: Victims, subscribed: dict[str, Any]) -> bool:
    """Rejoins with every look, so that the answer has all that the member may own."""
    told = victims.beat("a", 0, **subscribed)
    assert told.error_code == Error.NONE
    return told.assignment is not None and bool(told.assignment.topic_partitions)


ACTS: list[Callable[[Victims], Iterator[Any]]] = [
    wrong_generations,
    wrong_generations_in_transactions,
    oversized_metadata,
    long_transactional_ids,
    long_group_ids,
    huge_assignments,
    absent_partitions,
    hostile_patterns,
]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_is_answered_as_by_kafka_and_harms_nobody(
    node: OttlaNode, kafka: Server, act: Callable[[Victims], Iterator[Any]]
) -> None:
    answers, name = [], fresh("victims")
    for server in (kafka, node):
        victims = Victims(server, name)
        answers.append(list(act(victims)))
        victims.assert_unharmed()
        victims.close()
    theirs, ours = answers
    assert ours == theirs


# Where Kafka lets the others suffer.


@pytest.fixture
def victims(node: OttlaNode) -> Iterator[Victims]:
    made = Victims(node, fresh("victims"))
    yield made
    made.assert_unharmed()
    made.close()


@pytest.mark.parametrize(
    "protocols",
    [
        [JoinGroupRequestProtocol(name="range", metadata=bytes(3 * MIB))],
        [JoinGroupRequestProtocol(name="x" * LONGEST, metadata=bytes(MIB)), range_protocol()],
        [range_protocol()] + [JoinGroupRequestProtocol(name=f"range{i}", metadata=bytes(2 * MIB)) for i in range(8)],
    ],
    ids=["large", "large beside small", "many"],
)
def test_member_that_fits_into_no_record_does_not_join(
    victims: Victims, protocols: list[JoinGroupRequestProtocol]
) -> None:
    """Kafka lets it in; from then on nobody in the group gets an assignment."""
    told = victims.join(group_id=victims.classic, protocols=protocols)
    told = victims.join(told.member_id, group_id=victims.classic, protocols=protocols)
    assert told.error_code == Error.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "pattern",
    ["(a{1000}){1000}", "((a{100}){100}){100}", "(((((a{30}){30}){30}){30}){30})", r"\pN" * 1_000],
    ids=lambda pattern: pattern[:30],
)
def test_pattern_that_explodes_is_refused(victims: Victims, pattern: str) -> None:
    """Kafka takes the memory."""
    told = victims.beat("a", 0, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert told.error_code == Error.INVALID_REGULAR_EXPRESSION


def test_patterns_without_end_take_no_memory_without_end(victims: Victims) -> None:
    """The fixture looks at the node's memory."""
    group = f"{victims.topic}-patterns"
    subscribed = {"group_id": group, "subscribed_topic_names": None}
    told = victims.beat("a", 0, **subscribed, subscribed_topic_regex="x")
    for number in range(PATTERNS):
        pattern = f"{number}" + "x" * 32_000
        told = victims.beat("a", told.member_epoch, **subscribed, subscribed_topic_regex=pattern)
        assert told.error_code == Error.NONE


# Members that stop half-way.


@pytest.fixture(params=["node", "kafka"])
def either(request: pytest.FixtureRequest) -> Iterator[Victims]:
    """Here both do the same."""
    made = Victims(request.getfixturevalue(request.param), fresh("victims"))
    yield made
    made.assert_unharmed()
    made.close()


def members(victims: Victims, group: str) -> tuple[str, list[str]]:
    described = victims.wire.call(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    return described.group_state, sorted(one.member_id for one in described.members)


def test_member_that_never_comes_back_with_its_id_is_no_member(either: Victims) -> None:
    with Wire(either.bootstrap) as stranger:
        told = stranger.call(join_request(group_id=either.classic, **SOON), 9)
        assert told.error_code == Error.MEMBER_ID_REQUIRED
    assert members(either, either.classic) == ("Stable", [either.member])


def test_member_that_hangs_up_while_it_joins_is_waited_for_once(either: Victims) -> None:
    """The others are asked to rejoin, get their assignment, and once more when it is missed."""
    with Wire(either.bootstrap) as stranger:
        told = stranger.call(join_request(group_id=either.classic, **SOON), 9)
        stranger.send(join_request(told.member_id, group_id=either.classic, **SOON), 9)
    wait_until(lambda: either.heartbeat() == Error.REBALANCE_IN_PROGRESS, "the group rebalances")
    assert either.rejoin() == Error.NONE
    assert members(either, either.classic) == ("Stable", sorted([either.member, told.member_id]))
    wait_until(lambda: either.heartbeat() == Error.REBALANCE_IN_PROGRESS, "it is missed")
    assert either.rejoin() == Error.NONE
    assert members(either, either.classic) == ("Stable", [either.member])


def test_leader_that_stops_before_it_assigns_is_replaced(either: Victims) -> None:
    """Whoever waits for an assignment hears that there will be none, and makes one."""
    group = f"{either.topic}-led"
    follower = either.join(group_id=group).member_id
    with Wire(either.bootstrap) as leader:
        told = leader.call(join_request(group_id=group, **SOON), 9)
        request = join_request(told.member_id, group_id=group, **SOON)
        assert leader.call(request, 9).leader == told.member_id
        with Wire(either.bootstrap) as waiting:
            waiting.send(join_request(follower, group_id=group), 9)
            wait_until(lambda: members(either, group)[0] == "PreparingRebalance", "the leader shall rejoin")
            leader.send(request, 9)
            joined = waiting.receive(request, 9)
        assert joined.leader == told.member_id
    assert either.sync(group, follower, joined.generation_id).error_code == Error.REBALANCE_IN_PROGRESS
    joined = either.join(follower, group_id=group)
    assert joined.leader == follower
    assert either.sync(group, follower, joined.generation_id).assignment == ASSIGNMENT
    assert members(either, group) == ("Stable", [follower])
