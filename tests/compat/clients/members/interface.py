"""What a member of a group and a transactional writer can do, whatever client they are made of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

TIMEOUT_S = 30
HEARTBEAT_MS = 100
POLL_S = 0.05
BATCH = 20
"""The most records that one poll brings."""


class Kind(NamedTuple):
    """A client and how its members share partitions."""

    client: str
    protocol: str

    @property
    def is_incremental(self) -> bool:
        """Members keep what they need not give away."""
        return self.protocol in ("cooperative", "consumer")

    @property
    def is_classic(self) -> bool:
        return self.protocol != "consumer"


class Joining(NamedTuple):
    """How to join a group."""

    bootstrap: str
    group: str
    topic: str
    protocol: str
    instance_id: str | None = None
    session_ms: int = 10_000


class Polled(NamedTuple):
    partition: int
    offset: int
    value: str


class Listener(NamedTuple):
    """Who hears of records as they leave the client, and of partitions that come and go in between."""

    polled: Callable[[Sequence[Polled]], None]
    assigned: Callable[[Sequence[int]], None]
    revoked: Callable[[Sequence[int]], None]
    lost: Callable[[Sequence[int]], None]


class Member(Protocol):
    """One that subscribed to the topic. It reads what is committed, and commits what it is told to."""

    def poll(self) -> list[Polled]:
        """Records, or none after a moment; partitions come and go meanwhile."""

    def commit(self, offsets: Mapping[int, int]) -> None: ...

    def metadata(self) -> Any:
        """What a writer of the same client wants to know of the group."""

    def close(self) -> None: ...


class Writer(Protocol):
    """A transactional producer, with earlier ones of its id fenced."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: str) -> None: ...

    def flush(self) -> None:
        """Until all that was sent is in the log."""

    def send_offsets(self, topic: str, offsets: Mapping[int, int], metadata: Any) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Client(Protocol):
    """A module of this package."""

    def join(self, joining: Joining, listener: Listener) -> Member: ...

    def writer(self, bootstrap: str, transactional_id: str) -> Writer: ...

    def read(self, bootstrap: str, topic: str, isolation: str) -> list[str]:
        """All of partition 0 that can be read now."""
