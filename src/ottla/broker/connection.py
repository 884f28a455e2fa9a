"""One client's connection: frames in, answers out.

Rule 1: requests are taken in the order they arrive, and answered in that order. A handler does what must keep the
        order before it returns; what it returns to be awaited overlaps with the requests after it.
Rule 2: what arrives goes into one buffer that all connections share (`intake`). Only a connection with half a frame has
        a buffer of its own (`half_frame`), which grows with what has really arrived, and is another's afterwards.
        Records are read from either and written to the log before the buffer is used again; everything else was copied
        when it was decoded.
Rule 3: a client that does not take its answers, or has too many requests open, is not read from until it has caught up.
Rule 4: an answer that tells of something yet to be written is held back until it is. If it cannot be written, the
        connection ends without the answers that are ready: the client does not know, and asks again.
Rule 5: what cannot be a request ends the connection, with one line in the log.
Rule 6: others have their turn (`backlog`). Requests that have arrived together are taken for some milliseconds, then
        the rest waits. A request that has very much to do gives way again and again; it is served alone: nothing is
        taken from the connection before it is answered.
"""

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, cast

from ottla.broker.answers import Answers
from ottla.broker.backlog import TURN_MS
from ottla.broker.dispatch import (
    Call,
    Hangup,
    answer,
    answer_unknown,
    answer_wide,
    failed,
)
from ottla.broker.half_frame import HalfFrame
from ottla.broker.outlet import CLOSED, outlet_for
from ottla.broker.paced_reads import PacedReads
from ottla.broker.turns import Turns
from ottla.broker.waiters import Waiter
from ottla.io.ports import Buffer
from ottla.observe.trace import warn
from ottla.wire.api import ApiKey
from ottla.wire.codec import Malformed
from ottla.wire.frame import Request, UnknownRequest, decode_request, decode_request_in_steps

if TYPE_CHECKING:
    from ottla.broker.fetch_lane import FetchLanes
    from ottla.broker.node import Node
    from ottla.broker.produce_lane import ProduceLanes

_SIZE = Struct(">i")
_TAKEN_PER_TURN = 64
_SHORT_MAX = 1024
"""Of a client that has sent no more than that, others do not notice that it comes first."""
_SMALL_FRAME_MAX = 1 << 14
"""A frame of this size is decoded in one go, whatever it holds."""
SHARED_BUFFER_BYTES = 1 << 20
"""So many that of what arrives in a stream, little is cut off at the end and has to be kept."""


