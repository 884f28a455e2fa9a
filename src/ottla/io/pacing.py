"""Enables TCP pacing only for connections to other machines.

If the system's congestion control paces (BBR), it also paces connections over the loopback: every 64 KiB waits for a
timer, without any benefit. That is up to half of the cost of sending (ADR 7).

Rule 1: a connection that was paced once stays paced, even if its congestion control is changed. So accepted connections
        start without pacing (`pace_nobody`), and get the system's congestion control if the peer is on another machine
        (`pace_what_leaves`).
Rule 2: a connection whose ends have the same address does not leave the machine.
Rule 3: if the system's congestion control does not pace, nothing is changed.
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
    """The system's congestion control for new connections if it paces, else b""."""
    if not _CONGESTION:
        return b""
    with socket.socket() as fresh:
        chosen = fresh.getsockopt(socket.IPPROTO_TCP, _CONGESTION, _NAME_BYTES).rstrip(b"\0")
    return chosen if chosen.startswith(_PACING) else b""


def pace_nobody(listening: socket.socket) -> None:
    """Disable pacing for the connections of a listening socket: accepted connections inherit its congestion control."""
    if pacing_control():
        with suppress(OSError):  # An administrator may forbid it.
            listening.setsockopt(socket.IPPROTO_TCP, _CONGESTION, _NOT_PACING)


def pace_what_leaves(accepted: socket.socket) -> None:
    """Give a connection to another machine the system's congestion control, if that paces."""
    if chosen := pacing_control():
        with suppress(OSError):  # The peer is gone already.
            if accepted.getsockname()[0] != accepted.getpeername()[0]:
                accepted.setsockopt(socket.IPPROTO_TCP, _CONGESTION, chosen)
