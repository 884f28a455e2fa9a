"""One connection to one broker.

Rule 1: requests may overlap. The broker answers them in order, and the correlation id identifies the request.
Rule 2: a response that does not come in time, or cannot be decoded, closes the connection: the bytes after it could not
        be assigned to a request. All pending requests fail with the reason.
Rule 3: a cancelled caller leaves the connection open; its response is dropped when it comes.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ottla import __version__
from ottla.io.ports import Network
from ottla.rpc.addresses import Address
from ottla.rpc.errors import (
    BadAnswer,
    ClientError,
    Declined,
    Disconnected,
    TimedOut,
    Unreachable,
    Unsupported,
    error_of,
)
from ottla.rpc.frames import FrameReader
from ottla.rpc.versions import ASKED_FIRST, NoCommonVersion, Versions, ask_again_with, decode_api_versions
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.codec import Malformed
from ottla.wire.errors import Error
from ottla.wire.frame import BadFrame, decode_response, encode_request
from ottla.wire.schema import message_of

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Larger than any response, smaller than the size that the first bytes of HTTP or TLS would be read as."""

_CORRELATION_MASK: Final = 0x7FFF_FFFF


class Waiting(NamedTuple):
    """A request in flight."""

    decode: Callable[[memoryview], Any]
    answer: "asyncio.Future[Any]"


class BrokerConnection(asyncio.Protocol):
    """A connection to a broker that has negotiated versions."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.client_id = client_id
        self.versions: Versions | None = None
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(ANSWER_BYTES_MAX)
        self._waiting: dict[int, Waiting] = {}
        self._next_id = 0
        self._ended: ClientError | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def usable(self) -> bool:
        return self._ended is None and self.versions is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def call(self, request: object, *, timeout_ms: int, at_most: int | None = None) -> Any:
        """Send a request in the newest version both sides speak, and return the answer."""
        version = self.version_for(type(request), at_most)
        await self._writable.wait()
        facts = message_of(type(request))
        assert facts.api_key is not None
        decode = partial(_decode_body, facts.api_key, version)
        return await self._exchange(request, version, decode, timeout_ms)

    async def tell(self, request: object, *, at_most: int | None = None) -> None:
        """Send a request without a response: Produce with acks=0."""
        version = self.version_for(type(request), at_most)
        await self._writable.wait()
        self._write(request, version)

    def version_for(self, request: type[Any], at_most: int | None = None) -> int:
        if self.versions is None:
            raise Disconnected(self.address, "the connection is not ready")
        try:
            return self.versions.choose(request, at_most)
        except NoCommonVersion as none:
            ours, theirs = f"{none.ours.first} to {none.ours.last}", "has none of them"
            if none.theirs is not None:
                theirs = f"speaks {none.theirs.first} to {none.theirs.last}"
            raise Unsupported(self.address, f"{none.api.name} is needed in version {ours}; it {theirs}") from None

    async def negotiate(self, timeout_ms: int) -> None:
        """Send ApiVersions; nothing else may be sent before."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        version = ASKED_FIRST
        while True:
            decode = partial(decode_api_versions, version)
            answer: ApiVersionsResponse = await self._exchange(request, version, decode, timeout_ms)
            error = error_of(answer.error_code)
            if error is Error.NONE:
                self.versions = Versions(answer)
                return
            again = ask_again_with(answer)
            if error is not Error.UNSUPPORTED_VERSION or again >= version:
                raise Declined(error, broker=self.address)
            version = again

    def close(self, reason: ClientError | None = None) -> None:
        """Close the connection; pending requests fail with the reason."""
        if self._ended is not None:
            return
        self._ended = reason or Disconnected(self.address, "the connection was closed here")
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.answer.done():
                one.answer.set_exception(self._ended)
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()

    async def _exchange(
        self, request: object, version: int, decode: Callable[[memoryview], Any], timeout_ms: int
    ) -> Any:
        correlation_id = self._write(request, version)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = Waiting(decode, answer)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            late = TimedOut(self.address, type(request).__name__.removesuffix("Request"), timeout_ms)
            self.close(Disconnected(self.address, "the connection was closed because an answer did not come in time"))
            raise late from None

    def _write(self, request: object, version: int) -> int:
        if self._ended is not None or self._transport is None:
            raise self._ended or Disconnected(self.address, "the connection is not open")
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & _CORRELATION_MASK
        self._transport.writelines(encode_request(request, version, correlation_id, self.client_id))
        return correlation_id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._ended is not None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(Disconnected(self.address, f"the connection broke ({exc})" if exc else "it closed the connection"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._answered(frame)
        except (BadFrame, Malformed) as error:
            self.close(BadAnswer(self.address, str(error)))

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise BadFrame(f"it answers request {correlation_id}, which was not asked")
        try:
            answer = waiting.decode(frame)
        except Malformed as error:
            if not waiting.answer.done():
                waiting.answer.set_exception(BadAnswer(self.address, str(error)))
            raise
        if not waiting.answer.done():
            waiting.answer.set_result(answer)


async def connect(network: Network, address: Address, client_id: str, *, timeout_ms: int) -> BrokerConnection:
    """Open a connection and negotiate versions. Raises ClientError with the broker's address."""
    connection = BrokerConnection(address, client_id)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await network.connect(address.host, address.port, lambda: connection)
    except TimeoutError:
        raise Unreachable([address], [f"no connection in {timeout_ms / 1000:g} s"]) from None
    except OSError as error:
        raise Unreachable([address], [_plain(error)]) from None
    try:
        await connection.negotiate(timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


def _decode_body(api_key: int, version: int, frame: memoryview) -> Any:
    return decode_response(api_key, version, frame)[1]


def _plain(error: OSError) -> str:
    """The error's text without its number and without the address, which the message has already."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
