"""The ports a client needs, and their implementation on this machine."""

import random
from dataclasses import dataclass

from ottla.io.clock import SystemClock
from ottla.io.network import TcpNetwork
from ottla.io.ports import Clock, Network, Random


@dataclass(frozen=True, slots=True)
class Ports:
    """Network, clock and random numbers of a client."""

    network: Network
    clock: Clock
    random: Random


def machine_ports() -> Ports:
    return Ports(TcpNetwork(), SystemClock(), random.Random())
