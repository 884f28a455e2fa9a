"""The responses of a connection: sent in the order of the requests, as soon as all earlier ones are sent."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from types import CoroutineType
from typing import TYPE_CHECKING, Protocol, cast

from ottla.broker.network.dispatch import Answered, Call, Frame, Hangup, Parked, answer_late, begin
from ottla.broker.network.socket_writer import AnswerWriter, Part
from ottla.io.ports import Buffer

if TYPE_CHECKING:
    from ottla.broker.node import Node

_OPEN_REQUESTS_MAX = 64
_ANSWERS_TOGETHER = 16
_SMALL_ANSWER_MAX = 1 << 16
_QUEUED_BYTES_MAX = 1 << 20


class Unwritten(Protocol):
    """A queue of records that have to be written before the responses about them are sent."""

    def write_held(self) -> bool:
        """Write the records; returns whether the responses may be sent."""


class _Open:
    """A request that waits for its turn or for its response."""

    __slots__ = ("answer", "is_alone")

    def __init__(self) -> None:
        self.answer: Frame | Hangup | None = None
        self.is_alone = False
        """The connection takes no other request until this one is answered."""


class Answers:
    """The sending half of a connection; `connection` is the receiving half."""

    _writer: AnswerWriter

    def __init__(self, node: "Node") -> None:
        self.node = node
        self._open: deque[_Open] = deque()
        self._alone = 0
        """The number of open requests with `is_alone`."""
        self._ready: list[Part] = []
        """Responses to send next, several in one call."""
        self._held: dict[Unwritten, None] = {}
        """The records that must be written before any response is sent."""
        self._tasks: dict[Parked, None] = {}
        """Ordered by creation, which a set would not be."""
        self._paused = False
        self._closed = False

    def close(self) -> None:
        raise NotImplementedError

    def refuse(self, reason: str) -> None:
        raise NotImplementedError

    def go_on(self) -> None:
        raise NotImplementedError

    def served_alone(self) -> None:
        raise NotImplementedError

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Cached, because asking for the running loop costs a system call each time."""
        return asyncio.get_running_loop()

    @property
    def open_requests(self) -> int:
        return len(self._open)

    @property
    def is_busy(self) -> bool:
        """Whether a request is unanswered or waiting, or responses are unsent."""
        return bool(self._open or self._ready or self._paused) or self._writer.queued_bytes > 0

    @property
    def unread_bytes(self) -> int:
        """The bytes of responses that the client has not received."""
        return self._writer.queued_bytes

    @property
    def unread_buffers(self) -> Sequence[Buffer]:
        """The buffers in memory that hold the responses which the client has not received."""
        return self._writer.queued_buffers

    @property
    def _is_behind(self) -> bool:
        """Whether responses should be sent before more requests are taken."""
        return (
            self._alone > 0 or len(self._open) >= _OPEN_REQUESTS_MAX or self._writer.queued_bytes >= _QUEUED_BYTES_MAX
        )

    def answered(self, answers: bytes) -> None:
        """Send the responses to requests that a shortcut has taken. Their records are written."""
        if self._open or len(self._ready) >= _ANSWERS_TOGETHER:
            self._take_turn([answers])
        else:
            self._ready.append(answers)

    def _take_turn(self, result: Frame | Hangup) -> None:
        """Send a response after those of all earlier requests."""
        if type(result) is list and not self._open:
            self._pass_on(result)
        else:
            waiting = _Open()
            waiting.answer = result
            self._open.append(waiting)
            self._pass_on_those_ready()

    def _wait_for(self, result: Answered | Parked, call: Call) -> None:
        """Send the response when the result is available, in order."""
        if type(result) is CoroutineType:
            is_done, begun = begin(result, self.loop)
            if is_done:
                if begun is not None:
                    self._take_turn(begun)
                return
            result = begun
        waiting = _Open()
        self._open.append(waiting)
        if call.must_be_alone:
            waiting.is_alone = True
            self._alone += 1
        self._follow(waiting, cast(Parked, result), call)

    def _follow(self, waiting: _Open, task: Parked, call: Call) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._finish(waiting, done, call))

    def _finish(self, waiting: _Open, task: Parked, call: Call) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        if isinstance(task, asyncio.Task):
            result = task.result() or []
        else:
            result = answer_late(task, call)
            if type(result) is CoroutineType:
                is_done, result = begin(result, self.loop)
                if not is_done:
                    self._follow(waiting, result, call)
                    return
        waiting.answer = cast("Frame | Hangup", result)
        if waiting.is_alone:
            self._alone -= 1
            self.served_alone()
        self._pass_on_those_ready()
        if self._ready:
            self.node.send_round.add(self)
        else:
            self.go_on()

    def _pass_on_those_ready(self) -> None:
        while self._open and not self._closed and (first := self._open[0].answer) is not None:
            self._open.popleft()
            if isinstance(first, Hangup):
                self._hang_up(first)
            else:
                self._pass_on(first)

    def _hang_up(self, hangup: Hangup) -> None:
        """Close the connection after the earlier responses were sent."""
        if hangup.reason is not None:
            self.refuse(hangup.reason)
        else:
            self.send_ready()
            self.close()

    def _pass_on(self, frame: Frame) -> None:
        """Send a response that is next in order; small ones together with others."""
        self._ready += frame
        if len(self._ready) >= _ANSWERS_TOGETHER or (len(frame) > 1 and sum(map(len, frame)) > _SMALL_ANSWER_MAX):
            self.send_ready()

    def hold(self, unwritten: Unwritten) -> None:
        """Hold all responses back until `unwritten` is written."""
        self._held[unwritten] = None

    def _write_held(self) -> bool:
        """Write the records that responses wait for. If that fails, close the connection and return False."""
        held, self._held = self._held, {}
        if all(one.write_held() for one in held):
            return True
        self.close()
        return False

    def send_ready(self) -> None:
        if self._ready and not self._closed and (not self._held or self._write_held()):
            ready, self._ready = self._ready, []
            self._writer.send(ready)
            if self._paused:
                self.go_on()

    def _cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()
        self._open.clear()
