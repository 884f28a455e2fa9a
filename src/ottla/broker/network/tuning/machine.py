"""The tuning of a node that serves real sockets."""

from socket import socket

from ottla.broker.network.tuning.busy_poll import BusyPoll
from ottla.broker.network.tuning.paced_reads import PacedReads, PaceTimer
from ottla.io.ports import Clock


class MachineTuning:
    def __init__(self, clock: Clock, *, processors: int) -> None:
        self.busy_poll = BusyPoll(processors=processors)
        self.pace_timer = PaceTimer(clock)
        self.answered = self.busy_poll.answered

    def read(self) -> None:
        self.busy_poll.reads += 1

    def pace(self, connected: socket | None, now_ms: int, /) -> PacedReads | None:
        return None if connected is None else PacedReads(connected, self.pace_timer, now_ms)
