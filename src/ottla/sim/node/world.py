"""The seeded run of a node: clients write, read, administer; network, disk and power fail; everything is checked.

At the end all faults stop: operations are finished, everything is read, the node is stopped and started once more, and
everything is read again.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from ottla.config import LOG_DIRS, OFFSETS_TOPIC_NUM_PARTITIONS, Config
from ottla.rpc.errors import ClientError
from ottla.sim.machine.bit_rot import flip_bits
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.network import SimNetwork
from ottla.sim.node.admin import SimAdmin
from ottla.sim.node.coordination_audit import audit_coordination
from ottla.sim.node.keepers import Keeper
from ottla.sim.node.ledger import Key, Ledger, name_of
from ottla.sim.node.library import BareCommitter, LibraryAdmin, LibraryTransactional
from ottla.sim.node.machine import Machine, look_twice
from ottla.sim.node.mishaps import SETS_CLOCKS, Mishaps
from ottla.sim.node.operator import Operator
from ottla.sim.node.others import LibraryConsumer, LibraryProducer, Nuisance, Pipeliner
from ottla.sim.node.readers import Damaged, Reader, read_all
from ottla.sim.node.scene import Line, Scene
from ottla.sim.node.senders import Bad, Idempotent, Plain
from ottla.sim.node.state import NodeObserver, fetches_waiting, partitions
from ottla.sim.node.swarm import COORDINATED, UNSYNCED, NodeSwarm
from ottla.sim.node.transactional import TIMEOUT_MS_MAX, TransactionalProducer
from ottla.sim.node.wiretap import Wiretap
from ottla.sim.node.workers import CommittingWorker, GroupWorker, Transformer
from ottla.sim.played import Violation
from ottla.sim.records import BadBatch
from ottla.sim.transcript import Transcript
from ottla.storage.log_directory import WrongDirectory
from ottla.storage.recovery import LogDamaged
from ottla.wire.errors import Refused

WATCH_EVERY_S = 0.25
SETTLED_S = 90.0
"""After the faults stop every operation must finish in this time."""
LONGEST_WAIT_S = 6.0
"""No fetch waits longer."""
_RESTART_S = 1.0


class Actor(Protocol):
    async def run(self) -> None: ...


ACTORS: dict[str, Callable[[Scene, str], Actor]] = {
    "idempotent": Idempotent,
    "plain": Plain,
    "bad_sender": Bad,
    "reader": Reader,
    "library_producer": LibraryProducer,
    "library_consumer": LibraryConsumer,
    "pipeliner": Pipeliner,
    "nuisance": Nuisance,
    "transactional": TransactionalProducer,
    "group_consumer": CommittingWorker,
    "transformer": Transformer,
    "keeper": Keeper,
    "library_transactional": LibraryTransactional,
    "library_admin": LibraryAdmin,
    "bare_committer": BareCommitter,
}


class NodeWorld:
    def __init__(
        self,
        swarm: NodeSwarm,
        random: Random,
        clock: SimClock,
        transcript: Transcript,
        report: Callable[[Exception], None],
    ) -> None:
        """`report` is called with violations that must not be raised where they are found."""
        self.swarm = swarm
        self.random = random
        self.clock = clock
        self.transcript = transcript
        self.ledger = Ledger()
        self.network = SimNetwork(random, swarm.weather)
        self.scene = Scene(random, clock, self.network, self.ledger, transcript.note)
        self.scene.protocol = swarm.protocol
        self.scene.hazards = frozenset(swarm.hazards)
        self.config = Config.of(broker=swarm.broker)
        disk = SimDisk(clock, random, swarm.faults, transcript.disk_call)
        disk.interleaving = swarm.interleaving
        host = self.network.host("node")
        self.machine = Machine(host, disk, self.config, self.ledger, transcript, crash_steps=swarm.crash_steps)
        self.machine.name_of = self.scene.name_of
        self.scene.stops = lambda: self.machine.stops
        self.scene.age = self.machine.age
        if UNSYNCED in swarm.hazards:
            self.machine.on_loss = self.scene.power_lost
        self.admin = SimAdmin(self.scene, "admin")
        # The age of a transaction is measured by the wall clock: setting it back gives it more time. And a transaction
        # that a coordinator has lost is open until the operator ends it.
        keeps_time = not (swarm.mishaps.keys() & set(SETS_CLOCKS) or UNSYNCED in swarm.hazards)
        self._watch = (
            NodeObserver(open_s_max=TIMEOUT_MS_MAX / 1000 + 10 + WATCH_EVERY_S) if keeps_time else NodeObserver()
        )
        self._healing = False
        self._rotten = False
        directories = self.config[LOG_DIRS]
        self.network.tap = Wiretap(self.scene, list(directories), lambda: self.machine.disk, report).wrote
        self.scene.is_calm = (
            swarm.weather.is_calm
            and not (swarm.mishaps or swarm.faults or swarm.crash_steps)
            and swarm.weather.window >= 1 << 16
            and "nuisance" not in swarm.clients
            and not any(kind in COORDINATED for kind in swarm.clients)
        )

    def is_disk_whole(self) -> bool:
        return not (self.machine.was_struck or self._rotten)

    async def play(self) -> None:
        self.transcript.note(f"swarm {self.swarm}")
        await self.machine.start()
        mishaps = Mishaps(self.scene, self.machine, is_over=lambda: self._healing)
        befalling = [mishaps.befall(kind, every_s) for kind, every_s in self.swarm.mishaps.items()]
        guards = [self._supervise(), self._watch_node(), *befalling]
        tasks = [asyncio.ensure_future(guard) for guard in guards]
        try:
            await self._all([asyncio.ensure_future(self._set_up())], tasks, within_s=600)
            playing = {asyncio.ensure_future(actor.run()): isinstance(actor, GroupWorker) for actor in self._actors()}
            await self._play_for(self.swarm.seconds, [*tasks, *playing])
            self._heal()
            if UNSYNCED in self.swarm.hazards:
                operator = Operator(self.scene, self.config[OFFSETS_TOPIC_NUM_PARTITIONS])
                tasks.append(asyncio.ensure_future(operator.run()))
            await self._all([task for task, is_worker in playing.items() if not is_worker], tasks, within_s=SETTLED_S)
            self.scene.closing = True
            await self._all(list(playing), tasks, within_s=SETTLED_S)
            await self._all([asyncio.ensure_future(self._audit())], tasks, within_s=SETTLED_S)
        finally:
            for task in tasks:
                task.cancel()
        await self._end()

    async def _set_up(self) -> None:
        for plan in self.swarm.topics:
            await self.admin.create(plan)

    def _actors(self) -> list[Actor]:
        made: list[Actor] = []
        for number, kind in enumerate(self.swarm.clients):
            made.append(self.admin if kind == "admin" else ACTORS[kind](self.scene, f"{kind}-{number}"))
        return made

    async def _play_for(self, seconds: float, tasks: Sequence["asyncio.Future[Any]"]) -> None:
        """Let the clients work for so long. Some seeds have a pause of all clients in the middle."""
        await self._run_for(seconds / 2, tasks)
        if lull_s := self.swarm.lull_s:
            self.transcript.note(f"a lull of {lull_s:g} s")
            self.scene.lull_until = self.clock.seconds + lull_s
            await self._run_for(lull_s, tasks)
        await self._run_for(seconds / 2, tasks)

    async def _run_for(self, seconds: float, tasks: Sequence["asyncio.Future[Any]"]) -> None:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        _raise_first(tasks)

    async def _all(
        self, wanted: Sequence["asyncio.Future[Any]"], others: Sequence["asyncio.Future[Any]"], *, within_s: float
    ) -> None:
        """Wait until the wanted tasks are done. The failure of any task fails the run."""
        deadline = self.clock.seconds + within_s
        while not all(task.done() for task in wanted):
            left_s = deadline - self.clock.seconds
            if left_s <= 0:
                raise Violation("I24", f"not over {within_s:g} s after healing: {[t for t in wanted if not t.done()]}")
            waiting = [task for task in (*wanted, *others) if not task.done()]
            await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            _raise_first([*wanted, *others])
        _raise_first(wanted)

    # Faults of the node.

    async def _supervise(self) -> None:
        """Restarts the node, and stops one that has lost its disk."""
        while True:
            try:
                async with asyncio.timeout(_RESTART_S):
                    await self.machine.down.wait()
            except TimeoutError:
                if not self.machine.failed:
                    continue
                self.machine.kill()
            if not self._healing:
                await self.scene.pause(2 * _RESTART_S)
            if self.random.random() < 0.2:
                await self._look_twice()
            if self._healing:
                self.machine.disk.faults.clear()
            await self.machine.start()

    async def _look_twice(self) -> None:
        await look_twice(self.machine.disk, self.network.host("twin"), self.config, Random(0), self.transcript.note)

    async def _watch_node(self) -> None:
        while True:
            self.ledger.latest_ms = max(self.ledger.latest_ms, self.clock.wall_ms())
            if self.machine.node is not None:
                self._watch.look(self.machine.node, self.clock.seconds)
            await asyncio.sleep(WATCH_EVERY_S)

    # The end.

    def _heal(self) -> None:
        self.transcript.note("healing")
        self._healing = True
        self.network.heal()
        self.clock.drift(0)
        self.machine.thaw()
        self.machine.crash_steps = 0
        self.machine.disk.faults.clear()
        self.machine.disk.crash_at(-1)
        self.scene.ending = True

    async def _audit(self) -> None:
        """Read everything, and check that everything can be written."""
        line = Line(self.scene, "auditor")
        for plan in self.swarm.topics:
            await self.admin.look(plan)
        for live in self.scene.topics.values():
            await self.admin.check_setting(live)
        for key in self.scene.all_keys():
            await self._audit_partition(line, key)
        if any(kind in COORDINATED for kind in self.swarm.clients):
            await audit_coordination(self.scene, line)
        line.hang_up()

    async def _audit_partition(self, line: Line, key: Key) -> None:
        while True:
            expected = sorted(self.ledger.partition(key).known)
            self.ledger.latest_ms = max(self.ledger.latest_ms, self.clock.wall_ms())
            try:
                found, start, end = await read_all(line, key)
            except (ClientError, Damaged) as error:
                self.transcript.note(f"audit: {error}")
                await self.scene.pause(0.5)
                continue
            self.ledger.latest_ms = max(self.ledger.latest_ms, self.clock.wall_ms())
            self.ledger.audited(key, found, start, end, expected=expected, quiet=True)
            return

    async def _end(self) -> None:
        """All clients are gone: the node must hold nothing of them. Then one more start, and one more audit."""
        if self.machine.node is None:
            await self.machine.start()
        await asyncio.sleep(LONGEST_WAIT_S)  # The node was never notified of some that are gone.
        self._check_nothing_left()
        await self.machine.stop()
        await self._look_twice()
        await self.machine.start()
        await asyncio.wait_for(self._audit(), SETTLED_S)
        if self.swarm.rot:
            await self._rot()
        self.transcript.note(f"disk {self.machine.disk.digest()}")

    def _check_nothing_left(self) -> None:
        node = self.machine.node
        assert node is not None
        self._watch.look(node, self.clock.seconds)
        waiting = [name_of(key) for key, partition in partitions(node) if fetches_waiting(partition)]
        if waiting:
            raise Violation("I26", f"fetches of clients that are gone wait for {waiting}")

    async def _rot(self) -> None:
        """Flip bits while the node is down, and check that all records served afterwards are correct (I23)."""
        self._rotten = True
        await self.machine.stop()
        for flipped in flip_bits(self.machine.disk, self.random):
            self.transcript.note(f"flipped {flipped}")
        try:
            await self.machine.start()
        except (Refused, LogDamaged, WrongDirectory) as error:
            self.transcript.note(f"refused: {type(error).__name__}: {error}")
            return
        line = Line(self.scene, "auditor")
        for key in self.scene.all_keys():
            try:
                found, _, _ = await read_all(line, key)
                for record in found.values():
                    self.ledger.read(key, record, life=self.ledger.lives)
            except (Damaged, ClientError) as error:
                self.transcript.note(f"told: {error}")
            except Violation as violation:
                if not isinstance(violation.__cause__, BadBatch):
                    raise
                self.transcript.note(f"noticed: {violation}")
        line.hang_up()


def _raise_first(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
