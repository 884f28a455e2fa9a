"""The simulated network: order, back-pressure, late bytes, and ends that die by themselves."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.sim.machine.loop import run
from ottla.sim.machine.network import SimNetwork, Weather


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.data = b""
        self.lost = False
        self.paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


def connected(weather: Weather, scenario: Callable[[SimNetwork, End, End], Coroutine[Any, Any, None]]) -> None:
    async def main(_: object) -> None:
        network, client, server = SimNetwork(Random(1), weather), End(), End()
        listener = await network.host("node").listen("node", 1, lambda: server)
        await listener.start()
        await network.host("client").connect("node", 1, lambda: client)
        await asyncio.sleep(1)
        await scenario(network, client, server)

    run(main, 1)


def test_bytes_arrive_in_order_however_they_are_cut() -> None:
    async def scenario(_: SimNetwork, client: End, server: End) -> None:
        sent = b"".join(b"%d," % number for number in range(500))
        client.transport.writelines([sent[:7], sent[7:]])
        await asyncio.sleep(60)
        assert server.data == sent

    connected(Weather(split=0.9, window=50), scenario)


def test_sender_is_paused_while_the_receiver_does_not_read() -> None:
    async def scenario(_: SimNetwork, client: End, server: End) -> None:
        server.transport.pause_reading()
        client.transport.write(bytes(200_000))
        await asyncio.sleep(5)
        assert (server.data, client.paused) == (b"", 1)
        assert client.transport.get_write_buffer_size() == 199_000
        server.transport.resume_reading()
        await asyncio.sleep(60)
        assert (len(server.data), client.paused) == (200_000, 0)

    connected(Weather(window=1_000), scenario)


def test_what_was_sent_arrives_after_its_sender_is_gone() -> None:
    async def scenario(network: SimNetwork, client: End, server: End) -> None:
        network.hosts["node"].mute_until = network.hosts["node"].deaf_until = 30.0
        client.transport.write(b"late")
        client.transport.abort()
        await asyncio.sleep(5)
        assert (client.lost, server.lost, server.data) == (True, False, b"")
        await asyncio.sleep(30)
        assert (server.data, server.lost) == (b"late", True)

    connected(Weather(), scenario)


@pytest.mark.parametrize("deaf", [True, False])
def test_a_host_may_be_cut_off_one_way(deaf: bool) -> None:
    async def scenario(network: SimNetwork, client: End, server: End) -> None:
        if deaf:
            network.hosts["node"].deaf_until = 30.0
        else:
            network.hosts["node"].mute_until = 30.0
        client.transport.write(b"question")
        server.transport.write(b"answer")
        await asyncio.sleep(5)
        assert (server.data, client.data) == ((b"", b"answer") if deaf else (b"question", b""))
        await asyncio.sleep(30)
        assert (server.data, client.data) == (b"question", b"answer")

    connected(Weather(), scenario)


def test_all_that_is_sent_can_be_tapped() -> None:
    async def scenario(network: SimNetwork, client: End, server: End) -> None:
        tapped: list[tuple[str, str, bytes]] = []
        network.tap = lambda transport, data: tapped.append(
            (transport.host.name, transport.peer.host.name, bytes(data))
        )
        client.transport.write(b"question")
        server.transport.write(b"answer")
        assert tapped == [("client", "node", b"question"), ("node", "client", b"answer")]

    connected(Weather(), scenario)


@pytest.mark.parametrize("answers", [True, False])
def test_death_of_a_process_is_heard_and_a_power_loss_is_not(answers: bool) -> None:
    async def scenario(network: SimNetwork, client: End, server: End) -> None:
        network.hosts["node"].halt(answers=answers)
        await asyncio.sleep(5)
        assert client.lost is answers
        assert not server.lost  # There is nobody left to hear it.

    connected(Weather(), scenario)


def test_connection_breaks_inside_a_piece() -> None:
    async def scenario(_: SimNetwork, client: End, server: End) -> None:
        client.transport.write(b"0123456789")
        await asyncio.sleep(5)
        assert client.lost
        assert server.lost
        assert server.data in (b"0123456789"[:size] for size in range(10))

    connected(Weather(reset=1.0), scenario)
