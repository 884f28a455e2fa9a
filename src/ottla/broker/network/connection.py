"""One client's connection: receives frames, sends responses.

Rule 1: requests are taken in the order they arrive, and answered in that order. A handler does what must keep the order
        before it returns; an awaitable that it returns overlaps with later requests.
Rule 2: bytes are received into one buffer that all connections share (`receive_round`). Only a connection with an
        incomplete frame has its own buffer (`half_frame`), which grows with the bytes received, and returns to a pool.
        Records are written to the log directly from either buffer before it is reused; everything else is copied when
        it is decoded.
Rule 3: a client that does not read its responses, or has too many open requests, is not read from until it has caught
        up.
Rule 4: a response that depends on records yet to be written is held back until they are. If the write fails, the
        connection is closed without the responses that are ready: the outcome is unknown to the client, which retries.
Rule 5: bytes that cannot be a request close the connection, with one line in the log.
Rule 6: connections take turns (`backlog`). Requests that have arrived together are processed for some milliseconds,
        then the rest waits. A request with very much work pauses repeatedly and is served alone: the connection takes
        no other request before it is answered.
"""

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, cast

from ottla.broker.network.answers import Answers
from ottla.broker.network.backlog import TURN_MS
from ottla.broker.network.dispatch import (
    Call,
    Hangup,
    ListenerRole,
    answer,
    answer_unknown,
    answer_wide,
    failed,
)
from ottla.broker.network.fifo import Fifo
from ottla.broker.network.half_frame import HalfFrame
from ottla.broker.network.socket_writer import CLOSED, writer_for
from ottla.broker.network.tuning import Pace
from ottla.core.security.principals import ANONYMOUS
from ottla.io.ports import Buffer
from ottla.wire.api import ApiKey
from ottla.wire.codec import Malformed
from ottla.wire.frame import UnknownRequest, decode_request, decode_request_in_steps

if TYPE_CHECKING:
    from ottla.broker.node import Node

_SIZE = Struct(">i")
_TAKEN_PER_TURN = 64
_SHORT_MAX = 1024
"""A client that has sent no more than this is served first, which others do not notice."""
_SMALL_FRAME_MAX = 1 << 14
"""A frame up to this size is decoded in one step, whatever it holds."""
SHARED_BUFFER_BYTES = 1 << 20
"""Large enough that of a stream only a small part is cut off at the end and has to be copied."""


