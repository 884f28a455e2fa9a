"""The answers of a connection: in the order of the requests, as soon as their turn has come."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.dispatch import Answered, Call, Frame, Hangup, answer_late, begin
from ottla.broker.outlet import Outlet, Part
from ottla.broker.waiters import Waiter
from ottla.io.ports import Buffer

if TYPE_CHECKING:
    from ottla.broker.hosted_shard import HostedShard
    from ottla.broker.node import Node

_OPEN_REQUESTS_MAX = 64
_ANSWERS_TOGETHER = 16
_SMALL_ANSWER_MAX = 1 << 16
_QUEUED_BYTES_MAX = 1 << 20


class _Open:
    """A request that waits for its turn or for its answer."""

    __slots__ = ("answer", "is_alone")

    def __init__(self) -> None:
        self.answer: Frame | Hangup | None = None
        self.is_alone = False
        """No other is taken until this one is answered."""


class Answers:
    """One half of a connection; the other one (`connection`) takes its requests."""

    _outlet: Outlet

    def __init__(self, node: "Node") -> None:
        self.node = node
        self._open: deque[_Open] = deque()
        self._alone = 0
        """How many of them are served alone."""
        self._ready: list[Part] = []
        """Answers whose turn has come; they leave together, some at a time."""
        self._held: dict[HostedShard[Any], None] = {}
        """Who has to write before an answer leaves."""
        self._tasks: dict[asyncio.Future[Any] | Waiter, None] = {}
        """In the order of their birth; a set would have none."""
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
        """Asking for the running one costs a system call each time."""
        return asyncio.get_running_loop()

    @property
    def open_requests(self) -> int:
        return len(self._open)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still to come or to be taken, or a request waits for its turn."""
        return bool(self._open or self._ready or self._paused) or self._outlet.queued_bytes > 0

    @property
    def unread_bytes(self) -> int:
        """Of answers that the client has not taken."""
        return self._outlet.queued_bytes

    @property
    def unread_buffers(self) -> Sequence[Buffer]:
        """What of them is in memory."""
        return self._outlet.queued_buffers

    @property
    def _is_behind(self) -> bool:
        """Whether the client should be given answers before more requests are taken."""
        return (
            self._alone > 0 or len(self._open) >= _OPEN_REQUESTS_MAX or self._outlet.queued_bytes >= _QUEUED_BYTES_MAX
        )

    def answered(self, answers: bytes) -> None:
        """What a lane has taken is written."""
        if self._open or len(self._ready) >= _ANSWERS_TOGETHER:
            self._take_turn([answers])
        else:
            self._ready.append(answers)

    def _take_turn(self, result: Frame | Hangup) -> None:
        """Pass on an answer after those of the requests before it."""
        if type(result) is list and not self._open:
            self._pass_on(result)
        else:
            waiting = _Open()
            waiting.answer = result
            self._open.append(waiting)
            self._pass_on_those_ready()

    def _wait_for(self, result: "Answered | asyncio.Future[Any] | Waiter", call: Call) -> None:
        """Pass on what it has when it is done, in its turn."""
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
        self._follow(waiting, cast("asyncio.Future[Any] | Waiter", result), call)

    def _follow(self, waiting: _Open, task: "asyncio.Future[Any] | Waiter", call: Call) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._finish(waiting, done, call))

    def _finish(self, waiting: _Open, task: asyncio.Future[Any] | Waiter, call: Call) -> None:
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
            self.node.outbox.add(self)
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
                self.go_on()

    def _cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()
        self._open.clear()
