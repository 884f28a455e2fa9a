"""Fetch sessions (KIP-227): what a client names once, what it is told again, and who has to give up its place."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.fetch_sessions import (
    FINAL,
    NEW_SESSION,
    NO_SESSION,
    FetchContext,
    FetchKey,
    FetchSession,
    FetchSessions,
)
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.wire.errors import Error, Refused

EVICTION_MS = 1_000
TOPIC_ID = bytes([7]) * 16
EPOCH_MAX = 2**31 - 1


def key(index: int) -> FetchKey:
    return FetchKey("t", TOPIC_ID, index)


def request(
    session_id: int, epoch: int, wanted: Mapping[int, int] | None = None, forgotten: tuple[int, ...] = ()
) -> FetchRequest:
    """`wanted`: offsets by partition."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000)
        for index, offset in (wanted or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=TOPIC_ID, partitions=list(forgotten))]
        if forgotten
        else [],
    )


def data(high_watermark: int = 0, log_start: int = 0, records: bytes = b"", error: Error = Error.NONE) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        aborted_transactions=None,
        records=records,
    )


class Broker:
    def __init__(self, slots: int = 10) -> None:
        self.sessions = FetchSessions(slots, EVICTION_MS)
        self.now_ms = 0
        self._ids = 100

    def ask(self, asked: FetchRequest, *, by_id: bool = True) -> FetchContext:
        self._ids += 1
        return self.sessions.ask(asked, by_id=by_id, new_id=self._ids, now_ms=self.now_ms)

    def open(self, wanted: Mapping[int, int]) -> FetchSession:
        session = self.ask(request(NO_SESSION, NEW_SESSION, wanted)).session
        assert session is not None
        return session

    def refused(self, asked: FetchRequest, **how: Any) -> Error:
        with pytest.raises(Refused) as refused:
            self.ask(asked, **how)
        return refused.value.error


def offsets(asked: FetchContext) -> dict[int, int]:
    return {one.partition: wanted.fetch_offset for one, wanted in asked.wanted}


# Opening and going on.


def test_epoch_0_opens_a_session_and_the_next_epochs_go_on() -> None:
    broker = Broker()
    asked = broker.ask(request(NO_SESSION, NEW_SESSION, {0: 5, 1: 6}))
    assert (asked.is_full, offsets(asked), asked.session_id) == (True, {0: 5, 1: 6}, 101)
    for epoch in (1, 2, 3):
        asked = broker.ask(request(101, epoch))
        assert (asked.is_full, offsets(asked), asked.session_id) == (False, {0: 5, 1: 6}, 101)


def test_without_a_session_nothing_is_remembered() -> None:
    broker = Broker()
    asked = broker.ask(request(NO_SESSION, FINAL, {0: 5}))
    assert (asked.is_full, offsets(asked), asked.session_id) == (True, {0: 5}, NO_SESSION)
    assert len(broker.sessions) == 0


