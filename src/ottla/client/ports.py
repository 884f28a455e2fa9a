"""What a client needs of the outside world, and the machine's own."""

import random
from dataclasses import dataclass

from ottla.io.clock import SystemClock
from ottla.io.network import TcpNetwork
from ottla.io.ports import Clock, Network, Random


@dataclass(frozen=True, slots=True)
class Ports:
    network: Network
    clock: Clock
    random: Random


def machine_ports() -> Ports:
    return Ports(TcpNetwork(), SystemClock(), random.Random())
