"""Values that a server gives, and batches made of them.

A request is written once and sent to both servers. Where it names something that a server chose (a topic id, a producer
id, a member's epoch), it holds a `Given`, which each server replaces by its own value.
"""

from dataclasses import dataclass, fields
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from ottla.kernel import Codec, Record, batch_crc, build_batch, pack_header, read_header
from ottla.wire.schema import Struct

if TYPE_CHECKING:
    from odd.peer import Peer

TIMESTAMP: Final = 1_700_000_000_000
"""Of all records: answers must not depend on when the test runs."""
_CRC_AT: Final = 17


@dataclass(frozen=True)
class Given:
    """What a server gave under this name; `plus` makes it a neighbour of that."""

    kind: str
    name: str
    plus: int = 0

    def __str__(self) -> str:
        return f"<{self.kind} of {self.name}{f' + {self.plus}' if self.plus else ''}>"

    def on(self, peer: "Peer") -> Any:
        value = peer.given[self.kind, self.name]
        return value + self.plus if self.plus else value


@dataclass(frozen=True)
class Batch:
    """A record batch. `patch` overwrites fields of its header, with a right checksum unless it names the crc."""

    values: tuple[bytes | None, ...] = (b"v",)
    keys: tuple[bytes | None, ...] = ()
    producer_id: int | Given = -1
    epoch: int | Given = -1
    sequence: int = -1
    codec: Codec = Codec.NONE
    transactional: bool = False
    timestamp: int = TIMESTAMP
    patch: tuple[tuple[str, int], ...] = ()
    cut: int = 0
    """Bytes missing at its end."""
    times: int = 1
    """How often it stands in a row."""

    def __str__(self) -> str:
        given = [
            f"{one.name}={getattr(self, one.name)}" for one in fields(self) if getattr(self, one.name) != one.default
        ]
        return f"Batch({', '.join(given)})"

    def on(self, peer: "Peer") -> bytes:
        keys = self.keys or (b"k",) * len(self.values)
        records = [
            Record(index, self.timestamp, key, value)
            for index, (key, value) in enumerate(zip(keys, self.values, strict=True))
        ]
        batch = build_batch(
            records,
            producer_id=resolved(self.producer_id, peer),
            producer_epoch=resolved(self.epoch, peer),
            base_sequence=self.sequence,
            codec=self.codec,
            transactional=self.transactional,
        )
        if self.patch:
            batch = _patched(batch, dict(self.patch))
        return batch[: len(batch) - self.cut] * self.times


def _patched(batch: bytes, changed: dict[str, int]) -> bytes:
    header = read_header(batch)._replace(**changed)
    data = bytearray(pack_header(header) + batch[len(pack_header(header)) :])
    if "crc" not in changed:
        data[_CRC_AT : _CRC_AT + 4] = pack(">I", batch_crc(data, 0, len(data)))
    return bytes(data)


def resolved(value: Any, peer: "Peer") -> Any:
    """The value with everything in it that this server gave."""
    if isinstance(value, Given | Batch):
        return value.on(peer)
    if isinstance(value, Struct):
        copy: Any = object.__new__(type(value))
        for one in value.__structure__.fields:
            setattr(copy, one.name, resolved(getattr(value, one.name), peer))
        return copy
    if isinstance(value, list):
        return [resolved(one, peer) for one in value]
    return value
