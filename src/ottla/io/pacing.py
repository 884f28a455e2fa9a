"""Pacing, of connections that leave the machine and of no others.

Where the system's congestion control is one that paces (BBR), it does so on the loopback, too: every 64 KiB waits for a
timer of its own, in consideration of a network that is not there. That is up to half of what sending costs.

Rule 1: a connection that has once been paced always is, whatever its congestion control is then. So what a listener
        accepts is not, at first (`pace_nobody`), and gets the system's choice when it turns out to come from elsewhere
        (`pace_what_leaves`).
Rule 2: a connection whose ends have the same address does not leave the machine.
Rule 3: where the system's congestion control does not pace, nothing is touched.
"""

import socket
from contextlib import suppress
from functools import cache

_CONGESTION: int = getattr(socket, "TCP_CONGESTION", 0)  # Linux and FreeBSD.
_NAME_BYTES = 16
_PACING = b"bbr"
_NOT_PACING = b"reno"


@cache
def pacing_control() -> bytes:
    """The system's congestion control for new connections if it paces, else nothing."""
    if not _CONGESTION:
        return b""
    with socket.socket() as fresh:
        chosen = fresh.getsockopt(socket.IPPROTO_TCP, _CONGESTION, _NAME_BYTES).rstrip(b"\0")
    return chosen if chosen.startswith(_PACING) else b""


def pace_nobody(listening: socket.socket) -> None:
    """What it accepts inherits that."""
    if pacing_control():
        with suppress(OSError):  # An administrator may forbid it.
            listening.setsockopt(socket.IPPROTO_TCP, _CONGESTION, _NOT_PACING)


def pace_what_leaves(accepted: socket.socket) -> None:
    if chosen := pacing_control():
        with suppress(OSError):  # The other end is gone already.
            if accepted.getsockname()[0] != accepted.getpeername()[0]:
                accepted.setsockopt(socket.IPPROTO_TCP, _CONGESTION, chosen)