@pytest.mark.parametrize("epoch", [NEW_SESSION, FINAL])
def test_who_begins_anew_or_ends_gives_up_the_session_it_names(epoch: int) -> None:
    broker = Broker()
    old = broker.open({0: 0})
    asked = broker.ask(request(old.session_id, epoch, {0: 0}))
    assert asked.session is not old
    assert broker.refused(request(old.session_id, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert len(broker.sessions) == (1 if epoch == NEW_SESSION else 0)


def test_a_session_may_open_empty() -> None:
    """As in Kafka: the client may name its partitions later."""
    broker = Broker()
    session = broker.ask(request(NO_SESSION, NEW_SESSION)).session
    assert session is not None
    assert offsets(broker.ask(request(session.session_id, 1, {1: 9}))) == {1: 9}


@pytest.mark.parametrize("epoch", [2, 3, EPOCH_MAX])
def test_an_epoch_out_of_turn_is_refused_and_changes_nothing(epoch: int) -> None:
    """A request that was lost or came twice: the client and the broker do not mean the same any more."""
    broker = Broker()
    session = broker.open({0: 5})
    assert broker.refused(request(session.session_id, epoch, {1: 9})) is Error.INVALID_FETCH_SESSION_EPOCH
    assert offsets(broker.ask(request(session.session_id, 1))) == {0: 5}


def test_an_epoch_counts_once() -> None:
    broker = Broker()
    session = broker.open({0: 5})
    broker.ask(request(session.session_id, 1))
    assert broker.refused(request(session.session_id, 1)) is Error.INVALID_FETCH_SESSION_EPOCH
    broker.ask(request(session.session_id, 2))


def test_after_the_largest_epoch_comes_the_first() -> None:
    """0 opens a session, so it is none of them."""
    broker = Broker()
    session = broker.open({0: 5})
    session.epoch = EPOCH_MAX
    broker.ask(request(session.session_id, EPOCH_MAX))
    broker.ask(request(session.session_id, 1))
    broker.ask(request(session.session_id, 2))


def test_a_session_is_by_name_or_by_id() -> None:
    broker = Broker()
    session = broker.open({0: 5})
    error = broker.refused(request(session.session_id, 1), by_id=False)
    assert error is Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_id_that_is_taken_is_not_given_out_again() -> None:
    sessions = FetchSessions(10, EVICTION_MS)
    found = [
        sessions.ask(request(NO_SESSION, NEW_SESSION, {0: 0}), by_id=True, new_id=EPOCH_MAX, now_ms=0).session_id
        for _ in range(3)
    ]
    assert found == [EPOCH_MAX, 1, 2]


# What is wanted.


def test_a_partition_that_is_named_again_is_wanted_from_there_and_others_stay() -> None:
    broker = Broker()
    session = broker.open({0: 5, 1: 6})
    assert offsets(broker.ask(request(session.session_id, 1, {1: 9, 2: 0}))) == {0: 5, 1: 9, 2: 0}
    assert offsets(broker.ask(request(session.session_id, 2))) == {0: 5, 1: 9, 2: 0}


def test_a_forgotten_partition_is_wanted_no_more_and_is_news_when_it_comes_back() -> None:
    broker = Broker()
    session = broker.open({0: 5, 1: 6})
    assert session.has_news(key(1), data(high_watermark=6))
    assert not session.has_news(key(1), data(high_watermark=6))
    assert offsets(broker.ask(request(session.session_id, 1, forgotten=(1,)))) == {0: 5}
    assert offsets(broker.ask(request(session.session_id, 2, {1: 6}))) == {0: 5, 1: 6}
    assert session.has_news(key(1), data(high_watermark=6)), "the client does not know that any more"


def test_one_that_is_forgotten_and_named_at_once_is_forgotten() -> None:
    """As in Kafka."""
    broker = Broker()
    session = broker.open({0: 5, 1: 6})
    assert offsets(broker.ask(request(session.session_id, 1, {1: 9}, forgotten=(1,)))) == {0: 5}


def test_a_session_of_which_everything_is_forgotten_is_over() -> None:
    broker = Broker()
    session = broker.open({0: 5})
    asked = broker.ask(request(session.session_id, 1, forgotten=(0,)))
    assert (asked.session, asked.wanted, len(broker.sessions)) == (None, [], 0)
    assert broker.refused(request(session.session_id, 2)) is Error.FETCH_SESSION_ID_NOT_FOUND


# What is news.


@pytest.mark.parametrize(
    ("told", "is_news"),
    [
        (data(5, 1), False),
        (data(6, 1), True),
        (data(5, 2), True),
        (data(5, 1, b"records"), True),
        (data(5, 1, error=Error.KAFKA_STORAGE_ERROR), True),
    ],
)
def test_a_partition_is_told_of_when_something_is_new(told: PartitionData, is_news: bool) -> None:
    session = Broker().open({0: 5})
    assert session.has_news(key(0), data(5, 1)), "nothing was told before"
    assert session.has_news(key(0), told) is is_news
    if told.error_code == Error.NONE:
        again = data(told.high_watermark, told.log_start_offset)
        assert not session.has_news(key(0), again), "it was told"


def test_an_error_is_told_again_and_so_is_its_end() -> None:
    session = Broker().open({0: 5})
    session.has_news(key(0), data(5))
    for _ in range(2):
        assert session.has_news(key(0), data(5, error=Error.KAFKA_STORAGE_ERROR))
    assert session.has_news(key(0), data(5)), "the client has not heard since that it is over"


def test_partitions_do_not_know_of_each_other() -> None:
    session = Broker().open({0: 0, 1: 0})
    assert session.has_news(key(0), data(5))
    assert session.has_news(key(1), data(5))
    assert not session.has_news(key(0), data(5))


# Turns.


def test_who_returned_records_goes_to_the_back() -> None:
    broker = Broker()
    session = broker.open({0: 0, 1: 0, 2: 0})
    session.has_news(key(0), data(9, records=b"records"))
    session.has_news(key(1), data(9))
    assert list(offsets(broker.ask(request(session.session_id, 1)))) == [1, 2, 0]
    # Where it stands does not change by being asked for again.
    assert list(offsets(broker.ask(request(session.session_id, 2, {2: 1, 0: 1})))) == [1, 2, 0]


@given(partitions=st.integers(1, 6), served=st.integers(1, 3), rounds=st.integers(1, 20))
def test_nobody_starves_though_an_answer_holds_few(partitions: int, served: int, rounds: int) -> None:
    broker = Broker()
    session = broker.open(dict.fromkeys(range(partitions), 0))
    turns = dict.fromkeys(range(partitions), 0)
    for epoch in range(1, rounds + 1):
        asked = broker.ask(request(session.session_id, epoch))
        for one, _ in asked.wanted[:served]:
            session.has_news(one, data(epoch, records=b"records"))
            turns[one.partition] += 1
    assert max(turns.values()) - min(turns.values()) <= 1


# Room.


def test_a_full_cache_keeps_sessions_that_are_used() -> None:
    broker = Broker(slots=1)
    session = broker.open({0: 0})
    broker.now_ms = EVICTION_MS - 1
    assert broker.ask(request(NO_SESSION, NEW_SESSION, {0: 0})).session is None
    broker.ask(request(session.session_id, 1))  # It is used: its rest begins anew.
    broker.now_ms += EVICTION_MS - 1
    assert broker.ask(request(NO_SESSION, NEW_SESSION, {0: 0})).session is None
    broker.ask(request(session.session_id, 2))


def test_one_that_has_rested_for_long_gives_up_its_place() -> None:
    broker = Broker(slots=1)
    old = broker.open({0: 0})
    broker.now_ms = EVICTION_MS
    new = broker.open({0: 0})
    assert len(broker.sessions) == 1
    assert broker.refused(request(old.session_id, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND
    broker.ask(request(new.session_id, 1))


def test_of_those_that_rest_the_one_that_rests_longest_goes() -> None:
    broker = Broker(slots=2)
    first, second = broker.open({0: 0}), broker.open({0: 0})
    broker.now_ms = 10
    broker.ask(request(first.session_id, 1))
    broker.now_ms = EVICTION_MS + 20
    broker.open({0: 0})
    assert broker.refused(request(second.session_id, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND
    broker.ask(request(first.session_id, 2))


def test_without_slots_there_are_no_sessions() -> None:
    broker = Broker(slots=0)
    broker.now_ms = 10 * EVICTION_MS
    asked = broker.ask(request(NO_SESSION, NEW_SESSION, {0: 5}))
    assert (asked.session, asked.is_full, offsets(asked)) == (None, True, {0: 5})


# A client that keeps to the rules sees through a session what it would see without one.

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grow", "trim", "fail", "mend", "want", "forget", "fetch")),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=60,
)


@given(STEPS)
def test_incremental_answers_add_up_to_full_ones(steps: list[Step]) -> None:
    broker, epoch = Broker(), 1
    truth = {index: data() for index in range(4)}
    wanted: dict[int, int] = {0: 0}
    session = broker.open(wanted)
    seen: dict[int, tuple[int, int, int]] = {}
    news: dict[int, int] = {}
    forgotten: dict[int, None] = {}
    for what, index, amount in steps:
        one = truth[index]
        match what:
            case "grow":
                truth[index] = data(one.high_watermark + amount, one.log_start_offset, error=Error(one.error_code))
            case "trim":
                start = min(one.high_watermark, one.log_start_offset + amount)
                truth[index] = data(one.high_watermark, start, error=Error(one.error_code))
            case "fail" | "mend":
                error = Error.KAFKA_STORAGE_ERROR if what == "fail" else Error.NONE
                truth[index] = data(one.high_watermark, one.log_start_offset, error=error)
            case "want":
                news[index] = wanted[index] = amount
                forgotten.pop(index, None)
            case "forget" if len(wanted) > 1:
                wanted.pop(index, None)
                news.pop(index, None)
                seen.pop(index, None)
                forgotten[index] = None
            case "fetch":
                asked = broker.ask(request(session.session_id, epoch, news, tuple(forgotten)))
                assert asked.session is session
                assert offsets(asked) == wanted
                epoch, news, forgotten = epoch + 1, {}, {}
                for at, _ in asked.wanted:
                    found = truth[at.partition]
                    if session.has_news(at, found):
                        seen[at.partition] = (found.high_watermark, found.log_start_offset, found.error_code)
                assert seen == {
                    at: (truth[at].high_watermark, truth[at].log_start_offset, truth[at].error_code) for at in wanted
                }
