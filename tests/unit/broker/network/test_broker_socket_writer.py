"""What goes down a socket arrives whole and in order, whether it was bytes or a part of a file."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from ottla.broker.network.send_round import SendRound
from ottla.broker.network.socket_writer import Part, SocketWriter
from ottla.io.disk import LocalDisk, LocalFile
from ottla.storage.slices import Slice

SENDFILE = os.sendfile


class Transport:
    """As much of a transport as an writer asks for."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours
        self.aborted = False

    def get_extra_info(self, _name: str) -> socket.socket:
        return self._ours

    def abort(self) -> None:
        self.aborted = True


class Line:
    """An writer and the other end of its connection."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.transport = Transport(self.ours)
        self.drained = 0
        self.writer = SocketWriter(cast(Any, self.transport), self._note_drained)

    def _note_drained(self) -> None:
        self.drained += 1

    async def receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            received += await asyncio.get_running_loop().sock_recv(self.theirs, 1 << 16)
        return received

    def close(self) -> None:
        self.writer.close()
        self.ours.close()
        self.theirs.close()


class Narrow:
    """A socket that takes so many bytes, and then no more."""

    def __init__(self, wide: socket.socket, room: int) -> None:
        self._wide = wide
        self.room = room

    def fileno(self) -> int:
        return self._wide.fileno()

    def close(self) -> None:
        self._wide.close()

    def send(self, data: bytes, flags: int = 0) -> int:
        return self._passing(self._wide.send(data[: self._left()], flags))

    def sendfile(self, _to: int, file: int, position: int, length: int) -> int:
        return self._passing(SENDFILE(self._wide.fileno(), file, position, min(length, self._left())))

    def _left(self) -> int:
        if not self.room:
            raise BlockingIOError
        return self.room

    def _passing(self, count: int) -> int:
        self.room -= count
        return count


@pytest.fixture
def file(tmp_path: Path) -> LocalFile:
    opened = LocalDisk(threads=1).open(str(tmp_path / "log"), create=True)
    opened.write(0, [Random(1).randbytes(1 << 21)])
    return opened


def on_a_line(work: Callable[[Line], Awaitable[None]]) -> None:
    async def run() -> None:
        line = Line()
        try:
            await work(line)
        finally:
            line.close()

    asyncio.run(run())


def contents(parts: list[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, Slice) else bytes(part) for part in parts)


def test_parts_arrive_whole_and_in_order(file: LocalFile) -> None:
    """Small slices are read, large ones sent by the kernel, and a slow reader makes both stop half-way."""
    choices = Random(2)
    lengths = [0, 1, 100, 8191, 8192, 8193, 70_000, 1_500_000]
    parts: list[Part] = []
    for number in range(60):
        parts.append(b"%04d" % number * choices.randrange(4))
        parts.append(Slice(file, choices.randrange(1 << 16), choices.choice(lengths), 0))

    async def work(line: Line) -> None:
        line.writer.send(parts)
        expected = contents(parts)
        assert line.writer.queued_bytes > 0, "the reader was not slow enough to test anything"
        assert await line.receive(len(expected)) == expected
        while line.writer.queued_bytes:
            await asyncio.sleep(0)
        assert line.drained > 0

    on_a_line(work)


@pytest.mark.parametrize("length", [8193, 100_000, 1 << 20])
@pytest.mark.parametrize("head", [1, 300_000])
def test_records_between_head_and_tail_arrive_whole(file: LocalFile, length: int, head: int) -> None:
    """As fetches are answered, one after the other; a reader that stops makes any of the parts wait."""
    answer: list[Part] = [b"h" * head, Slice(file, 17, length, 0), b"tail"]

    async def work(line: Line) -> None:
        expected = contents(answer)
        for _ in range(3):
            line.writer.send(answer)
            assert await line.receive(len(expected)) == expected
        for _ in range(4):
            line.writer.send(answer)
        assert await line.receive(4 * len(expected)) == 4 * expected

    on_a_line(work)


@pytest.mark.parametrize("sizes", [(5, 100_000, 4), (0, 9_000, 0), (5, 100, 4)])
@pytest.mark.parametrize("room", range(0, 120_000, 7_001))
def test_what_a_full_socket_does_not_take_is_queued(
    file: LocalFile, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int], room: int
) -> None:
    """Wherever it stops, the rest follows."""
    head, length, tail = sizes
    answer: list[Part] = [b"h" * head, Slice(file, 17, length, 0), b"t" * tail]

    async def work(line: Line) -> None:
        narrow = Narrow(line.writer._socket, room)
        monkeypatch.setattr(line.writer, "_socket", narrow)
        monkeypatch.setattr(os, "sendfile", narrow.sendfile)
        line.writer.send(answer)
        assert line.writer.queued_bytes == max(len(contents(answer)) - room, 0)
        narrow.room = 1 << 30
        assert await line.receive(len(contents(answer))) == contents(answer)

    on_a_line(work)


@pytest.mark.parametrize("tail", [[], [b"tail"]])
@pytest.mark.parametrize("length", [100, 100_000])
def test_file_that_ends_too_early_breaks_the_connection(file: LocalFile, length: int, tail: list[Part]) -> None:
    """The frame has promised more bytes; whatever else came now would be read as records."""

    async def work(line: Line) -> None:
        line.writer.send([b"head", Slice(file, file.size() - 10, length, 0), *tail])
        assert line.transport.aborted
        assert line.writer.queued_bytes == 0

    on_a_line(work)


def test_sending_to_a_reader_that_is_gone_is_no_error() -> None:
    async def work(line: Line) -> None:
        line.theirs.close()
        line.writer.send([b"lost"])
        line.writer.send([b"lost"])
        assert line.transport.aborted

    on_a_line(work)


class Sender:
    """Somebody with answers to send, who notes that it was their turn; one called broken cannot."""

    def __init__(self, sent: list[str], name: str) -> None:
        self._sent = sent
        self._name = name

    def send_ready(self) -> None:
        if self._name == "broken":
            raise RuntimeError("no way out")
        self._sent.append(self._name)


def test_outbox_lets_everybody_send_at_the_end_of_the_round() -> None:
    sent: list[str] = []

    async def run() -> None:
        send_round = SendRound()
        for name in "abc":
            send_round.add(Sender(sent, name))
        assert sent == []
        await asyncio.sleep(0)
        assert sent == ["a", "b", "c"]
        send_round.add(Sender(sent, "d"))
        await asyncio.sleep(0)
        assert sent == ["a", "b", "c", "d"]

    asyncio.run(run())


def test_outbox_does_not_keep_one_waiting_who_is_alone() -> None:
    """Nobody else has answers, so there is nothing to wait for; with others about, it goes with them."""
    sent: list[str] = []

    async def run() -> None:
        send_round = SendRound()
        alone, other = Sender(sent, "alone"), Sender(sent, "other")
        send_round.add(alone)
        await asyncio.sleep(0)
        send_round.add(alone)
        assert sent == ["alone", "alone"]
        send_round.add(other)
        send_round.add(alone)
        assert sent == ["alone", "alone"]
        await asyncio.sleep(0)
        assert sent == ["alone", "alone", "other", "alone"]

    asyncio.run(run())


def test_one_who_fails_to_send_keeps_nobody_else_waiting() -> None:
    sent: list[str] = []

    async def run() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        send_round = SendRound()
        for name in ("first", "broken", "second", "third"):
            send_round.add(Sender(sent, name))
        for _ in range(3):
            await asyncio.sleep(0)
        assert sent == ["first", "second", "third"]
        assert len(failures) == 1, "the failure is told"

    asyncio.run(run())


def test_client_that_takes_as_fast_as_is_sent_gets_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a hundred megabytes for one are a tenth of a second for all others."""

    class Greedy:
        """A socket that takes everything at once."""

        def __init__(self, real: socket.socket) -> None:
            self._real = real
            self.taken = bytearray()

        def send(self, data: bytes, _flags: int = 0) -> int:
            self.taken += data
            return len(data)

        def fileno(self) -> int:
            return self._real.fileno()

        def close(self) -> None:
            self._real.close()

    async def main() -> None:
        line = Line()
        greedy = Greedy(line.writer._socket)
        monkeypatch.setattr(line.writer, "_socket", greedy)
        parts: list[Part] = [bytes([number % 251]) * 10_000 for number in range(2_000)]
        line.writer.send(parts)
        rounds = [len(greedy.taken)]
        while line.writer.queued_bytes:
            await asyncio.sleep(0)
            rounds.append(len(greedy.taken) - sum(rounds))
        assert max(rounds) < 5 << 20
        assert len(rounds) >= 4
        assert greedy.taken == b"".join(cast(list[bytes], parts))
        assert line.drained == 1
        line.close()

    asyncio.run(main())


def test_same_buffer_may_stand_in_an_answer_many_times() -> None:
    async def main() -> None:
        line = Line()
        shared = b"x" * 70_000
        line.writer.send([b"head", *[shared] * 100, b"", b"tail"])
        assert line.writer.queued_bytes > 6 << 20
        held = line.writer.queued_buffers
        assert sum({id(part): len(part) for part in held}.values()) < 200_000
        assert await line.receive(8 + 7_000_000) == b"head" + shared * 100 + b"tail"
        line.close()

    asyncio.run(main())
