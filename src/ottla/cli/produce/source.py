"""Reads standard input, or a file, without blocking the event loop.

A thread reads, because not every file can be watched by an event loop. It reads the descriptor directly and is a
daemon, so that Ctrl-C ends the program while the thread still waits for a line.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

from ottla.cli.errors import UserError

PIECE: Final = 256 * 1024
AHEAD: Final = 4


async def pieces(path: str | None) -> AsyncIterator[bytes]:
    """The bytes of the file, or of standard input, as they arrive."""
    descriptor = _open(path)
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    ahead = threading.Semaphore(AHEAD)

    def read() -> None:
        while True:
            ahead.acquire()
            try:
                piece: bytes | OSError = os.read(descriptor, PIECE)
            except OSError as error:
                piece = error
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, piece)
            except RuntimeError:
                return  # The program is ending.
            if not piece or isinstance(piece, OSError):
                return

    threading.Thread(target=read, name="input", daemon=True).start()
    while True:
        piece = await arrived.get()
        ahead.release()
        if isinstance(piece, OSError):
            raise UserError(f"{path or 'standard input'} cannot be read: {piece.strerror}")
        if not piece:
            return
        yield piece


def _open(path: str | None) -> int:
    if path is None:
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
