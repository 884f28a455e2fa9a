"""A connection is read less often where nobody waits for it; the model below is a client, a kernel and a broker."""

from collections import deque
from struct import Struct

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.read_pace import (
    BLAME_MAX,
    ENOUGH_TOGETHER,
    MARK_MAX,
    PATIENCE_MS,
    PAUSE_BLAME,
    REQUEST_MIN,
    REQUESTS_MAX,
    RETRY_MS,
    WINDOW_MS,
    ReadPace,
)

SIZE = Struct(">i")
REQUEST = 16_000
STEP_US = 10
LOOK_US = 1000
WAKING_US, SERVING_US = 30, 20


def requests(*sizes: int, begun: int = 0) -> memoryview:
    """Requests of so many bytes each, and the first bytes of one more."""
    whole = b"".join(SIZE.pack(size - SIZE.size) + bytes(size - SIZE.size) for size in sizes)
    return memoryview(whole + SIZE.pack(REQUEST)[:begun])


class Stream:
    """A client that sends a request every so often, but has never more than some open; a broker that reads it."""

    def __init__(self, gap_us: int, open_max: int, pace: ReadPace | None = None) -> None:
        self.gap_us, self.open_max = gap_us, open_max
        self.pace = pace or ReadPace(0)
        self.now_us = 0
        self.waits_us: list[int] = []
        self.reads = 0
        self.answered = 0
        self._due_us = 0
        self._sent_at_us: deque[int] = deque()
        self._busy_until_us = 0
        self._was_read = False

    def stop_broker(self, ms: int) -> None:
        """It has something else to do, and sees afterwards how much the client sends without an answer."""
        self._busy_until_us = self.now_us + ms * 1000

    def run(self, ms: int) -> None:
        for _ in range(ms * 1000 // STEP_US):
            self._send()
            if self.now_us >= self._busy_until_us and len(self._sent_at_us) * REQUEST >= self.pace.mark:
                self._read()
            if self.now_us % LOOK_US == 0 and self.pace.mark > 1:
                self._look()
            self.now_us += STEP_US

    def _send(self) -> None:
        if self.now_us >= self._due_us and len(self._sent_at_us) < self.open_max:
            self._sent_at_us.append(self.now_us)
            self._due_us = max(self._due_us + self.gap_us, self.now_us)

    def _read(self) -> None:
        count = len(self._sent_at_us)
        self._busy_until_us = self.now_us + WAKING_US + count * SERVING_US
        self.waits_us += [self._busy_until_us - sent for sent in self._sent_at_us]
        self._sent_at_us.clear()
        self.reads += 1
        self.answered += count
        self._was_read = True
        self.pace.took(self.now_us // 1000, requests(*[REQUEST] * count))

    def _look(self) -> None:
        if not self._was_read:
            self.pace.unread(self.now_us // 1000, len(self._sent_at_us) * REQUEST)
        self._was_read = False


def seen(gap_us: int, open_max: int) -> Stream:
    """A stream whose client has shown what it sends without an answer, some times."""
    stream = Stream(gap_us, open_max)
    for _ in range(4):
        stream.stop_broker(ms=2)
        stream.run(WINDOW_MS)
    stream.waits_us.clear()
    stream.reads, stream.answered = 0, 0
    return stream


def test_requests_that_stream_in_are_read_some_at_a_time() -> None:
    stream = seen(gap_us=150, open_max=1000)
    stream.run(200)
    assert stream.answered / stream.reads > REQUESTS_MAX - 0.5
    assert max(stream.waits_us) <= PATIENCE_MS * 1000 + WAKING_US + REQUESTS_MAX * SERVING_US


@settings(max_examples=25, deadline=None)
@given(gap_us=st.integers(50, 3000), open_max=st.integers(3, 9))
def test_patience_bounds_what_a_steady_stream_waits(gap_us: int, open_max: int) -> None:
    stream = seen(gap_us, open_max)
    requests_waited_for = (stream.pace.mark + REQUEST - 1) // REQUEST
    measured = WINDOW_MS / (WINDOW_MS - 1)  # The clock cuts off what is less than a millisecond.
    assert (requests_waited_for - 1) * gap_us <= PATIENCE_MS * 1000 * measured
    assert requests_waited_for < open_max


@settings(max_examples=25, deadline=None)
@given(gap_us=st.integers(10, 2000), open_max=st.integers(1, 9), stops_ms=st.lists(st.integers(1, 30), max_size=4))
def test_nobody_loses_by_it(gap_us: int, open_max: int, stops_ms: list[int]) -> None:
    """Whatever the client is like, as many requests are answered as without a mark, but for a few pauses."""

    class Unpaced(ReadPace):
        def took(self, _now_ms: int, _data: memoryview) -> int:
            return 1

    streams = [Stream(gap_us, open_max), Stream(gap_us, open_max, Unpaced(0))]
    for stream in streams:
        for stop_ms in [*stops_ms, 0]:
            stream.stop_broker(stop_ms)
            stream.run(50)
    paced, unpaced = (stream.answered for stream in streams)
    assert paced >= 0.8 * unpaced - 2 * REQUESTS_MAX


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(8, 2 * MARK_MAX), st.booleans()), max_size=100))
def test_whoever_waits_for_each_answer_is_read_at_once(reads: list[tuple[int, int, bool]]) -> None:
    pace, now_ms = ReadPace(0), 0
    for passed_ms, size, is_other in reads:
        now_ms += passed_ms
        assert pace.took(now_ms, requests(size)) == 1
        if is_other:
            pace.interrupted(now_ms)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("took"), st.integers(1, 12), st.integers(8, 2 * MARK_MAX)),
            st.tuples(st.just("unread"), st.integers(0, 12), st.integers(0, MARK_MAX)),
            st.tuples(st.just("interrupted"), st.just(0), st.just(0)),
        ),
        max_size=60,
    ),
)
def test_the_mark_keeps_its_bounds_whatever_happens(script: list[tuple[str, int, int]]) -> None:
    pace, now_ms = ReadPace(0), 0
    for what, count, size in script:
        now_ms += 4
        if what == "took":
            mark = pace.took(now_ms, requests(*[size] * count))
        elif what == "unread":
            before = pace.mark
            mark = pace.unread(now_ms, size)
            assert mark == (before if size >= before else 1)
        else:
            mark = pace.interrupted(now_ms)
            assert mark == 1
        assert mark == pace.mark
        assert 1 <= mark <= MARK_MAX