class Connection(Answers, asyncio.BufferedProtocol):
    def __init__(self, node: "Node", listener: str) -> None:
        super().__init__(node)
        self._intake, self._appends, self._backlog = node.intake, node.intake.appends, node.backlog
        self.listener = listener
        self.peer = "?"
        self.client_software: tuple[str, str] | None = None
        self.half_frame_since_ms: int | None = None
        self.last_active_ms = 0
        self.produce_turns = Turns()
        self._transport: asyncio.Transport
        self._half: HalfFrame | None = None
        self._rest: memoryview | None = None
        """What has arrived and is not taken yet, in memory that nobody else writes to."""
        self._wide: memoryview | None = None
        """The request that is served alone, if it is a large one."""
        self._produce_lanes: ProduceLanes | None = None
        self._pace: PacedReads | None = None
        self._fetch_lanes: FetchLanes | None = None
        self._waits_for_turn = False
        self._lost = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not, but do all the same.
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self._outlet = outlet_for(self._transport, self.go_on)
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
        self._cancel_all()
        self._rest = self._wide = None
        if self._half is not None:
            self._half.give_back()
            self._half = None
        self.node.frame_memory.holds(self, 0)
        self.node.connections.forget(self)

    def resume_writing(self) -> None:
        self.go_on()

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._half is None:
            return self._intake.room
        try:
            return self._half.room()
        except OSError as error:
            self.refuse(f"no memory for the rest of a frame, {len(self._half)} bytes of which are here: {error}")
            return self._intake.room  # What arrives there is not looked at.

    def buffer_updated(self, nbytes: int) -> None:
        self.node.vigil.reads += 1
        if self._closed:
            return
        if self._half is None and self._produce_lanes is not None and self._intake.keep(self, nbytes):
            return
        if self._backlog.is_crowded:
            self._postpone_received(nbytes)
            return
        if self._half is None and self._fetch_lanes is not None and self._take_lone_fetch(nbytes):
            return
        self.last_active_ms = self.node.clock.monotonic_ms()
        is_one_request = False
        if self._half is not None:
            if self._half.received(nbytes):
                self._take_half()
            else:
                self._grew()
        else:
            data = self._intake.room[:nbytes]
            is_one_request = self._pace is None and _is_one_frame(data)
            self._take_all(data, is_private=False)
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
        if self._is_behind:
            self._pause()
        if self._ready:
            self.node.outbox.add(self)
        return True

    def take(self, data: memoryview, now_ms: int) -> None:
        """Handle what has waited for the end of the round."""
        self.last_active_ms = now_ms
        if self._paused or self._half is not None:
            # Of what was read before it in the same round, something is left.
            rest = self._left_before(data)
            if self._paused:
                self._rest = rest
                self._count_memory()
            else:
                self._take(rest, is_private=True)
        else:
            self._take(data, is_private=False)

    def postpone(self, data: memoryview, now_ms: int) -> None:
        """Handle it in a later round: this one has taken long enough."""
        self.last_active_ms = now_ms
        self._rest = self._left_before(data)
        if not self._waits_for_turn:
            self._wait_for_turn(is_short=len(self._rest) <= _SHORT_MAX)
        self._count_memory()

    def _left_before(self, data: memoryview) -> memoryview:
        """What was received and not taken, and then this."""
        half, rest = self._half, self._rest
        self._half = self._rest = None
        if half is None:
            return _joined(rest or b"", data)
        joined = _joined(half.data, data)
        half.give_back()
        return joined

    def _take_all(self, data: memoryview, *, is_private: bool) -> None:
        """Handle the whole frames in `data`; nothing of it is needed afterwards, whatever happens, unless it is
        private: then nobody else writes to it."""
        try:
            self._take(data, is_private=is_private)
        finally:
            self._appends.write()

    def _take(self, data: memoryview, *, is_private: bool) -> None:
        """Handle the whole frames in `data`, for the time of a turn; keep the rest."""
        position, end, taken = 0, len(data), 0
        while end - position >= _SIZE.size and not self._closed and not self._paused:
            after = self._take_produce_lane(data, position) if self._produce_lanes is not None else None
            if after is None:
                self._appends.write()  # The requests before it come first.
                after = self._take_frame(data, position, is_private=is_private)
                if after is None:
                    break
            position = after
            taken += 1
            if self._is_behind:
                self._appends.write()
                self._pause()
            elif position < end and self._is_turn_over(taken):
                self._appends.write()
                self._wait_for_turn()
        if position:
            self.half_frame_since_ms = None  # What is left is another frame.
            if self._pace is not None:
                self._pace.took(self.last_active_ms, data)
            elif self._produce_lanes is not None and end > _SIZE.size + _SIZE.unpack_from(data)[0]:
                self._begin_pacing(data)
        if position < end and not self._closed:
            self._keep(data[position:], is_private=is_private)

    def _is_turn_over(self, taken: int) -> bool:
        return taken >= _TAKEN_PER_TURN or self.node.clock.monotonic_ms() - self.last_active_ms >= TURN_MS

    def _pause(self) -> None:
        """Read no more until the client has caught up."""
        self._paused = True
        self._transport.pause_reading()
        if self._pace is not None:
            self._pace.interrupt(self.last_active_ms)

    def _wait_for_turn(self, *, is_short: bool = False) -> None:
        """Others come first, then what is left of what has arrived."""
        if not self._paused:
            self._pause()
        self._waits_for_turn = True
        self._backlog.first_turn_took(self.node.clock.monotonic_ms() - self.last_active_ms)
        self._backlog.add(self._turn, is_short=is_short)

    def _turn(self) -> None:
        self._waits_for_turn = False
        if not self._closed:
            self.last_active_ms = self.node.clock.monotonic_ms()
            self.go_on()

    def _postpone_received(self, size: int) -> None:
        """There is much to do already in this round."""
        self.last_active_ms = self.node.clock.monotonic_ms()
        if self._half is None:
            self._rest = _joined(self._intake.room[:size])
        elif self._half.received(size):
            self._rest, self._half = self._half.data, None
        else:
            self._grew()
            return
        self._wait_for_turn(is_short=len(self._rest) <= _SHORT_MAX)
        self._count_memory()

    def _take_frame(self, data: memoryview, position: int, *, is_private: bool) -> int | None:
        """Handle the frame at `position`; where it ends, None if it is not whole or cannot be one."""
        (size,) = _SIZE.unpack_from(data, position)
        if not 0 <= size <= self.node.request_bytes_max:
            self.refuse(f"a frame of {size} bytes; socket.request.max.bytes is {self.node.request_bytes_max}")
            return None
        start = position + _SIZE.size
        end: int = start + size
        if end > len(data):
            return None
        frame = data[start:end]
        if size > _SMALL_FRAME_MAX and self._is_wide(frame):
            self._serve_alone(frame if is_private else _joined(frame))
        else:
            self._receive(frame)
        return end

    def _take_half(self) -> None:
        """Handle the frames in the own buffer, which is free then: what is left of them is kept in another."""
        half, self._half = self._half, None
        assert half is not None
        self._take_all(half.data, is_private=True)
        if self._rest is None and self._wide is None:
            half.give_back()  # Otherwise they are in it.
        self._count_memory()

    def _keep(self, rest: memoryview, *, is_private: bool) -> None:
        """What has arrived and cannot be taken now: half a frame, or frames that have to wait."""
        if self._paused:
            self._rest = rest if is_private else _joined(rest)
            self.half_frame_since_ms = None  # It is not the client that keeps the rest waiting.
        else:
            self._half = HalfFrame(self.node.rooms, self.node.request_bytes_max, rest)
            if self.half_frame_since_ms is None:
                self.half_frame_since_ms = self.node.clock.monotonic_ms()
        self._count_memory()

    def _grew(self) -> None:
        """More of a frame has arrived, and is not the end of it."""
        self._count_memory()
        if self.node.frame_memory.must_wait(self):
            self.half_frame_since_ms = None
            self._pause()

    def _count_memory(self) -> None:
        self.node.frame_memory.holds(self, self._received_bytes)

    @property
    def _received_bytes(self) -> int:
        """Of requests that are not handled yet."""
        half, rest, wide = self._half, self._rest, self._wide
        held = half.held_bytes if half is not None else 0
        return held + (len(rest) if rest is not None else 0) + (len(wide) if wide is not None else 0)

    # Requests and answers.

    def _is_wide(self, frame: memoryview) -> bool:
        """Whether a large frame has more elements than can be handled in one go: few have, most hold records."""
        steps = decode_request_in_steps(frame)
        try:
            next(steps)
        except (StopIteration, UnknownRequest):
            return False
        except Malformed:
            return True  # It may have more elements than there is memory for.
        return True

    def _serve_alone(self, frame: memoryview) -> None:
        self._wide = frame
        self._count_memory()
        call = Call(self.node, self, -1, 0, 0, None, is_alone=True)
        self._wait_for(answer_wide(frame, call), call)

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
            self._take_turn(answer_unknown(call, str(unknown)))
            return
        except Malformed as malformed:
            self.refuse(str(malformed))
            return
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

    def go_on(self) -> None:
        """Take requests again, if nothing is against it any more."""
        if not self._paused or self._closed or self._waits_for_turn or self._is_behind:
            return
        if self._half is not None and self.node.frame_memory.must_wait(self):
            return
        self._paused = False
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._take_all(rest, is_private=True)
            self._count_memory()
            if self._ready:
                self.node.outbox.add(self)
        if not self._paused and not self._closed:
            if self._half is not None:
                self.half_frame_since_ms = self.node.clock.monotonic_ms()
            self._transport.resume_reading()

    def served_alone(self) -> None:
        self._wide = None
        self._count_memory()

    def refuse(self, reason: str) -> None:
        if not self._closed:
            self.send_ready()
            warn("connection.refused", peer=self.peer, listener=self.listener, reason=reason)
            self.close()

    @property
    def held_bytes(self) -> int:
        """What this connection keeps in memory: requests not handled, and answers not taken yet."""
        return self._received_bytes + self._outlet.queued_bytes

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


def _joined(*parts: Buffer) -> memoryview:
    """A copy of its own; one that can be written to, as batches are stamped where they are."""
    return memoryview(bytearray().join(parts))


def _is_one_frame(data: memoryview) -> bool:
    size = len(data)
    return size >= _SIZE.size and size == _SIZE.unpack_from(data)[0] + _SIZE.size
