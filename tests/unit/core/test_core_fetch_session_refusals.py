"""Fetch sessions that cannot go on, and one without partitions, as in Kafka."""

from typing import Any

import pytest

from ottla.core.fetch_sessions import FetchSessions
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.errors import Error, Refused


def request(epoch: int, session_id: int = 0, *topics: str, forget: str = "") -> FetchRequest:
    wanted = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        for topic in topics
    ]
    forgotten = [ForgottenTopic(topic=forget, partitions=[0])] if forget else []
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=wanted,
        forgotten_topics_data=forgotten,
    )


def ask(sessions: FetchSessions, *args: Any, by_id: bool = False, forget: str = "") -> Any:
    return sessions.ask(request(*args, forget=forget), by_id=by_id, new_id=7, now_ms=0)


def test_a_session_may_begin_without_partitions() -> None:
    sessions = FetchSessions(10, 1000)
    assert ask(sessions, 0).session_id == 7
    asked = ask(sessions, 1, 7, "t")
    assert [key.topic for key, _ in asked.wanted] == ["t"]
    assert not asked.is_full


def test_a_wrong_epoch_is_told_before_a_wrong_way_to_name_topics() -> None:
    """A client that is late is not told to name its topics otherwise."""
    sessions = FetchSessions(10, 1000)
    ask(sessions, 0, 0, "t")
    for epoch, error in ((2, Error.INVALID_FETCH_SESSION_EPOCH), (1, Error.FETCH_SESSION_TOPIC_ID_ERROR)):
        with pytest.raises(Refused) as refused:
            ask(sessions, epoch, 7, by_id=True)
        assert refused.value.error is error


def test_what_is_asked_for_and_forgotten_in_one_request_is_told_once_and_forgotten() -> None:
    sessions = FetchSessions(10, 1000)
    ask(sessions, 0, 0, "t", "u")
    asked = ask(sessions, 1, 7, "t", forget="t")
    assert [key.topic for key, _ in asked.wanted] == ["u"]
    # With the last partition the session ends; what the request named is told all the same.
    asked = ask(sessions, 2, 7, "u", forget="u")
    assert ([key.topic for key, _ in asked.wanted], asked.session_id) == (["u"], 0)
    assert len(sessions) == 0