def streaming(pace: ReadPace, now_ms: int, windows: int = 1, size: int = REQUEST) -> int:
    """Eight requests a millisecond for so many windows; the time after them."""
    for _ in range(windows * WINDOW_MS):
        now_ms += 1
        for _ in range(4):
            pace.took(now_ms, requests(size, size))
    return now_ms


def shown() -> tuple[ReadPace, int]:
    pace = ReadPace(0)
    pace.took(0, requests(*[REQUEST] * (REQUESTS_MAX + 1)))
    now_ms = streaming(pace, 0)
    assert pace.mark == int((REQUESTS_MAX - 0.5) * REQUEST)
    return pace, now_ms


def test_the_beginning_of_a_request_shows_as_much_as_a_whole_one() -> None:
    for begun in (1, SIZE.size):
        pace = ReadPace(0)
        pace.took(0, requests(REQUEST, REQUEST, begun=begun))
        streaming(pace, 0)
        assert pace.mark == 1.5 * REQUEST


@given(st.one_of(st.binary(max_size=8), st.sampled_from([-4, -5, -1, -(2**31), 0, 2**31 - 1]).map(SIZE.pack)))
def test_what_follows_the_requests_that_were_taken_may_be_anything(behind: bytes) -> None:
    """A broker that pauses before it has looked at the rest has not refused it yet."""
    pace = ReadPace(0)
    assert pace.took(0, memoryview(bytes(requests(REQUEST)) + behind)) == 1


