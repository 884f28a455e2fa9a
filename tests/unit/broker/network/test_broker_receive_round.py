"""What several connections received in one round is taken together, in order, and before the room is used again."""

import asyncio
from dataclasses import dataclass, field

from ottla.broker.network.receive_round import ReceiveRound
from ottla.broker.network.shortcuts import NO_FAST_PATH

NOW_MS = 5_000


class Clock:
    def monotonic_ms(self) -> int:
        return NOW_MS

    def wall_ms(self) -> int:
        raise AssertionError("nobody asks what time it is")


@dataclass(eq=False)
class Client:
    name: int
    seen: list[tuple[str, int, bytes]] = field(repr=False)

    def take(self, data: memoryview, now_ms: int) -> None:
        assert now_ms == NOW_MS
        if data == b"bad":
            raise ValueError("no")
        self.seen.append(("take", self.name, bytes(data)))

    def broken(self, error: Exception) -> None:
        self.seen.append(("broken", self.name, str(error).encode()))

    def send_ready(self) -> None:
        self.seen.append(("send", self.name, b""))


class Round:
    def __init__(self, size: int = 1_000) -> None:
        self.receive_round = ReceiveRound(size, Clock(), NO_FAST_PATH.write)
        self.seen: list[tuple[str, int, bytes]] = []
        self._clients: dict[int, Client] = {}

    def receive(self, name: int, data: bytes) -> bool:
        """Whether it is kept."""
        client = self._clients.setdefault(name, Client(name, self.seen))
        self.receive_round.free[: len(data)] = data
        return self.receive_round.keep(client, len(data))


def test_of_several_each_is_taken_at_the_end_of_the_round_and_then_answers_leave() -> None:
    async def main() -> list[tuple[str, int, bytes]]:
        tried = Round()
        assert all(tried.receive(name, b"%d" % name * 3) for name in range(3))
        assert not tried.seen
        await asyncio.sleep(0)
        assert len(tried.receive_round.free) == 1_000
        return tried.seen

    taken = [("take", 0, b"000"), ("take", 1, b"111"), ("take", 2, b"222")]
    assert asyncio.run(main()) == [*taken, ("send", 0, b""), ("send", 1, b""), ("send", 2, b"")]


def test_one_that_fails_does_not_keep_the_others_from_being_taken() -> None:
    async def main() -> list[tuple[str, int, bytes]]:
        tried = Round()
        tried.receive(0, b"bad")
        tried.receive(1, b"good")
        await asyncio.sleep(0)
        assert len(tried.receive_round.free) == 1_000
        return tried.seen

    assert asyncio.run(main())[:2] == [("broken", 0, b"no"), ("take", 1, b"good")]


def test_who_is_read_twice_in_a_row_has_nobody_to_wait_for() -> None:
    async def main() -> None:
        tried = Round()
        assert tried.receive(0, b"first")
        await asyncio.sleep(0)
        assert not tried.receive(0, b"second")
        assert len(tried.receive_round.free) == 1_000
        assert tried.receive(1, b"third")
        assert tried.receive(0, b"behind it")

    asyncio.run(main())


def test_of_many_the_first_do_not_wait_for_the_last() -> None:
    async def main() -> None:
        tried = Round()
        for name in range(100):
            assert tried.receive(name, b"x")
        within = [name for what, name, _ in tried.seen if what == "send"]
        assert within == list(range(len(within)))
        assert 0 < len(within) < 100
        await asyncio.sleep(0)
        assert [name for what, name, _ in tried.seen if what == "send"] == list(range(100))

    asyncio.run(main())


def test_there_is_always_room_for_half_of_the_buffer() -> None:
    async def main() -> None:
        tried = Round()
        for name in range(5):
            tried.receive(name, bytes(300))
            assert len(tried.receive_round.free) >= 500

    asyncio.run(main())
