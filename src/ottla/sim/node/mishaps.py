"""Faults of a node while its clients work: process, machine, network, clock, disk."""

import asyncio
import errno
from collections.abc import Callable
from random import Random

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.faults import Fault
from ottla.sim.machine.network import SimNetwork
from ottla.sim.node.machine import Machine
from ottla.sim.node.scene import Scene

LEAP_MS = 90_000
"""Longer than the shortest retention of offsets."""
SETS_CLOCKS = ("jump_clock", "leap_clock", "drift_clock", "freeze")
"""After these a time span may differ from what the coordinators measure."""
_DRIFTS = (-0.05, -0.002, 0.002, 0.05)


class Mishaps:
    def __init__(self, scene: Scene, machine: Machine, *, is_over: Callable[[], bool]) -> None:
        self._scene = scene
        self._machine = machine
        self._is_over = is_over
        self._random: Random = scene.random
        self._clock: SimClock = scene.clock
        self._network: SimNetwork = scene.network

    async def befall(self, kind: str, every_s: float) -> None:
        """Cause a fault of this kind at random intervals, until the run ends."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / every_s))
            await self._scene.lull()
            if self._is_over():
                return
            await self._once(kind)

    async def _once(self, kind: str) -> None:
        machine, now = self._machine, self._clock.seconds
        match kind:
            case "lose_power":
                machine.lose_power()
            case "kill":
                machine.kill()
            case "stop":
                await machine.stop()
            case "freeze":
                await self._freeze()
            case "cut_off":
                host = self._network.hosts[self._random.choice(list(self._network.hosts))]
                host.mute_until = host.deaf_until = now + self._random.uniform(0, 6)
            case "cut_one_way":
                self._cut_one_way(now + self._random.uniform(0, 6))
            case "jump_clock":
                self._clock.jump(self._random.choice((-20_000, -500, 500, 30_000)))
            case "leap_clock":
                self._clock.jump(LEAP_MS)
            case "drift_clock":
                self._clock.drift(self._random.choice(_DRIFTS))
            case "fill_disk":
                await self._fail(Fault(errno.ENOSPC, rate=0.3))
            case "use_up_files":
                await self._fail(Fault(errno.EMFILE, operations=("open",), rate=0.3))
            case "empty_disk":
                machine.replace_disk()

    async def _freeze(self) -> None:
        thaw = self._machine.freeze()
        await self._last(8)
        thaw()

    async def _last(self, seconds: float) -> None:
        """How long a fault lasts. It ends in a lull too, in which nothing but the node's own work goes on."""
        await asyncio.sleep(self._random.uniform(0, seconds))

    def _cut_one_way(self, until: float) -> None:
        """Cut one direction of a host's network: requests arrive and responses do not, or the other way round."""
        host = self._network.hosts[self._random.choice(list(self._network.hosts))]
        if self._random.random() < 0.5:
            host.mute_until = until
        else:
            host.deaf_until = until

    async def _fail(self, fault: Fault) -> None:
        """Apply the fault to the disk for a while."""
        self._machine.disk.faults.append(fault)
        await self._last(3)
        faults = self._machine.disk.faults  # The machine may have another disk object by now.
        faults[:] = [one for one in faults if one is not fault]
