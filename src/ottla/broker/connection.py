"""One client's connection: frames in, answers out.

Rule 1: requests are taken in the order they arrive, and answered in that order. A handler does what must keep the
        order before it returns; what it returns to be awaited overlaps with the requests after it.
Rule 2: what arrives goes into one buffer that all connections share (`intake`). Only a connection with half a frame has
        a buffer of its own, which grows with what has really arrived, and is another's afterwards (`rooms`). Records
        are read from either and written to the log before the buffer is used again; everything else was copied when it
        was decoded.
Rule 3: a client that does not take its answers, or has too many requests open, is not read from until it has caught up.
Rule 4: an answer that tells of something yet to be written is held back until it is. If it cannot be written, the
        connection ends without the answers that are ready: the client does not know, and asks again.
Rule 5: what cannot be a request ends the connection, with one line in the log.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import cached_property
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.dispatch import Call, Frame, Hangup, answer, answer_late, answer_unknown, failed
from ottla.broker.outlet import CLOSED, Outlet, Part, outlet_for
from ottla.broker.paced_reads import PacedReads
from ottla.broker.turns import Turns
from ottla.broker.waiters import Waiter
from ottla.observe.trace import warn
from ottla.wire.api import ApiKey
from ottla.wire.codec import Malformed
from ottla.wire.frame import Request, UnknownRequest, decode_request

if TYPE_CHECKING:
    from ottla.broker.fetch_lane import FetchLanes
    from ottla.broker.hosted_shard import HostedShard
    from ottla.broker.node import Node
    from ottla.broker.produce_lane import ProduceLanes

_SIZE = Struct(">i")
_OWN_BUFFER_MIN = 4096
_OPEN_REQUESTS_MAX = 64
_ANSWERS_TOGETHER = 16
_SMALL_ANSWER_MAX = 1 << 16
_QUEUED_BYTES_MAX = 1 << 20
SHARED_BUFFER_BYTES = 1 << 20
"""So many that of what arrives in a stream, little is cut off at the end and has to be kept."""
ROOM_BYTES = 1 << 18


class _Open:
    """A request that waits for its turn or for its answer."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Frame | Hangup | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, node: "Node", listener: str) -> None:
        self.node = node
        self._intake, self._appends = node.intake, node.intake.appends
        self.listener = listener
        self.peer = "?"
        self.client_software: tuple[str, str] | None = None
        self.half_frame_since_ms: int | None = None
        self.last_active_ms = 0
        self.produce_turns = Turns()
        self._transport: asyncio.Transport
        self._outlet: Outlet
        self._own: bytearray | None = None
        self._filled = 0
        self._open: deque[_Open] = deque()
        self._ready: list[Part] = []
        """Answers whose turn has come; they leave together, some at a time."""
        self._held: dict[HostedShard[Any], None] = {}
        """Who has to write before an answer leaves."""
        self._tasks: dict[asyncio.Future[Any] | Waiter, None] = {}
        """In the order of their birth; a set would have none."""
        self._produce_lanes: ProduceLanes | None = None
        self._pace: PacedReads | None = None
        self._fetch_lanes: FetchLanes | None = None
        self._paused = False
        self._closed = False
        self._lost = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not, but do all the same.
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self._outlet = outlet_for(self._transport, self._go_on)
        self.last_active_ms = self.node.clock.monotonic_ms()
        if not self.node.connections.admit(self):
            self.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._closed = self._lost = True
        self._stop_pacing()
        self._outlet.close()
        # The transport and the outlet know this connection: a cycle would wait for the garbage collector.
        self._outlet = CLOSED
        del self._transport
        for task in list(self._tasks):
            task.cancel()
        self._open.clear()
        if self._own is not None:
            self.node.rooms.give_back(self._own)
            self._own = None
        self.node.connections.forget(self)

    def resume_writing(self) -> None:
        self._go_on()

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._own is None:
            return self._intake.room
        if self._filled == len(self._own):
            grown = bytearray(min(2 * len(self._own), self.node.request_bytes_max + _SIZE.size))
            grown[: self._filled] = self._own
            self.node.rooms.give_back(self._own)
            self._own = grown
        return memoryview(self._own)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.node.vigil.reads += 1
        if self._own is None:
            if self._produce_lanes is not None and self._intake.keep(self, nbytes):
                return
            if self._fetch_lanes is not None and self._take_lone_fetch(nbytes):
                return
        self.last_active_ms = self.node.clock.monotonic_ms()
        is_one_request = False
        if self._own is not None:
            self._filled += nbytes
            if self._filled >= self._needed():
                self._take_own()
        else:
            data = self._intake.room[:nbytes]
            is_one_request = self._pace is None and _is_one_frame(data)
            self._take_all(data)
        if self._ready and self.node.outbox.add(self) and is_one_request:
            self.node.vigil.answered(self.last_active_ms)

    def _take_lone_fetch(self, size: int) -> bool:
        """Whether all that was received is one Fetch like one before, and nothing else is under way, as with most
        readers: then it is taken, past everything that others need."""
        if self._open or self._paused or self._closed or self._pace is not None:
            return False
        data = self._intake.room[:size]
        if not _is_one_frame(data):
            return False
        self._appends.write()
        if not self._take_fetch_lane(data[_SIZE.size :]):
            return False
        self.last_active_ms = self.node.clock.monotonic_ms()
        if self._is_behind():
            self._pause()
        if self._ready:
            self.node.outbox.add(self)
        return True

    def take(self, data: memoryview, now_ms: int) -> None:
        """Handle what has waited for the end of the round."""
        self.last_active_ms = now_ms
        if self._own is not None:
            # What was read before it in the same round has ended with half a frame.
            data = memoryview(self._own[: self._filled] + data)
            self.node.rooms.give_back(self._own)
            self._own = None
        self._take(data)

    def _needed(self) -> int:
        """How many bytes the frame at the front of the own buffer takes, as far as it can be told."""
        assert self._own is not None
        if self._filled < _SIZE.size:
            return _SIZE.size
        size: int = _SIZE.unpack_from(self._own)[0]
        if size > self.node.request_bytes_max:
            return _SIZE.size  # Enough to see that it cannot be: `_take` refuses it, before any more is waited for.
        return size + _SIZE.size

    def _take_all(self, data: memoryview) -> None:
        """Handle the whole frames in `data`; nothing of it is needed afterwards, whatever happens."""
        try:
            self._take(data)
        finally:
            self._appends.write()

    def _take(self, data: memoryview) -> None:
        """Handle the whole frames in `data`; keep the rest."""
        position, end = 0, len(data)
        while end - position >= _SIZE.size and not self._closed and not self._paused:
            after = self._take_produce_lane(data, position) if self._produce_lanes is not None else None
            if after is None:
                self._appends.write()  # The requests before it come first.
                after = self._take_frame(data, position)
                if after is None:
                    break
            position = after
            if self._is_behind() and not self._paused:
                self._appends.write()
                self._pause()
        if position:
            self.half_frame_since_ms = None  # What is left is another frame.
            if self._pace is not None:
                self._pace.took(self.last_active_ms, data)
            elif self._produce_lanes is not None and end > _SIZE.size + _SIZE.unpack_from(data)[0]:
                self._begin_pacing(data)
        if position < end:
            self._keep(data[position:])

    def _pause(self) -> None:
        """Read no more until the client has caught up."""
        self._paused = True
        self._transport.pause_reading()
        if self._pace is not None:
            self._pace.interrupt(self.last_active_ms)

    def _take_frame(self, data: memoryview, position: int) -> int | None:
        """Handle the frame at `position`; where it ends, None if it is not whole or cannot be one."""
        (size,) = _SIZE.unpack_from(data, position)
        if not 0 <= size <= self.node.request_bytes_max:
            self.refuse(f"a frame of {size} bytes; socket.request.max.bytes is {self.node.request_bytes_max}")
            return None
        start = position + _SIZE.size
        end: int = start + size
        if end > len(data):
            return None
        self._receive(data[start:end])
        return end

    def _take_own(self) -> None:
        """Handle the frames in the own buffer, which is free then: what is left of them is kept in another."""
        own, self._own = self._own, None
        assert own is not None
        self._take_all(memoryview(own)[: self._filled])
        self.node.rooms.give_back(own)

    def _keep(self, rest: memoryview) -> None:
        self._filled = len(rest)
        if not self._filled or self._closed:
            self._own, self.half_frame_since_ms = None, None
            return
        needed = max(_OWN_BUFFER_MIN, 2 * self._filled)
        if self._filled >= _SIZE.size:
            # A frame of a moderate size gets its room at once, a huge one only as its bytes arrive.
            needed = max(needed, min(_SIZE.unpack_from(rest)[0] + _SIZE.size, ROOM_BYTES))
        own = self.node.rooms.take(needed)
        own[: self._filled] = rest
        self._own = own
        if self._paused:
            self.half_frame_since_ms = None  # It is not the client that keeps the rest waiting.
        elif self.half_frame_since_ms is None:
            self.half_frame_since_ms = self.node.clock.monotonic_ms()

    # Requests and answers.

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Asking for the running one costs a system call each time."""
        return asyncio.get_running_loop()

    def _receive(self, frame: memoryview) -> None:
        if self._pace is not None:
            self._pace.interrupt(self.last_active_ms)
        if self._fetch_lanes is not None and self._take_fetch_lane(frame):
            return
        try:
            request = decode_request(frame)
        except UnknownRequest as unknown:
            header = unknown.header
            call = Call(self.node, self, header.request_api_key, 0, header.correlation_id, header.client_id)
            result: Frame | Hangup | Awaitable[Any] | None = answer_unknown(call, str(unknown))
        except Malformed as malformed:
            self.refuse(str(malformed))
            return
        else:
            call = Call(self.node, self, request.api_key, request.version, request.correlation_id, request.client_id)
            result = answer(request.body, call)
            if request.api_key == ApiKey.PRODUCE:
                self._learn_produce(frame, request)
            elif request.api_key == ApiKey.FETCH:
                self._learn_fetch(frame, request)
        if result is None:
            return  # Produce with acks=0.
        if isinstance(result, list | Hangup):
            self._take_turn(result)
        else:
            self._wait_for(result, call)

    def _take_produce_lane(self, data: memoryview, position: int) -> int | None:
        """Handle the requests from `position` on that are like one before; where they end, None if there are none."""
        assert self._produce_lanes is not None
        try:
            end = self._produce_lanes.take(self, data, position)
        except Exception as error:
            self.broken(error)
            return len(data)
        if self._open:
            self._appends.write()  # So that the answers that wait are counted.
        return end

    def answered(self, answers: bytes) -> None:
        """What a lane has taken is written."""
        if self._open or len(self._ready) >= _ANSWERS_TOGETHER:
            self._take_turn([answers])
        else:
            self._ready.append(answers)

    def broken(self, error: Exception) -> None:
        """What a lane has taken could not be handled, for no reason that a client can be told."""
        assert self._produce_lanes is not None
        self._hang_up(failed(ApiKey.PRODUCE, self._produce_lanes.version, self, error))

    def _learn_produce(self, frame: memoryview, request: Request) -> None:
        if self._produce_lanes is None:
            if self.node.request_bytes_max < SHARED_BUFFER_BYTES:
                return  # Lanes take what has arrived, and would not see that it is too much.
            from ottla.broker.produce_lane import ProduceLanes  # As handlers, only where it is needed.

            self._produce_lanes = ProduceLanes(self.node, self._appends)
        self._produce_lanes.learn(frame, request.body, request.version)

    def _take_fetch_lane(self, frame: memoryview) -> bool:
        """Whether the request is a Fetch like one before."""
        assert self._fetch_lanes is not None
        try:
            answered = self._fetch_lanes.take(frame)
        except Exception as error:
            self._take_turn(failed(ApiKey.FETCH, self._fetch_lanes.version, self, error))
            return True
        if isinstance(answered, Waiter):
            self._wait_for(answered, Call(self.node, self, ApiKey.FETCH, self._fetch_lanes.version, 0, None))
        elif answered is not None:
            if len(answered) > 1 and not (self._open or self._ready or self._held):
                self._outlet.send(answered)  # Nobody's turn comes before, and it is too large to wait for company.
            else:
                self._take_turn(answered)
        return answered is not None

    def _learn_fetch(self, frame: memoryview, request: Request) -> None:
        if self._fetch_lanes is None:
            from ottla.broker.fetch_lane import FetchLanes  # As handlers, only where it is needed.

            self._fetch_lanes = FetchLanes(self.node, self.listener)
        self._fetch_lanes.learn(frame, request.body, request.version)

    def _take_turn(self, result: Frame | Hangup) -> None:
        """Pass on an answer after those of the requests before it."""
        if type(result) is list and not self._open:
            self._pass_on(result)
        else:
            waiting = _Open()
            waiting.answer = result
            self._open.append(waiting)
            self._pass_on_those_ready()

    def _wait_for(self, result: Awaitable[Any] | Waiter, call: Call) -> None:
        waiting = _Open()
        self._open.append(waiting)
        # Asking a future whose it is takes as long as making it; most that is waited for is a reader's.
        task = result if isinstance(result, Waiter | asyncio.Future) else asyncio.ensure_future(result, loop=self.loop)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._finish(waiting, done, call))

    def _finish(self, waiting: _Open, task: asyncio.Future[Any] | Waiter, call: Call) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            waiting.answer = answer_late(task, call)
            self._pass_on_those_ready()
            if self._ready:
                self.node.outbox.add(self)

    def _pass_on_those_ready(self) -> None:
        while self._open and not self._closed and (first := self._open[0].answer) is not None:
            self._open.popleft()
            if isinstance(first, Hangup):
                self._hang_up(first)
            else:
                self._pass_on(first)

    def _hang_up(self, hangup: Hangup) -> None:
        """End the connection when the answers before have been sent."""
        if hangup.reason is not None:
            self.refuse(hangup.reason)
        else:
            self.send_ready()
            self.close()

    def _pass_on(self, frame: Frame) -> None:
        """Send an answer whose turn has come; a small one soon, together with others."""
        self._ready += frame
        if len(self._ready) >= _ANSWERS_TOGETHER or (len(frame) > 1 and sum(map(len, frame)) > _SMALL_ANSWER_MAX):
            self.send_ready()

    def hold(self, hosted: "HostedShard[Any]") -> None:
        self._held[hosted] = None

    def _write_held(self) -> bool:
        """Whether the answers may leave."""
        held, self._held = self._held, {}
        if all(hosted.write_held() for hosted in held):
            return True
        self.close()
        return False

    def send_ready(self) -> None:
        if self._ready and not self._closed and (not self._held or self._write_held()):
            ready, self._ready = self._ready, []
            self._outlet.send(ready)
            if self._paused:
                self._go_on()

    def _go_on(self) -> None:
        if self._paused and not self._closed and not self._is_behind():
            self._paused = False
            self._transport.resume_reading()
            if self._own is not None:
                self._take_own()
                if self._ready:
                    self.node.outbox.add(self)

    def _is_behind(self) -> bool:
        return len(self._open) >= _OPEN_REQUESTS_MAX or self._outlet.queued_bytes >= _QUEUED_BYTES_MAX

    def refuse(self, reason: str) -> None:
        if not self._closed:
            self.send_ready()
            warn("connection.refused", peer=self.peer, listener=self.listener, reason=reason)
            self.close()

    @property
    def open_requests(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """What this connection keeps in memory: half a frame, and answers not taken yet."""
        return (len(self._own) if self._own is not None else 0) + self._outlet.queued_bytes

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still to come or to be taken."""
        return bool(self._open or self._ready) or self._outlet.queued_bytes > 0

    def _begin_pacing(self, data: memoryview) -> None:
        """The client has sent on without waiting for an answer."""
        if not self._closed and (sock := self._transport.get_extra_info("socket")) is not None:
            self._pace = PacedReads(sock, self.node.lookout, self.last_active_ms)
            self._pace.took(self.last_active_ms, data)

    def _stop_pacing(self) -> None:
        if self._pace is not None:
            self._pace.close()
            self._pace = None

    def close(self) -> None:
        self._closed = True
        self._stop_pacing()
        self._outlet.close()
        if not self._lost:
            self._transport.abort()


def _is_one_frame(data: memoryview) -> bool:
    size = len(data)
    return size >= _SIZE.size and size == _SIZE.unpack_from(data)[0] + _SIZE.size
