"""The machine of a node: its disk, its host in the network, and the starts and ends of the node.

Rule 1: a killed process leaves everything it wrote; a power loss leaves what was synced, and of the rest what the seed
        says; a clean stop leaves nothing to recover.
Rule 2: the recovered state is compared with the ledger before the first client can connect.
Rule 3: a node that cannot start is a violation, unless its disk failed: then the disk is replaced after some attempts.
"""

import asyncio
from collections.abc import Callable
from random import Random

from ottla.broker.node import Node
from ottla.config import LOG_DIRS, Config
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss
from ottla.sim.machine.network import Host
from ottla.sim.machine.process import Process
from ottla.sim.node.aging import age
from ottla.sim.node.ledger import Key, Ledger
from ottla.sim.node.replayed import check_replayed
from ottla.sim.node.state import Recovered, check_producers, check_same, recovered
from ottla.sim.played import Violation
from ottla.sim.transcript import Transcript
from ottla.wire.errors import Refused

STARTS_MAX = 4
"""After this many failed starts the disk has no faults."""
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
        """Set while it serves."""
        self._latest: Node | None = None
        """Set while it runs; it may not be serving yet."""
        self.down = asyncio.Event()
        """Set when the node is gone and was not restarted."""
        self.losses = 0
        self.starts = 0
        self.stops = 0
        """Incremented when a clean stop begins and when it ends: odd while one is in progress."""
        self.epoch = 0
        self._process = Process()
        self._was_struck = False
        self._lossy = False
        """Whether unsynced state may have been lost since the last start."""
        self._left: Recovered | None = None
        """The memory of a process that ended without a loss."""
        self.name_of: Callable[[bytes], str | None] = lambda _topic_id: None
        self.on_loss: Callable[[], None] = lambda: None
        """Called when unsynced state may have been lost."""
        disk.on_power_loss = self._power_lost

    @property
    def failed(self) -> bool:
        """Whether the running node lost a directory or its metadata, and must be restarted."""
        node = self.node
        if node is None:
            return False
        return node.raft_log.failure is not None or bool(node.store.unusable)

    @property
    def was_struck(self) -> bool:
        """Whether a fault has ever struck the disk."""
        return self._was_struck or bool(self.disk.struck)

    # Freezing.

    def freeze(self) -> Callable[[], None]:
        """SIGSTOP; returns the function that resumes it, which does nothing if the process is gone by then."""
        self.transcript.note("the process is frozen")
        self._process.freeze()
        return self._process.thaw

    def thaw(self) -> None:
        self._process.thaw()

    # Ending.

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
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
        """Replace the disk of the machine's last log directory by an empty one."""
        path = self.config[LOG_DIRS][-1]
        self.kill()
        self.transcript.note(f"{path} is empty")
        gone = dict.fromkeys(self.disk.wiped(path))
        self.ledger.emptied([key for key in self.ledger.partitions if f"{self.name_of(key[0])}-{key[1]}" in gone])
        self._left, self._lossy = None, True
        self._replace(self.disk)

    async def stop(self) -> None:
        """SIGTERM: a clean stop, if nothing interrupts it."""
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
        """See `aging`; it may fail if the node ends."""
        if self.node is not None:
            self._process.spawn(age(self.node, transactional_id, epochs_left=epochs_left))

    # Starting.

    async def start(self) -> None:
        """Start the node, through all failures meanwhile."""
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
            _ = starting.cancelled() or starting.exception()  # Killed meanwhile: its result does not matter.
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
        """The logs are open, and no client is connected yet."""
        now = recovered(node)
        ends = now.ends_of_records if self._lossy else now.ends
        self.ledger.found(ends, now.starts, lossy=self._lossy)
        if self._left is not None:
            check_producers(self._left, now)
        if node.raft_log.epoch <= self.epoch:
            raise Violation("I13", f"the quorum's epoch was {self.epoch} and is {node.raft_log.epoch} after a restart")
        self.epoch = node.raft_log.epoch
        self._lossy, self._left = False, None

    def ends(self) -> dict[Key, int]:
        return {} if self.node is None else recovered(self.node).ends


def _spoil(node: Node, size: int) -> None:
    """Overwrite unused buffers, so that a stale view of them is detected."""
    node.receive_round.free[:size] = _JUNK[:size]
    for room in node.buffer_pool.free:
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
