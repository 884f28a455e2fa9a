"""The short way of Fetch requests: it gives the answers of the long one, at once and after waiting."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_home import LEADER_EPOCH, TOPIC, TOPIC_ID, LaneHome

from ottla import kernel
from ottla.broker.fastpath.fetch_lane import FetchLanes
from ottla.broker.network.dispatch import Call, Frame, answer, answer_late
from ottla.broker.partitions.waiters import Waiter, WaitingRoom
from ottla.config import FETCH_MAX_BYTES
from ottla.core.fetch_sessions import FetchSessions
from ottla.core.log.producers import AppendOrigin
from ottla.kernel import ControlType, Record, build_end_txn_marker
from ottla.storage.slices import Slice
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.frame import decode_request, encode_request

SMALL = [Record(0, 1_000, None, b"value"), Record(1, 1_001, b"key", b"more")]
LARGE = [Record(n, 1_000, None, bytes(1000)) for n in range(80)]


class Home(LaneHome):
    def __init__(self) -> None:
        super().__init__({})
        self.random = Random(1)
        self.config = {FETCH_MAX_BYTES: 150_000}
        self.fetch_sessions = FetchSessions(10, 1000)
        self.waiting_room = WaitingRoom()
        self.lanes = FetchLanes(self, "PLAINTEXT")  # type: ignore[arg-type]

    def append(self, records: list[Record] = SMALL) -> None:
        self.led.append(memoryview(bytearray(kernel.build_batch(records))), acks=-1)

    def transaction(self, producer_id: int, *, commit: bool | None) -> None:
        """Records in a transaction, which stays open if `commit` is None."""
        facts: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
        batch = kernel.build_batch(SMALL, **facts, base_sequence=0, transactional=True)
        self.led.append(memoryview(bytearray(batch)), acks=-1)
        if commit is not None:
            kind = ControlType.COMMIT if commit else ControlType.ABORT
            marker = build_end_txn_marker(kind, 0, timestamp=1_000, **facts)
            self.led.append(memoryview(bytearray(marker)), acks=-1, origin=AppendOrigin.COORDINATOR)

    def the_long_way(self, frame: bytes) -> "Given":
        request = decode_request(memoryview(frame))
        result = answer(request.body, self._call(request.version, request.correlation_id))
        return Given(result, self._call(request.version, request.correlation_id))

    def any_way(self, frame: bytes) -> "Given":
        """As a connection does it."""
        view = memoryview(frame)
        known = self.lanes.take(view)
        if known is not None:
            self.short += 1
            return Given(known, self._call(self.lanes.version, 0))
        given = self.the_long_way(frame)
        request = decode_request(view)
        self.lanes.learn(view, request.body, request.version)
        return given

    def _call(self, version: int, correlation_id: int) -> Call:
        connection: Any = SimpleNamespace(peer="test", listener="PLAINTEXT", role="broker", close=lambda: None)
        node: Any = self
        return Call(node, connection, 1, version, correlation_id, "c")


class Given:
    """What came of a request."""

    def __init__(self, result: Any, call: Call) -> None:
        self._result = result
        self._call = call

    @property
    def waits_for(self) -> int | None:
        """How many bytes, if it waits."""
        return self._result.missing_bytes if isinstance(self._result, Waiter) else None

    def bytes_now(self) -> bytes:
        """The answer, if need be by looking what there is now."""
        if not isinstance(self._result, Waiter):
            return joined(self._result)
        self._result.cancel()
        late = answer_late(self._result, self._call)
        assert isinstance(late, list)
        return joined(late)


def joined(frame: Frame) -> bytes:
    return b"".join(part.read() if isinstance(part, Slice) else bytes(part) for part in frame)


def frame_of(
    offset: int = 0,
    *,
    version: int = 12,
    correlation_id: int = 7,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    last_epoch: int = -1,
    replica: int = -1,
    index: int = 0,
    partitions: int = 1,
    client_id: str | None = "c",
) -> bytes:
    asked = FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch if version >= 12 else -1,
        partition_max_bytes=partition_max_bytes,
    )
    name = {"topic": TOPIC} if version < 13 else {"topic_id": TOPIC_ID}
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        replica_id=replica if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica) if version >= 15 and replica != -1 else None,
        topics=[FetchTopic(partitions=[asked] * partitions, **name)] if partitions else [],
    )
    return b"".join(encode_request(request, version, correlation_id, client_id))[4:]


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


changes = st.sampled_from(
    ["small", "large", "committed", "aborted", "open", "cut", "delete", "gone", "back", "led anew"]
)
frames = st.builds(
    frame_of,
    st.integers(0, 12) | st.integers(0, 300),
    version=st.sampled_from([11, 12, 12, 13, 17, 18]),
    correlation_id=st.integers(0, 2**31 - 1),
    min_bytes=st.sampled_from([0, 1, 1, 500, 100_000]),
    max_wait_ms=st.sampled_from([0, 500]),
    max_bytes=st.sampled_from([-1, 0, 200, 1 << 20, 1 << 20]),
    partition_max_bytes=st.sampled_from([-1, 0, 100, 90_000, 1 << 20, 1 << 20]),
    isolation_level=st.sampled_from([0, 0, 0, 1, 1, 1, 2]),
    epoch=st.sampled_from([-1, -1, -5, LEADER_EPOCH, LEADER_EPOCH + 1, 0]),
    last_epoch=st.sampled_from([-1, -1, -1, -5, 0, LEADER_EPOCH, LEADER_EPOCH + 1]),
    replica=st.sampled_from([-1, -1, -1, -1, -2, -3, 0]),
    index=st.sampled_from([0, 0, 0, 1]),
    client_id=st.sampled_from(["c", None]),
)
steps = st.tuples(frames, st.integers(1, 4), st.sampled_from([b"", b"", b"", b"\0", b"\1\2"]), changes, changes)


def change(home: Home, what: str, number: int) -> None:
    if not home.is_there and what != "back":
        return  # Only its leader changes a partition.
    log = home.led.log
    match what:
        case "small":
            home.append()
        case "large":
            home.append(LARGE)
        case "committed" | "aborted":
            home.transaction(number, commit=what == "committed")
        case "open":
            home.transaction(number, commit=None)
        case "cut":
            log.truncate(max(log.state.end_offset - 3, log.state.log_start_offset))
            log.state.high_watermark = min(log.state.high_watermark, log.state.end_offset)
        case "delete":
            log.delete_records(min(log.state.log_start_offset + 2, log.state.high_watermark))
        case "led anew":
            home.led.lead(home.led.leader_epoch + 1)
        case _:
            home.is_there = what == "back"


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=8))
def test_both_ways_give_the_same_answers(script: list[tuple[bytes, int, bytes, str, str]]) -> None:
    """Requests in any order, some again and again, some with bytes after their end; batches come and are cut off, the
    topic goes and comes back, also while a request waits."""
    home = Home()

    def work() -> None:
        for number, (frame, times, behind, before, meanwhile) in enumerate(script):
            change(home, before, 2 * number)
            for _ in range(times):
                tried, settled = home.any_way(frame + behind), home.the_long_way(frame + behind)
                assert tried.waits_for == settled.waits_for
                if tried.waits_for is not None:
                    change(home, meanwhile, 2 * number + 1)
                assert tried.bytes_now() == settled.bytes_now()
        assert not home.led.waiters
        assert not len(home.waiting_room)

    in_a_loop(work)


@pytest.mark.parametrize("version", [12, 13, 16, 17, 18])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_third_request_of_a_kind_takes_the_short_way(version: int, isolation_level: int) -> None:
    def work() -> None:
        home = Home()
        for records in [SMALL, LARGE, SMALL, SMALL]:
            home.append(records)
        for number, offset in enumerate([0, 2, 82, 84, 86]):
            home.any_way(frame_of(offset, version=version, correlation_id=number, isolation_level=isolation_level))
        assert home.short == 3

    in_a_loop(work)


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 11},
        {"session": (0, 0)},
        {"session": (9, -1)},
        {"session": (9, 3)},
        {"partitions": 0},
        {"partitions": 2},
        {"index": 1},
        {"epoch": LEADER_EPOCH + 1},
        {"offset": 99},
        {"last_epoch": LEADER_EPOCH},
        {"replica": 2},
        {"replica": 2, "version": 16},
        {"replica": -3},
        {"isolation_level": 2},
        {"partition_max_bytes": -1},
        {"max_bytes": -1},
    ],
)
def test_what_is_out_of_the_ordinary_goes_the_long_way(changed: dict[str, Any]) -> None:
    def work() -> None:
        home = Home()
        home.append()
        for _ in range(4):
            home.any_way(frame_of(**changed))
        assert home.short == 0

    in_a_loop(work)


def test_a_topic_with_aborted_transactions_goes_the_long_way_where_they_must_be_told() -> None:
    def work() -> None:
        home = Home()
        home.transaction(1, commit=False)
        home.append()
        for _ in range(4):
            home.any_way(frame_of(0, isolation_level=1))
        assert home.short == 0
        home.any_way(frame_of(3, isolation_level=1))
        assert home.short == 1

    in_a_loop(work)


def test_another_partition_or_client_is_another_request() -> None:
    def work() -> None:
        home = Home()
        home.append()
        for _ in range(3):
            home.any_way(frame_of())
        assert home.short == 1
        home.any_way(frame_of(client_id="d"))
        assert home.short == 1
        home.any_way(frame_of(client_id="d"))
        assert home.short == 2

    in_a_loop(work)


def test_bytes_after_the_end_of_a_request_open_no_lane() -> None:
    def work() -> None:
        home = Home()
        home.append()
        for _ in range(4):
            home.any_way(frame_of() + b"\0")
        assert home.short == 0

    in_a_loop(work)


def test_records_that_are_only_on_disk_go_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """There they are read in a thread first."""

    def work() -> None:
        home = Home()
        home.append(LARGE)
        for _ in range(3):
            home.any_way(frame_of())
        assert home.short == 1
        monkeypatch.setattr(type(home.led.log), "is_warm", lambda *_: False)
        assert home.lanes.take(memoryview(frame_of())) is None

    in_a_loop(work)


@pytest.mark.parametrize("what", ["small", "large", "aborted", "open", "cut", "delete", "gone", "led anew"])
@pytest.mark.parametrize("asked", [{}, {"isolation_level": 1}, {"epoch": LEADER_EPOCH}, {"min_bytes": 500}])
@pytest.mark.parametrize("offset", [0, 4])
def test_what_has_changed_since_the_lane_was_opened_is_seen(what: str, asked: dict[str, Any], offset: int) -> None:
    def work() -> None:
        home = Home()
        home.append()
        home.append()
        for _ in range(3):
            home.any_way(frame_of(offset, **asked)).bytes_now()
        assert home.short == 1
        waiting = home.any_way(frame_of(offset, **asked))
        change(home, what, 1)
        tried, settled = home.any_way(frame_of(offset, **asked)), home.the_long_way(frame_of(offset, **asked))
        assert tried.waits_for == settled.waits_for
        answers = {given.bytes_now() for given in (tried, settled, *([waiting] if waiting.waits_for else []))}
        assert len(answers) == 1

    in_a_loop(work)


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 90_000}, {"partition_max_bytes": 90_000}, {"max_bytes": 1 << 30}, {"max_bytes": 10}]
)
def test_the_smallest_limit_counts(limits: dict[str, int]) -> None:
    def work() -> None:
        home = Home()
        for _ in range(3):
            home.append(LARGE)
        for _ in range(3):
            tried = home.any_way(frame_of(**limits)).bytes_now()
        assert home.short == 1
        assert tried == home.the_long_way(frame_of(**limits)).bytes_now()

    in_a_loop(work)
