"""A network in memory: asyncio's transports between hosts, with faults (`Weather`).

Rule 1: bytes arrive in order or not at all, in pieces and with delays that the seed draws.
Rule 2: a connection has a window. If the receiver does not read, it fills up; then the sender's buffer grows, and its
        protocol is told to pause.
Rule 3: the two ends of a connection end separately. Bytes of an end that is gone may still arrive, perhaps much later;
        the other end may learn of it only when it sends, or never.
Rule 4: a process that ends has its connections reset. A machine that loses power sends nothing, and answers with a
        reset when it is back.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, cast

CONNECT_TIMEOUT_S = 60.0
_HIGH_WATER, _LOW_WATER = 1 << 16, 1 << 14


@dataclass(frozen=True, slots=True)
class Weather:
    """The probabilities of faults per piece."""

    delay_ms_max: float = 2.0
    window: int = 1 << 16
    split: float = 0.0
    """A piece is split in two."""
    stall: float = 0.0
    """A direction is blocked for a while, up to `stall_ms_max`."""
    stall_ms_max: float = 0.0
    reset: float = 0.0
    """The connection breaks in the middle of the piece."""
    silent: float = 0.0
    """Of the broken ones: one end is not notified."""

    @property
    def is_calm(self) -> bool:
        return not (self.stall or self.reset)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, host: "Host", name: tuple[str, int], peer_name: tuple[str, int]) -> None:
        super().__init__({"sockname": name, "peername": peer_name})
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._network = host.network
        self._protocol: asyncio.BaseProtocol
        self._peer: SimTransport
        self._unsent = bytearray()
        self._under_way = 0
        self._next_arrival = 0.0
        """Nothing sent from here arrives before this time."""
        self._arrived = bytearray()
        self._ended: Exception | bool | None = False
        """What ends the stream after the bytes that have arrived; False while nothing does."""
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._gone = False
        """The socket is closed: nothing is sent or received, and the protocol was or will be notified."""
        self._limits = (_LOW_WATER, _HIGH_WATER)

    @staticmethod
    def pair(near: "SimTransport", far: "SimTransport") -> None:
        near._peer, far._peer = far, near

    # The transport's interface.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = _HIGH_WATER if high is None else high
        self._limits = (high // 4 if low is None else low, high)

    @property
    def host(self) -> "Host":
        return self._host

    @property
    def peer(self) -> "SimTransport":
        """The other end."""
        return self._peer

    def write(self, data: Any) -> None:
        if not self._closing and self._host.is_on():
            if self._network.tap is not None:
                self._network.tap(self, data)
            self._unsent += data
            self._pump()
            self._tell_writer()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._soon(self._deliver)

    def close(self) -> None:
        """Closes after the written bytes were sent."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._finish(None)

    def abort(self) -> None:
        self._closing = True
        self._unsent.clear()
        self._finish(None)

    # Sending.

    def _pump(self) -> None:
        """Send what fits into the window."""
        weather = self._network.weather
        while self._unsent and not self._gone:
            room = weather.window - self._under_way - len(self._peer._arrived)
            if room <= 0:
                return
            size = min(len(self._unsent), room)
            if self._chance(weather.split):
                size = self._network.random.randint(1, size)
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            if self._chance(weather.stall):
                late_s = self._network.random.uniform(0, weather.stall_ms_max) / 1000
                self._next_arrival = max(self._next_arrival, self._loop.time() + late_s)
            if self._chance(weather.reset):
                self._break(piece)
                return
            self._send(piece)
        if self._closing and not self._gone:
            self._finish(None)

    def _send(self, piece: bytes) -> None:
        self._under_way += len(piece)
        self._at_peer(lambda: self._arrive(piece))

    def _arrive(self, piece: bytes) -> None:
        """Deliver a piece to the other end."""
        self._under_way -= len(piece)
        peer = self._peer
        if peer._gone:
            # A packet to a closed end is answered with a reset, if the host is on.
            if peer._host.is_on():
                peer._at_peer(lambda: self._lose(ConnectionResetError(errno.ECONNRESET, "reset by peer")))
        elif peer._ended is False:
            peer._arrived += piece
            peer._deliver()

    def _break(self, piece: bytes) -> None:
        """Break the connection in the middle of a piece: its first bytes arrive, all later bytes are lost."""
        random = self._network.random
        self._send(piece[: random.randrange(len(piece))])
        self._unsent.clear()
        here_notified, there_notified = True, True
        if self._chance(self._network.weather.silent):
            here_notified = self._chance(0.5)
            there_notified = not here_notified
        if there_notified:
            self._at_peer(lambda: self._peer._end(ConnectionResetError(errno.ECONNRESET, "broken on the way")))
        if here_notified:
            self._soon(lambda: self._lose(ConnectionResetError(errno.ECONNRESET, "broken on the way")))
        self._closing = True  # Bytes written from now on are lost.

    def _tell_writer(self) -> None:
        low, high = self._limits
        if not self._writing_paused and len(self._unsent) > high:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif self._writing_paused and len(self._unsent) <= low:
            self._writing_paused = False
            self._soon(self._resume_writer)

    def _resume_writer(self) -> None:
        if not self._gone:
            self._protocol.resume_writing()

    # Receiving.

    def _deliver(self) -> None:
        """Deliver what has arrived to the protocol, and free the window for the sender."""
        while self._arrived and self._reading and not self._gone and self._host.is_on():
            self._give()
        if not self._arrived and self._ended is not False:
            self._lose(cast(Exception | None, self._ended))
        if self._peer._unsent or self._peer._closing:
            self._peer._soon(self._peer._go_on)

    def _give(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(cast(Any, protocol.get_buffer(-1)))
            size = min(len(buffer), len(self._arrived))
            buffer[:size] = self._arrived[:size]
            del self._arrived[:size]
            protocol.buffer_updated(size)
            self._host.after_delivery(size)
        else:
            data = bytes(self._arrived)
            self._arrived.clear()
            cast(asyncio.Protocol, protocol).data_received(data)

    def _go_on(self) -> None:
        self._pump()
        if not self._gone:
            self._tell_writer()

    # Ending.

    def _finish(self, error: Exception | None) -> None:
        """Close this end; the other is notified after all that was sent."""
        if not self._gone:
            self._at_peer(lambda: self._peer._end(None))
            self._lose(error)

    def _end(self, error: Exception | None) -> None:
        """The other end is closed; this one is notified after the bytes that have arrived."""
        if not self._gone and self._ended is False:
            self._ended = error
            if error is not None:
                self._arrived.clear()  # A reset discards unread bytes.
            self._deliver()

    def _lose(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = self._closing = True
        self._unsent.clear()
        self._arrived.clear()
        self._host.connections.pop(self, None)
        self._soon(lambda: self._protocol.connection_lost(error))

    def vanish(self, *, notified: bool) -> None:
        """The process of this end is gone and is not notified; the other end is if `notified`."""
        if notified and not self._gone:
            self._at_peer(lambda: self._peer._end(ConnectionResetError(errno.ECONNRESET, "reset by peer")))
        self._gone = self._closing = True
        self._unsent.clear()

    # Time and randomness.

    def _at_peer(self, action: Callable[[], None]) -> None:
        """Do something at the other end when a piece sent now would arrive there, in order."""
        network, now = self._network, self._loop.time()
        delay_s = network.random.uniform(0.1, network.weather.delay_ms_max) / 1000
        there = self._peer._host
        arrival = max(now + delay_s, self._next_arrival, self._host.mute_until, there.deaf_until)
        self._next_arrival = arrival + 1e-6  # Keeps the order: timers of equal times could be confused.
        self._loop.call_at(arrival, there.guarded(action), context=there.context)

    def _soon(self, action: Callable[[], object]) -> None:
        self._loop.call_soon(self._host.guarded(action), context=self._host.context)

    def _chance(self, rate: float) -> bool:
        return rate > 0 and self._network.random.random() < rate


class Host:
    """A machine on the network: the `Network` port of the code that runs there."""

    def __init__(self, network: "SimNetwork", name: str) -> None:
        self.network = network
        self.name = name
        self.context: Context = copy_context()
        self.is_on: Callable[[], bool] = lambda: True
        self.answers = True
        """Whether the machine is on: then connections to a missing process are refused instead of timing out."""
        self.mute_until = self.deaf_until = 0.0
        """Until these times nothing is sent from here, or received here. It arrives afterwards."""
        self.after_delivery: Callable[[int], None] = lambda _: None
        self.connections: dict[SimTransport, None] = {}
        self._incarnation = 0

    def boot(self, context: Context, is_on: Callable[[], bool]) -> None:
        """Start a new process on this host."""
        self._incarnation += 1
        self.context, self.is_on, self.answers = context, is_on, True

    def halt(self, *, answers: bool) -> None:
        """End the process on this host. `answers`: the machine stays on and refuses connections."""
        self._incarnation += 1
        self.is_on = lambda: False
        self.answers = answers
        for address in [address for address, listener in self.network.listeners.items() if listener.on is self]:
            del self.network.listeners[address]
        for transport in list(self.connections):
            transport.vanish(notified=answers)
        self.connections.clear()

    def guarded(self, action: Callable[[], object]) -> Callable[[], None]:
        """Run `action` only while the current process runs; the network is informed in any case."""
        incarnation = self._incarnation

        def act() -> None:
            if incarnation == self._incarnation:
                action()

        return act

    async def listen(self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> "SimListener":
        if (host, port) in self.network.listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is taken")
        listener = SimListener(self, host, port or self.network.free_port(), accept)
        self.network.listeners[host, listener.port] = listener
        return listener

    async def connect(self, host: str, port: int, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        network, loop = self.network, asyncio.get_running_loop()
        there = network.hosts.get(host)
        await asyncio.sleep(network.random.uniform(0.1, network.weather.delay_ms_max) / 1000)
        while there is not None and (cut_off_until := self._cut_off_until(there)) > loop.time():
            await asyncio.sleep(cut_off_until - loop.time())
        if there is None or not there.answers:
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")
        listener = network.listeners.get((host, port))
        if listener is None or not listener.started:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")
        return self._connected(listener, make())

    def _cut_off_until(self, there: "Host") -> float:
        """A connection needs packets in both directions."""
        return max(self.mute_until, self.deaf_until, there.mute_until, there.deaf_until)

    def _connected(self, listener: "SimListener", protocol: asyncio.BaseProtocol) -> SimTransport:
        there, name = listener.on, (self.name, self.network.free_port())
        near = SimTransport(self, name, (listener.host, listener.port))
        far = SimTransport(there, (listener.host, listener.port), name)
        SimTransport.pair(near, far)
        self.connections[near] = there.connections[far] = None

        def accepted() -> None:
            accepting = listener.accept()
            far.set_protocol(accepting)
            accepting.connection_made(far)

        near._at_peer(accepted)
        near.set_protocol(protocol)
        protocol.connection_made(near)
        return near


class SimListener:
    def __init__(self, on: Host, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        self.on = on
        self.host = host
        self.port = port
        self.accept = accept
        self.started = False

    async def start(self) -> None:
        self.started = True

    def close(self) -> None:
        if self.on.network.listeners.get((self.host, self.port)) is self:
            del self.on.network.listeners[self.host, self.port]


class SimNetwork:
    def __init__(self, random: Random, weather: Weather) -> None:
        self.random = random
        self.weather = weather
        self.hosts: dict[str, Host] = {}
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.tap: Callable[[SimTransport, Any], None] | None = None
        """Called with everything that is sent, before it is."""
        self._ports = 40_000

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def free_port(self) -> int:
        self._ports += 1
        return self._ports

    def heal(self) -> None:
        """No more faults and delays; bytes in flight arrive."""
        self.weather = Weather(split=self.weather.split)
        for host in self.hosts.values():
            host.mute_until = host.deaf_until = 0.0
