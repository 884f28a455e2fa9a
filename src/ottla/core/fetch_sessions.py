"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

Rule 1: epoch 0 opens a session, -1 fetches without one; either ends the session named in the request.
Rule 2: otherwise the session must exist and its epoch be the next one, or the whole request is refused.
Rule 3: a response within a session omits partitions without new data.
Rule 4: partitions that returned records move to the end of the list, so that a full response does not starve the
        others.
Rule 5: a full cache admits a new session only if the least recently used one has been idle for long. The number of
        partitions in all sessions is limited too: a request beyond it is served without a session.
Rule 6: requests with very many partitions are processed in steps.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.wire.api.fetch import FetchPartition, FetchRequest, PartitionData
from ottla.wire.errors import Error, Refused

NO_SESSION = 0
_EPOCH_MAX = 2**31 - 1
NEW_SESSION = 0
FINAL = -1
_PARTITIONS_MAX = 50_000
_PARTITIONS_MAX_IN_ALL = 500_000
"""Each cached partition takes about 500 bytes while its session exists."""
_PARTITIONS_PER_STEP = 64


class FetchKey(NamedTuple):
    """A partition as the client names it: by topic name or, in newer versions, by topic id."""

    topic: str
    topic_id: bytes
    partition: int


class _SentState(NamedTuple):
    """The state of a partition as last sent to the client."""

    high_watermark: int
    log_start_offset: int


@dataclass(slots=True)
class FetchSession:
    """A fetch session of one client."""

    session_id: int
    by_id: bool
    epoch: int = 1
    used_ms: int = 0
    wanted: dict[FetchKey, FetchPartition] = field(default_factory=dict)
    sent: dict[FetchKey, _SentState] = field(default_factory=dict)

    def has_news(self, key: FetchKey, data: PartitionData) -> bool:
        """Whether the response must include the partition. If so, its state is recorded as sent."""
        news = _SentState(data.high_watermark, data.log_start_offset)
        has_records = data.records is not None and len(data.records) > 0
        if has_records:
            self.wanted[key] = self.wanted.pop(key)
        if data.error_code:
            self.sent.pop(key, None)
            return True
        changed = self.sent.get(key) != news
        self.sent[key] = news
        return has_records or changed


class FetchContext(NamedTuple):
    """The partitions to read for a request, and its session if it has one."""

    wanted: list[tuple[FetchKey, FetchPartition]]
    session: FetchSession | None
    is_full: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION


class FetchSessions:
    """The fetch sessions of a broker."""

    def __init__(self, slots: int, eviction_ms: int) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}
        """In the order of use, least recent first."""
        self._partitions = 0
        """The number of partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def size_of(self, session_id: int) -> int:
        """The number of partitions in a session."""
        session = self._sessions.get(session_id)
        return len(session.wanted) if session is not None else 0

    def ask(self, request: FetchRequest, *, by_id: bool, new_id: int, now_ms: int) -> FetchContext:
        """The partitions to read for a request. `new_id` is a random number from 1 to 2^31-1 for a session opened by
        epoch 0."""
        steps = self.ask_in_steps(request, by_id=by_id, new_id=new_id, now_ms=now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                asked: FetchContext = done.value
                return asked

    def ask_in_steps(
        self, request: FetchRequest, *, by_id: bool, new_id: int, now_ms: int
    ) -> Generator[None, None, FetchContext]:
        """Like `ask`, as a generator that pauses between steps."""
        if request.session_epoch in (NEW_SESSION, FINAL):
            self._drop(request.session_id)
            wanted = yield from _gathered(request)
            session = None
            if request.session_epoch == NEW_SESSION and self._has_room(len(wanted), now_ms):
                session = FetchSession(self._free_id(new_id), by_id, used_ms=now_ms, wanted=wanted)
                self._sessions[session.session_id] = session
                self._partitions += len(wanted)
            return FetchContext(list(wanted.items()), session, is_full=True)
        session = self._continued(request, by_id)
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        before = len(session.wanted)
        asked = yield from _gathered(request)
        session.wanted.update(asked)
        yield from self._forget(session, request)
        if session.session_id in self._sessions:
            self._partitions += len(session.wanted) - before
        if not session.wanted:
            self._drop(session.session_id)
            return FetchContext(list(asked.items()), None, is_full=True)
        if len(session.wanted) > _PARTITIONS_MAX:
            self._drop(session.session_id)
            return FetchContext(list(session.wanted.items()), None, is_full=True)
        return FetchContext(list(session.wanted.items()), session, is_full=False)

    def _forget(self, session: FetchSession, request: FetchRequest) -> Generator[None, None, None]:
        count = 0
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                key = FetchKey(topic.topic, topic.topic_id, partition)
                session.wanted.pop(key, None)
                session.sent.pop(key, None)
                count += 1
                if count % _PARTITIONS_PER_STEP == 0:
                    yield

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)

    def _continued(self, request: FetchRequest, by_id: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise Refused(Error.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise Refused(
                Error.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {request.session_id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.by_id != by_id:
            raise Refused(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _has_room(self, partitions: int, now_ms: int) -> bool:
        if partitions > _PARTITIONS_MAX or self._partitions + partitions > _PARTITIONS_MAX_IN_ALL:
            return False
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms < self._eviction_ms:
            return False
        self._drop(oldest.session_id)
        return True

    def _free_id(self, wanted: int) -> int:
        while wanted in self._sessions or wanted == NO_SESSION:
            wanted = wanted % _EPOCH_MAX + 1
        return wanted


def _gathered(request: FetchRequest) -> Generator[None, None, dict[FetchKey, FetchPartition]]:
    """The partitions a request names; of duplicates the last one counts."""
    wanted: dict[FetchKey, FetchPartition] = {}
    for number, (key, partition) in enumerate(partitions_in(request), start=1):
        wanted[key] = partition
        if number % _PARTITIONS_PER_STEP == 0:
            yield
    return wanted


def partitions_in(request: FetchRequest) -> Iterator[tuple[FetchKey, FetchPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, partition.partition), partition