class Connection(Answers, asyncio.BufferedProtocol):
    def __init__(self, node: "Node", listener: str, role: ListenerRole = "broker") -> None:
        super().__init__(node)
        self._receive_round, self._backlog, self._tuning = node.receive_round, node.backlog, node.tuning
        self._write_taken = node.fast_path.write
        self._shortcuts = node.fast_path.shortcuts(listener)
        self.listener, self.role = listener, role
        self.principal = ANONYMOUS
        self.peer = "?"
        self.client_software: tuple[str, str] | None = None
        self.half_frame_since_ms: int | None = None
        self.last_active_ms = 0
        self.produce_fifo = Fifo()
        self._transport: asyncio.Transport
        self._half: HalfFrame | None = None
        self._rest: memoryview | None = None
        """Received bytes that are not processed yet, in memory that is not shared."""
        self._wide: memoryview | None = None
        """The frame of the request that is served alone, if it is large."""
        self._pace: Pace | None = None
        self._waits_for_turn = False
        self._lost = False

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport, but have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.last_active_ms = self.node.clock.monotonic_ms()
        try:
            self._writer = writer_for(self._transport, self.go_on)
        except OSError as error:  # No descriptor is left, or the client is gone already.
            self._writer = CLOSED
            self.refuse(f"{error}; if that lasts, allow the node more open files (ulimit -n)")
            return
        if not self.node.connections.admit(self):
            self.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._closed = self._lost = True
        self._stop_pacing()
        self._writer.close()
        # Breaks the cycle of connection, transport and writer, which would wait for the garbage collector.
        self._writer = CLOSED
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
            return self._receive_round.free
        try:
            return self._half.free()
        except OSError as error:
            self.refuse(f"no memory for the rest of a frame, of which {len(self._half)} bytes have arrived: {error}")
            return self._receive_round.free  # The connection is closed; what arrives is ignored.

    def buffer_updated(self, nbytes: int) -> None:
        self._tuning.read()
        if self._closed:
            return
        if self._half is None and self._shortcuts.takes_produce and self._receive_round.keep(self, nbytes):
            return
        if self._backlog.is_crowded:
            self._postpone_received(nbytes)
            return
        if self._half is None and self._shortcuts.takes_fetch and self._take_lone_fetch(nbytes):
            return
        self.last_active_ms = self.node.clock.monotonic_ms()
        is_one_request = False
        if self._half is not None:
            if self._half.received(nbytes):
                self._take_half()
            else:
                self._grew()
        else:
            data = self._receive_round.free[:nbytes]
            is_one_request = self._pace is None and _is_one_frame(data)
            self._take_all(data, is_private=False)
        if self._ready and self.node.send_round.add(self) and is_one_request:
            self._tuning.answered(self.last_active_ms)

    def _take_lone_fetch(self, size: int) -> bool:
        """Take the shortcut for a read that consists of one known Fetch while nothing else is in progress, as with most
        consumers. Returns whether it was taken."""
        if self._open or self._paused or self._closed or self._pace is not None:
            return False
        data = self._receive_round.free[:size]
        if not _is_one_frame(data):
            return False
        self._write_taken()
        if not self._take_fetch(data[_SIZE.size :]):
            return False
        self.last_active_ms = self.node.clock.monotonic_ms()
        if self._is_behind:
            self._pause()
        if self._ready:
            self.node.send_round.add(self)
        return True

    def take(self, data: memoryview, now_ms: int) -> None:
        """Process bytes that have waited for the end of the round."""
        self.last_active_ms = now_ms
        if self._paused or self._half is not None:
            # Earlier bytes of the same round are left.
            rest = self._left_before(data)
            if self._paused:
                self._rest = rest
                self._count_memory()
            else:
                self._take(rest, is_private=True)
        else:
            self._take(data, is_private=False)

    def postpone(self, data: memoryview, now_ms: int) -> None:
        """Process the bytes in a later round, because this one has taken long enough."""
        self.last_active_ms = now_ms
        self._rest = self._left_before(data)
        if not self._waits_for_turn:
            self._wait_for_turn(is_short=len(self._rest) <= _SHORT_MAX)
        self._count_memory()

    def _left_before(self, data: memoryview) -> memoryview:
        """The unprocessed earlier bytes followed by `data`."""
        half, rest = self._half, self._rest
        self._half = self._rest = None
        if half is None:
            return _joined(rest or b"", data)
        joined = _joined(half.data, data)
        half.give_back()
        return joined

    def _take_all(self, data: memoryview, *, is_private: bool) -> None:
        """Process the whole frames in `data`, and copy what is left, unless `data` is private: then no other connection
        writes to it."""
        try:
            self._take(data, is_private=is_private)
        finally:
            self._write_taken()

    def _take(self, data: memoryview, *, is_private: bool) -> None:
        """Process the whole frames in `data` for the time of a turn; keep the rest."""
        position, end, taken = 0, len(data), 0
        while end - position >= _SIZE.size and not self._closed and not self._paused:
            after = self._take_produce(data, position) if self._shortcuts.takes_produce else None
            if after is None:
                self._write_taken()  # Append the requests taken before this one, to keep the order.
                after = self._take_frame(data, position, is_private=is_private)
                if after is None:
                    break
            position = after
            taken += 1
            if self._is_behind:
                self._write_taken()
                self._pause()
            elif position < end and self._is_turn_over(taken):
                self._write_taken()
                self._wait_for_turn()
        if position:
            self.half_frame_since_ms = None  # A frame was completed. Remaining bytes belong to the next one.
            if self._pace is not None:
                self._pace.took(self.last_active_ms, data)
            elif self._shortcuts.takes_produce and end > _SIZE.size + _SIZE.unpack_from(data)[0]:
                self._begin_pacing(data)
        if position < end and not self._closed:
            self._keep(data[position:], is_private=is_private)

    def _is_turn_over(self, taken: int) -> bool:
        return taken >= _TAKEN_PER_TURN or self.node.clock.monotonic_ms() - self.last_active_ms >= TURN_MS

    def _pause(self) -> None:
        """Stop reading until the client has caught up."""
        self._paused = True
        self._transport.pause_reading()
        if self._pace is not None:
            self._pace.interrupt(self.last_active_ms)

    def _wait_for_turn(self, *, is_short: bool = False) -> None:
        """Let other connections go first, then process the remaining bytes."""
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
        """Keep what was received for a later round: this one is crowded."""
        self.last_active_ms = self.node.clock.monotonic_ms()
        if self._half is None:
            self._rest = _joined(self._receive_round.free[:size])
        elif self._half.received(size):
            self._rest, self._half = self._half.data, None
        else:
            self._grew()
            return
        self._wait_for_turn(is_short=len(self._rest) <= _SHORT_MAX)
        self._count_memory()

    def _take_frame(self, data: memoryview, position: int, *, is_private: bool) -> int | None:
        """Process the frame at `position`; returns where it ends, None if it is incomplete or invalid."""
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
        """Process the frames in the connection's own buffer, and release it; the rest is kept in another."""
        half, self._half = self._half, None
        assert half is not None
        self._take_all(half.data, is_private=True)
        if self._rest is None and self._wide is None:
            half.give_back()  # Otherwise the buffer still holds unprocessed bytes.
        self._count_memory()

    def _keep(self, rest: memoryview, *, is_private: bool) -> None:
        """Keep bytes that cannot be processed now: an incomplete frame, or frames that have to wait."""
        if self._paused:
            self._rest = rest if is_private else _joined(rest)
            self.half_frame_since_ms = None  # The bytes wait for this node, not for the client to send more.
        else:
            self._half = HalfFrame(self.node.buffer_pool, self.node.request_bytes_max, rest)
            if self.half_frame_since_ms is None:
                self.half_frame_since_ms = self.node.clock.monotonic_ms()
        self._count_memory()

    def _grew(self) -> None:
        """Count the memory of an incomplete frame that has grown. Stop reading if there is too little memory."""
        self._count_memory()
        if self.node.frame_memory.must_wait(self):
            self.half_frame_since_ms = None
            self._pause()

    def _count_memory(self) -> None:
        self.node.frame_memory.holds(self, self._received_bytes)

    @property
    def _received_bytes(self) -> int:
        """The bytes of requests that are not processed yet."""
        half, rest, wide = self._half, self._rest, self._wide
        held = half.held_bytes if half is not None else 0
        return held + (len(rest) if rest is not None else 0) + (len(wide) if wide is not None else 0)

    # Requests and answers.

    def _is_wide(self, frame: memoryview) -> bool:
        """Whether a large frame has too many elements for one step. Few have; most hold records."""
        steps = decode_request_in_steps(frame)
        try:
            next(steps)
        except (StopIteration, UnknownRequest):
            return False
        except Malformed:
            return True  # It may have more elements than fit into memory.
        return True

    def _serve_alone(self, frame: memoryview) -> None:
        self._wide = frame
        self._count_memory()
        call = Call(self.node, self, -1, 0, 0, None, is_alone=True)
        self._wait_for(answer_wide(frame, call), call)

    def _receive(self, frame: memoryview) -> None:
        if self._pace is not None:
            self._pace.interrupt(self.last_active_ms)
        if self._shortcuts.takes_fetch and self._take_fetch(frame):
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
        self._shortcuts.learn(frame, request)
        if result is None:
            return  # Produce with acks=0.
        if isinstance(result, list | Hangup):
            self._take_turn(result)
        else:
            self._wait_for(result, call)

    def _take_produce(self, data: memoryview, position: int) -> int | None:
        """Take the Produce requests from `position` on for which there is a shortcut.

        Returns where they end, None if there are none.
        """
        try:
            end = self._shortcuts.take_produce(self, data, position)
        except Exception as error:
            self.broken(error)
            return len(data)
        if self._open:
            self._write_taken()  # So that the waiting responses are counted.
        return end

    def broken(self, error: Exception) -> None:
        """Close the connection, because requests taken by a shortcut failed with an unexpected exception."""
        self._hang_up(failed(ApiKey.PRODUCE, self._shortcuts.version_of(ApiKey.PRODUCE), self, error))

    def _take_fetch(self, frame: memoryview) -> bool:
        """Answer a Fetch by a shortcut; returns whether there is one."""
        try:
            answered = self._shortcuts.take_fetch(frame)
        except Exception as error:
            self._take_turn(failed(ApiKey.FETCH, self._shortcuts.version_of(ApiKey.FETCH), self, error))
            return True
        if answered is None:
            return False
        if not isinstance(answered, list):
            version = self._shortcuts.version_of(ApiKey.FETCH)
            self._wait_for(answered, Call(self.node, self, ApiKey.FETCH, version, 0, None))
        elif len(answered) > 1 and not (self._open or self._ready or self._held):
            self._writer.send(answered)  # It is next in order, and too large to wait for others.
        else:
            self._take_turn(answered)
        return True

    def go_on(self) -> None:
        """Resume reading and processing, if nothing prevents it any more."""
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
                self.node.send_round.add(self)
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
            self.node.connections.tell_refused(self, reason)
            self.close()

    @property
    def held_bytes(self) -> int:
        """The memory of this connection: unprocessed requests and unsent responses."""
        return self._received_bytes + self._writer.queued_bytes

    def _begin_pacing(self, data: memoryview) -> None:
        """Start pacing, because the client sends without waiting for responses."""
        if self._closed:
            return
        self._pace = self._tuning.pace(self._transport.get_extra_info("socket"), self.last_active_ms)
        if self._pace is not None:
            self._pace.took(self.last_active_ms, data)

    def _stop_pacing(self) -> None:
        if self._pace is not None:
            self._pace.close()
            self._pace = None

    def close(self) -> None:
        self._closed = True
        self._stop_pacing()
        self._writer.close()
        if not self._lost:
            self._transport.abort()


def _joined(*parts: Buffer) -> memoryview:
    """A writable copy; batches are stamped in place."""
    return memoryview(bytearray().join(parts))


def _is_one_frame(data: memoryview) -> bool:
    size = len(data)
    return size >= _SIZE.size and size == _SIZE.unpack_from(data)[0] + _SIZE.size
