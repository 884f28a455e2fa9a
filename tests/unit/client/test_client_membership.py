"""The member of a KIP-848 group: what its heartbeats say, and in which order partitions go and come."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.membership import LEAVE, LEAVE_FOR_A_WHILE, Membership, Next, Slot
from ottla.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T = b"t" * 16
SLOTS = [Slot(T, number) for number in range(4)]


def member(**options: str) -> Membership:
    return Membership("g", "m", ["t"], **options)  # type: ignore[arg-type]


def answer(epoch: int, partitions: list[int] | None = None) -> ConsumerGroupHeartbeatResponse:
    assigned = (
        None
        if partitions is None
        else Assignment(topic_partitions=[TopicPartitions(topic_id=T, partitions=partitions)])
    )
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_epoch=epoch, heartbeat_interval_ms=1_000, assignment=assigned
    )


def test_the_first_heartbeat_says_everything_and_the_next_nothing() -> None:
    one = member()
    first = one.heartbeat(0)
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
    assert first.rebalance_timeout_ms == 300_000
    one.answered(answer(1), 0)
    assert one.due_ms == 1_000
    second = one.heartbeat(1_000)
    assert (second.member_epoch, second.subscribed_topic_names, second.topic_partitions) == (1, None, None)
    assert second.rebalance_timeout_ms == -1


def test_a_heartbeat_without_an_answer_is_followed_by_one_that_says_everything() -> None:
    one = member()
    one.heartbeat(0)
    one.answered(answer(1, [0]), 0)
    one.took([SLOTS[0]])
    one.heartbeat(0)
    one.unanswered(retry_at_ms=70)
    assert one.due_ms == 70
    again = one.heartbeat(70)
    assert again.subscribed_topic_names == ["t"]
    assert again.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0])]


def test_what_goes_goes_before_anything_comes_and_both_are_told_at_once() -> None:
    one = member()
    one.heartbeat(0)
    assert one.answered(answer(1, [0, 1]), 0) is Next.RECONCILE
    one.took(one.to_take)
    assert one.is_settled
    assert one.due_ms == 0
    one.heartbeat(0)
    assert one.answered(answer(2, [1, 2]), 0) is Next.RECONCILE
    assert (one.to_release, one.to_take) == ([SLOTS[0]], [])
    one.released([SLOTS[0]])
    assert one.due_ms == 0
    assert one.heartbeat(0).topic_partitions == [TopicPartitions(topic_id=T, partitions=[1])]
    assert one.to_take == [SLOTS[2]]


def test_who_is_put_out_owns_nothing_and_joins_anew() -> None:
    one = member()
    one.heartbeat(0)
    one.answered(answer(5, [0, 1]), 0)
    one.took(one.to_take)
    assert one.is_out() == SLOTS[:2]
    assert one.due_ms == 0
    one.took(SLOTS[:1])  # By somebody who began before.
    assert one.owned == {}
    joins = one.heartbeat(0)
    assert (joins.member_epoch, joins.topic_partitions, joins.subscribed_topic_names) == (0, [], ["t"])


def test_a_static_member_leaves_for_a_while() -> None:
    assert member().farewell().member_epoch == LEAVE
    assert member(instance_id="i").farewell().member_epoch == LEAVE_FOR_A_WHILE


@given(st.lists(st.tuples(st.sampled_from(["assign", "release", "take", "beat", "lost"]), st.sets(st.integers(0, 3)))))
def test_nothing_is_owned_that_was_not_assigned_and_the_coordinator_hears_of_all(
    steps: list[tuple[str, set[int]]],
) -> None:
    """Two members would read one partition, or the coordinator would wait for one for ever."""
    one = member()
    one.heartbeat(0)
    epoch, ever_assigned, told = 1, set[Slot](), set[Slot]()
    one.answered(answer(epoch, []), 0)
    for step, numbers in steps:
        if step == "assign":
            epoch += 1
            one.answered(answer(epoch, sorted(numbers)), 0)
            ever_assigned |= {SLOTS[number] for number in numbers}
        elif step == "release":
            one.released(one.to_release)
        elif step == "take":
            assert not (one.to_take and one.to_release)
            one.took(one.to_take)
        elif step == "lost":
            one.is_out()
            told = set()
        elif one.due_ms == 0 or numbers:
            sent = one.heartbeat(0).topic_partitions
            if sent is not None:
                told = {Slot(topic.topic_id, number) for topic in sent for number in topic.partitions}
        assert set(one.owned) <= ever_assigned
        assert told == set(one.owned) or one.due_ms == 0