def test_small_requests_want_their_answers_soon() -> None:
    for size in (REQUEST_MIN - 1, REQUEST_MIN):
        pace = ReadPace(0)
        pace.took(0, requests(*[size] * (REQUESTS_MAX + 1)))
        streaming(pace, 0, size=size)
        assert (pace.mark > 1) == (size >= REQUEST_MIN)


def test_the_mark_is_not_more_than_a_receive_buffer_holds() -> None:
    for size, mark in ((MARK_MAX // 2, MARK_MAX // 2 * 3 // 2), (MARK_MAX, 1)):
        pace = ReadPace(0)
        pace.took(0, requests(*[size] * (REQUESTS_MAX + 1)))
        streaming(pace, 0, size=size)
        assert pace.mark == mark


def test_a_client_that_has_begun_to_wait_for_each_answer_is_read_at_once() -> None:
    pace, now_ms = shown()
    for _ in range(2 * WINDOW_MS):
        now_ms += 1
        for _ in range(8):
            pace.took(now_ms, requests(REQUEST))
    assert pace.mark == 1


def test_no_mark_where_enough_comes_together_anyway() -> None:
    pace = ReadPace(0)
    for now_ms in range(3 * WINDOW_MS):
        pace.took(now_ms, requests(*[REQUEST] * ENOUGH_TOGETHER))
    assert pace.mark == 1


def test_a_slow_broker_is_no_pause_of_the_client() -> None:
    pace, now_ms = shown()
    mark = pace.mark
    for _ in range(100):
        assert pace.unread(now_ms, mark) == mark


def test_a_client_that_went_idle_gets_its_mark_back_with_the_next_read() -> None:
    pace, now_ms = shown()
    mark = pace.mark
    for _ in range(100):
        assert pace.unread(now_ms, 0) == 1
        assert pace.took(now_ms, requests(REQUEST)) == mark


def pauses(pace: ReadPace, now_ms: int) -> int:
    """How often a client may pause in a row until less is asked of it."""
    for count in range(1, 100):
        pace.unread(now_ms, REQUEST)
        if pace.took(now_ms, requests(REQUEST, REQUEST)) == 1:
            return count
    raise AssertionError("for ever")


def test_pauses_in_a_row_lower_what_is_waited_for_until_nothing_is() -> None:
    pace, now_ms = shown()
    marks = []
    while pace.mark > 1:
        marks.append(pace.mark)
        assert pauses(pace, now_ms) <= BLAME_MAX // PAUSE_BLAME + 2
        now_ms = streaming(pace, now_ms)
    assert marks == [int((count - 0.5) * REQUEST) for count in range(REQUESTS_MAX, 1, -1)]
    streaming(pace, now_ms, windows=10)
    assert pace.mark == 1


def test_what_was_too_much_is_tried_again_after_a_while() -> None:
    pace, now_ms = shown()
    pauses(pace, now_ms)
    now_ms = streaming(pace, now_ms)
    assert pace.mark == int((REQUESTS_MAX - 1.5) * REQUEST)
    streaming(pace, now_ms + RETRY_MS, windows=2)
    assert pace.mark == int((REQUESTS_MAX - 0.5) * REQUEST)


def test_pauses_now_and_then_are_forgiven() -> None:
    pace, now_ms = shown()
    mark = pace.mark
    for _ in range(50):
        pace.unread(now_ms, REQUEST)
        for _ in range(PAUSE_BLAME):
            assert pace.took(now_ms, requests(*[REQUEST] * REQUESTS_MAX)) == mark


def test_after_an_interruption_the_stream_has_to_be_seen_again() -> None:
    pace, now_ms = shown()
    mark = pace.mark
    assert pace.interrupted(now_ms) == 1
    assert pace.took(now_ms, requests(REQUEST, REQUEST)) == 1
    streaming(pace, now_ms)
    assert pace.mark == mark
