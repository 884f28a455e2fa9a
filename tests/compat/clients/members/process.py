"""Programs of this package as a test sees them: what they told so far, orders to them, and kill -9."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType

from nodes.ottla_node import PATIENCE_S, wait_until

from members.interface import Joining, Kind, Polled
from members.program import COMMIT, GO_ON, LEAVE

HERE = Path(__file__).parents[1]


class MemberProcess:
    """One program. A thread takes down what it tells; `kill` gives it no chance to say more."""

    def __init__(self, task: str, kind: Kind, joining: Joining, *rest: object) -> None:
        self.owned: set[int] = set()
        self.revoked: list[int] = []
        self.got: list[Polled] = []
        self.events: list[str] = []
        self.failure: str | None = None
        self.transformed = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "members.program", json.dumps([task, kind.client, joining, *rest])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
        )
        self._scribe = Thread(target=self._take_down, daemon=True)
        self._scribe.start()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def times(self, event: str) -> int:
        return self.events.count(event)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it; a program that ended by an error will not bring it about."""

        def is_so() -> bool:
            assert self.failure is None, self.failure
            return condition()

        wait_until(is_so, what)

    def commit(self) -> None:
        before = self.times("committed")
        self.order(COMMIT)
        self.until(lambda: self.times("committed") > before, "offsets are committed")

    def go_on(self) -> None:
        self.order(GO_ON)

    def leave(self) -> None:
        """As a program ends that was asked to."""
        self.order(LEAVE)
        self._process.wait(PATIENCE_S)
        self._scribe.join()
        assert self.failure is None, self.failure

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._scribe.join()

    def freeze(self) -> None:
        """It does nothing, heartbeats included, until it is woken."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def fails(self) -> str:
        """The error that the program ends by."""
        self._process.wait(PATIENCE_S)
        self._scribe.join()
        assert self.failure is not None, f"it ended after {self.events[-5:]}"
        return self.failure

    def order(self, order: str) -> None:
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)

    def _take_down(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, what = json.loads(line)
            if event == "assigned":
                self.owned |= set(what)
            elif event in ("revoked", "lost"):
                self.owned -= set(what)
                self.revoked += what
            elif event == "got":
                self.got += [Polled(*one) for one in what]
            elif event == "failed":
                self.failure = what
            elif event == "committed" and what:
                self.transformed += what
            self.events.append(event)


class Group:
    """Members of one kind, in processes, that come and go; none outlives the block."""

    def __init__(self, bootstrap: str, topic: str, kind: Kind) -> None:
        self.name = f"group-of-{topic}"
        self._bootstrap, self._topic, self._kind = bootstrap, topic, kind
        self._started: list[MemberProcess] = []
        self.members: list[MemberProcess] = []

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        for member in self._started:
            member.kill()

    def join(self, instance_id: str | None = None, **settings: int) -> MemberProcess:
        joining = Joining(self._bootstrap, self.name, self._topic, self._kind.protocol, instance_id, **settings)
        member = MemberProcess("take part", self._kind, joining)
        self._started.append(member)
        self.members.append(member)
        return member

    def leave(self, member: MemberProcess) -> None:
        self.members.remove(member)
        member.leave()

    def kill(self, member: MemberProcess) -> None:
        self.members.remove(member)
        member.kill()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            failures = [member.failure for member in self.members if member.failure is not None]
            assert not failures, failures
            return condition()

        wait_until(is_so, what)

    def settle(self, partitions: int, *sizes: int) -> None:
        """Until each of all the partitions has one owner, and members own so many."""

        def is_settled() -> bool:
            owned = [set(member.owned) for member in self.members]
            return sorted(map(len, owned)) == sorted(sizes) and set().union(*owned) == set(range(partitions))

        self.until(is_settled, f"members own {sizes} of {partitions} partitions")

    def values(self) -> list[int]:
        """All that was read so far, by whomever, in order."""
        return sorted(int(one.value) for member in self._started for one in list(member.got))

    def read(self, total: int) -> list[int]:
        """Wait for so many in all; all that was read."""
        self.until(lambda: len(self.values()) >= total, f"{total} records are read")
        return self.values()


class Transformers:
    """Programs that carry records of a topic to another, each the heir of the one before; none outlives the block."""

    def __init__(self, kind: Kind, joining: Joining, target: str) -> None:
        self._kind, self._joining, self._target = kind, joining, target
        self._started: list[MemberProcess] = []

    def __enter__(self) -> "Transformers":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        for process in self._started:
            process.kill()

    def start(self) -> MemberProcess:
        return self._start([])

    def start_until(self, transaction: int, point: str) -> MemberProcess:
        """It stands still at that point of the transaction of that number, from zero."""
        process = self._start([transaction, point])
        process.until(lambda: process.times("still") == 1, f"it is {point} in transaction {transaction}")
        return process

    def _start(self, stand_still: list[object]) -> MemberProcess:
        rest = (self._target, f"to-{self._target}", stand_still)
        self._started.append(MemberProcess("transform", self._kind, self._joining, *rest))
        return self._started[-1]
