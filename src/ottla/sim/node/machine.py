"""The machine a node runs on: its disk, its place in the network, and the node's lives and deaths.

Rule 1: a killed process leaves everything it wrote; a power loss leaves what was synced, and of the rest what the seed
        says; a clean stop leaves nothing to recover.
Rule 2: what the node has recovered is compared with the ledger before the first client can connect.
Rule 3: a node that cannot start is a violation, unless its disk failed: then it is replaced after some attempts.
"""

import asyncio
from collections.abc import Callable
from random import Random

from ottla.broker.node import Node
from ottla.config import LOG_DIRS, Config
from ottla.sim.checkers import Violation
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.sim.faults import PowerLoss
from ottla.sim.network import Host
from ottla.sim.node.aging import age
from ottla.sim.node.ledger import Key, Ledger
from ottla.sim.node.replayed import check_replayed
from ottla.sim.node.state import Recovered, check_producers, check_same, recovered
from ottla.sim.process import Process
from ottla.sim.transcript import Transcript
from ottla.wire.errors import Refused

STARTS_MAX = 4
"""After so many failed attempts to start the disk is without faults."""
_JUNK = bytes(range(256)) * 1024


class Machine:
    def __init__(
        self,
        host: Host,
        disk: SimDisk,
        config: Config,
        ledger: Ledger,
        transcript: Transcript,
        *,
        crash_steps: int = 0,
    ) -> None:
        self.host = host
        self.clock: SimClock = disk.clock
        self.random: Random = disk.random
        self.disk = disk
        self.config = config
        self.ledger = ledger
        self.transcript = transcript
        self.crash_steps = crash_steps
        self.node: Node | None = None
        """While it serves."""
        self._latest: Node | None = None
        """While it runs; it may not have come up yet."""
        self.down = asyncio.Event()
        """Set when the node is gone and nobody has started it again."""
        self.losses = 0
        self.starts = 0
        self.stops = 0
        """Counts when a clean stop begins and when it ends: odd while one is under way."""
        self.epoch = 0
        self._process = Process()
        self._was_struck = False
        self._lossy = False
        """Since the last start something may have been lost that was not synced."""
        self._left: Recovered | None = None
        """What a process that ended without a loss had in memory."""
        self.name_of: Callable[[bytes], str | None] = lambda _topic_id: None
        self.on_loss: Callable[[], None] = lambda: None
        """Told when something may have been lost that was not synced."""
        disk.on_power_loss = self._power_lost

    @property
    def failed(self) -> bool:
        """Whether the running node lost a directory or its metadata: somebody has to restart it."""
        node = self.node
        if node is None:
            return False
        return node.metadata.failure is not None or bool(node.store.unusable)

    @property
    def was_struck(self) -> bool:
        """Whether a fault has ever struck the disk."""
        return self._was_struck or bool(self.disk.struck)

    # Standing still.

    def freeze(self) -> Callable[[], None]:
        """SIGSTOP; the way to go on, which does nothing when the process is gone by then."""
        self.transcript.note("the process is frozen")
        self._process.freeze()
        return self._process.thaw

    def thaw(self) -> None:
        self._process.thaw()

    # Dying.

    def kill(self) -> None:
        """kill -9."""
        if self._latest is not None:
            self.transcript.note("the process is killed")
            if self.node is not None:
                check_replayed(self.node)
            self._left = recovered(self.node) if self.node is not None and not self.disk.struck else None
            self._die(answers=True)
            self._lossy = self._lossy or bool(self.disk.struck)
            self._replace(self.disk.after_kill())

    def lose_power(self) -> None:
        if self._latest is not None:
            self.disk.power_off()
            self._power_lost()

    def _power_lost(self) -> None:
        """May be called in the middle of the node's own code."""
        self.transcript.note("the power is lost")
        self.losses += 1
        self._left = None
        self._lossy = True
        self._die(answers=False)
        self._replace(self.disk.after_power_loss(self.random))

    def _die(self, *, answers: bool) -> None:
        self.host.halt(answers=answers)
        self.node = self._latest = None
        self._process.kill()
        self.down.set()

    def _replace(self, disk: SimDisk) -> None:
        disk.on_power_loss = self._power_lost
        self._was_struck = self.was_struck
        self.disk = disk
        if self._lossy:
            self.ledger.lives += 1
            self.on_loss()

    def replace_disk(self) -> None:
        """The machine gets an empty disk in the place of the one that holds its last log directory."""
        path = self.config[LOG_DIRS][-1]
        self.kill()
        self.transcript.note(f"{path} is empty")
        gone = dict.fromkeys(self.disk.wiped(path))
        self.ledger.emptied([key for key in self.ledger.partitions if f"{self.name_of(key[0])}-{key[1]}" in gone])
        self._left, self._lossy = None, True
        self._replace(self.disk)

    async def stop(self) -> None:
        """SIGTERM: the node leaves in good order, if nothing comes in between."""
        node = self.node
        if node is None:
            return
        self.transcript.note("the node is stopped")
        check_replayed(node)
        self.stops += 1
        stopping = self._process.spawn(node.stop())
        await asyncio.wait([stopping])
        self.stops += 1
        if self._latest is node:
            if (error := stopping.exception()) is not None and not self.disk.struck:
                raise Violation("I22", f"the node did not stop: {type(error).__name__}: {error}") from error
            self._left = None if self.disk.struck else recovered(node)
            self._die(answers=True)
            self._lossy = self._lossy or bool(self.disk.struck)
            self._replace(self.disk.after_kill())

    def age(self, transactional_id: str, epochs_left: int) -> None:
        """See `aging`; whether it comes to that, the node's fate decides."""
        if self.node is not None:
            self._process.spawn(age(self.node, transactional_id, epochs_left=epochs_left))

    # Living.

    async def start(self) -> None:
        """Bring the node up, through whatever happens meanwhile."""
        for attempt in range(100):
            if attempt >= STARTS_MAX:
                self.disk.faults.clear()
            calm = attempt >= STARTS_MAX or not self.crash_steps
            self.disk.crash_at(-1 if calm else self.disk.step + self.random.randint(1, 2 * self.crash_steps))
            if await self._start_once():
                self.down.clear()
                return
        raise Violation("I22", "the node does not come up")

    async def _start_once(self) -> bool:
        process = self._process = Process()
        disk = self.disk
        node = Node(
            self.config,
            disk=disk,
            clock=self.clock,
            random=self.random,
            network=self.host,
            new_id=lambda: self.random.randbytes(16),
        )
        self.host.boot(process.context, lambda: process.alive and not disk.is_off)
        self.host.after_delivery = lambda size: _spoil(node, size)
        starting = process.spawn(node.start())
        self._latest = node
        await asyncio.wait([starting])
        if self._latest is not node:
            _ = starting.cancelled() or starting.exception()  # Killed meanwhile: whatever it says.
            return False
        error = starting.exception()
        if error is None:
            self.starts += 1
            self.node = node
            self._opened(node)
            return True
        self.transcript.note(f"not started: {type(error).__name__}: {error}")
        if isinstance(error, Violation) or not (disk.struck and isinstance(error, Refused | OSError)):
            raise error
        self._lossy = True
        self._die(answers=True)
        self._replace(disk.after_kill())
        return False

    def _opened(self, node: Node) -> None:
        """The logs are open, and no client has been let in yet."""
        now = recovered(node)
        self.ledger.found(now.ends_of_records if self._lossy else now.ends, lossy=self._lossy)
        if self._left is not None:
            check_producers(self._left, now)
        if node.metadata.epoch <= self.epoch:
            raise Violation("I13", f"the quorum's epoch was {self.epoch} and is {node.metadata.epoch} after a restart")
        self.epoch = node.metadata.epoch
        self._lossy, self._left = False, None

    def ends(self) -> dict[Key, int]:
        return {} if self.node is None else recovered(self.node).ends


def _spoil(node: Node, size: int) -> None:
    """What a connection left in the shared buffer, or in a room that it gave back, is nobody's any more."""
    node.intake.room[:size] = _JUNK[:size]
    for room in node.rooms.free:
        room[:size] = _JUNK[:size]


async def look_twice(disk: SimDisk, host: Host, config: Config, random: Random, note: Callable[[str], None]) -> None:
    """I22: recover, die, recover again: the same logs, the same topics."""
    first: Recovered | None = None
    twin = disk.copy()
    for attempt in range(2):
        process = Process()
        node = Node(
            config, disk=twin, clock=twin.clock, random=random, network=host, new_id=lambda: random.randbytes(16)
        )
        host.boot(process.context, lambda process=process: process.alive)  # type: ignore[misc]
        starting = process.spawn(node.start())
        await asyncio.wait([starting])
        if (error := starting.exception()) is not None:
            raise Violation("I22", f"recovery {attempt + 1} of one disk fails: {error}") from error
        found = recovered(node)
        host.halt(answers=True)
        process.kill()
        twin = twin.after_kill()
        if first is not None:
            check_same(first, found)
        first = found
    note("recovered twice with the same result")


__all__ = ["Machine", "PowerLoss", "look_twice"]
