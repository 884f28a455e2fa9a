"""What every client can do."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30
CREATE_TIME, LOG_APPEND_TIME = 0, 1

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    """A record before it has an offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Got(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def as_sent(self) -> Sent:
        return Sent(self.key, self.value, self.timestamp, self.headers)


class Driver(Protocol):
    name: str
    codecs: tuple[str, ...]
    """Which the installed package can compress with."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[int]:
        """Send to partition 0 and wait for all the answers; the offsets they name, which acks=0 leaves unknown."""

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0) -> list[Got]:
        """Read so many records of partition 0, without a group. Fails when they do not come."""
