"""Records of consumer groups by the short way: the same bytes, and the same group, as one by one."""

from collections.abc import Callable

import pytest
from consumer_harness import TYPES

from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.member import ClassicMemberMetadata, Member, MemberState
from ottla.core.runtime.shard import CoordinatorRecord, encode_record

A, B = b"a" * 16, b"b" * 16
CLASSIC = ClassicMemberMetadata(45_000, (("range", b"said"), ("roundrobin", b"")))
PLAIN = Member("m-1", client_id="c", client_host="/127.0.0.1", topic_names=frozenset(("t", "s")))
FULL = Member(
    "m-2",
    7,
    6,
    MemberState.UNREVOKED_PARTITIONS,
    "instance",
    "rack",
    60_000,
    "client",
    "/::1",
    frozenset(("t",)),
    "t.*",
    "range",
    {A: {3: 5, 1: 7}, B: {0: 6}},
    {B: {2: 4}},
    CLASSIC,
)
PARTS: list[Assignment] = [
    {},
    {A: frozenset()},
    {A: frozenset((300, 2, 1))},
    {A: frozenset(range(126))},
    {A: frozenset(range(127))},
    {B: frozenset((1,)), A: frozenset((2, 0))},
]
OWNED = (1, 2, 31, 32, 200)
Decide = Callable[[GroupRecords], None]


def cases() -> list[tuple[Decide, CoordinatorRecord]]:
    parts: list[tuple[Decide, CoordinatorRecord]] = [
        (lambda run, part=part: run.target("m-1", part), written.target_record("g", "m-1", part))  # type: ignore[misc]
        for part in PARTS
    ]
    owners = [PLAIN._replace(member_epoch=4, assigned={A: dict.fromkeys(range(n), 4)}) for n in OWNED]
    currents: list[tuple[Decide, CoordinatorRecord]] = [
        (lambda run, owner=owner: run.current(owner), written.current_record("g", owner))  # type: ignore[misc]
        for owner in [*owners, owners[1]._replace(pending_revocation={B: {1: 2}})]
    ]
    return [
        *parts,
        (lambda run: run.member(PLAIN), written.member_record("g", PLAIN)),
        (lambda run: run.member(FULL), written.member_record("g", FULL)),
        (lambda run: run.current(PLAIN), written.current_record("g", PLAIN)),
        (lambda run: run.current(FULL), written.current_record("g", FULL)),
        *currents,
        (lambda run: run.epoch(3, 0), written.epoch_record("g", 3, 0)),
        (lambda run: run.epoch(4, -9), written.epoch_record("g", 4, -9)),
        (lambda run: run.target_epoch(4, 1_234_567), written.target_epoch_record("g", 4, 1_234_567)),
        (lambda run: run.target_epoch(4, 0), written.target_epoch_record("g", 4, 0)),
        (lambda run: run.other(written.no_regex("g", "t.*")), written.no_regex("g", "t.*")),
    ]


@pytest.mark.parametrize(("decide", "record"), cases())
def test_a_record_has_the_bytes_of_its_kind(decide: Decide, record: CoordinatorRecord) -> None:
    run = GroupRecords("g")
    decide(run)
    key, value = encode_record(record)
    assert (run.keys, run.values) == ([key], [value])
    assert run.size == len(key) + len(value or b"")
    assert run[0] == TYPES.decode(key, value)


def test_the_group_becomes_what_its_records_say() -> None:
    run, changed, replayed = GroupRecords("g"), ConsumerGroup("g"), ConsumerGroup("g")
    run.member(PLAIN)
    run.target("m-1", {A: frozenset((1, 2))})
    run.epoch(5, 77)
    run.target_epoch(5, 1_000)
    run.current(PLAIN._replace(member_epoch=5, previous_member_epoch=0, assigned={A: {2: 5, 1: 5}}))
    run.other(written.no_partition_metadata("g"))
    run.change(changed)
    for record in run:
        replayed.replay(record.key, record.value)
    assert vars(changed) == vars(replayed)
    assert changed.members["m-1"].assigned == {A: {1: 5, 2: 5}}
    assert len(run[1:3]) == 2
