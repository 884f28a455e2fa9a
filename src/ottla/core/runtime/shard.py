"""The interface of the state machines of coordinators, each in a partition of an internal topic, and their records.

Rule 1: `replay` is the only mutator of what is durable, live and at load. So a shard loaded from any prefix of its log
        is the shard that wrote that prefix.
Rule 2: the records of one decision stand in one batch: all of them count or none.
Rule 3: no answer leaves before the records of its decision, and of all decisions before it, are committed.
Rule 4: parked requests (tokens) and deadlines are not durable: they are lost when the shard is loaded again, and
        clients repeat their requests.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct as Layout
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol, overload

from ottla.core.runtime.decision import Decision
from ottla.wire.codec import Malformed, UnsupportedVersion, decode, encode_parts
from ottla.wire.schema import Struct, message_of

NO_PRODUCER: Final = -1
_INT16: Final = Layout(">h")
_KEY_VERSION: Final = 0
_KEYS_REMEMBERED: Final = 10_000  # A group sends requests every few seconds, and its partition never changes.


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Any
    """One of the topic's declared `...Key` classes."""
    value: Any
    """The `...Value` class of the same type. None is a tombstone."""
    value_version: int = 0


class RecordRun(Sequence[CoordinatorRecord]):
    """Records of one decision that are encoded and replayed together, faster than one by one."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    """The encoded values."""
    size: int
    """Bytes of all keys and values."""

    @abstractmethod
    def replay(self, shard: Any, first_offset: int, /) -> None:
        """Equivalent to `shard.replay` of each record at consecutive offsets."""

    @abstractmethod
    def record(self, number: int) -> CoordinatorRecord:
        """Create the record with this number in the run."""

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> CoordinatorRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[CoordinatorRecord]: ...

    def __getitem__(self, index: int | slice) -> CoordinatorRecord | list[CoordinatorRecord]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return self.record(index)


class ProducerStamp(NamedTuple):
    """The producer in whose transaction records are written: they take effect when it commits."""

    producer_id: int
    producer_epoch: int


class RecordOrigin(NamedTuple):
    """The offset and timestamp of a record, and the producer of its transaction, if any."""

    offset: int
    timestamp: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER


class Shard(Protocol):
    """The state machine of one partition of an internal topic."""

    def replay(self, record: CoordinatorRecord, origin: RecordOrigin, /) -> None: ...

    def replay_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """Apply the end of a producer's transaction: its records take effect, or are dropped."""

    def loaded(self, now_ms: int) -> Decision[None]:
        """Called when the log was replayed to its end; deadlines start now."""

    def tick(self, now_ms: int) -> Decision[None]:
        """Handle passed deadlines. The records may be split over several batches."""

    def next_deadline(self) -> int | None: ...

    def clock_set(self, by_ms: int) -> None:
        """Move all deadlines, because the wall clock was set."""


class BadCoordinatorRecord(ValueError):
    """The bytes are not a record of this topic."""


class RecordTypes:
    """The record types of an internal topic, by the number at the start of their keys."""

    def __init__(self, *modules: ModuleType) -> None:
        self._keys = _by_type(modules, "Key")
        self._values = _by_type(modules, "Value")

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """None for an unknown type: another release wrote it, and it stays in the log."""
        if key is None or len(key) < _INT16.size:
            raise BadCoordinatorRecord("a record without a key that tells its type")
        (record_type,) = _INT16.unpack_from(key)
        key_class, value_class = self._keys.get(record_type), self._values.get(record_type)
        if key_class is None or value_class is None:
            return None
        try:
            decoded_key = decode(key_class, _KEY_VERSION, key[_INT16.size :])
            if value is None:
                return CoordinatorRecord(decoded_key, None)
            if len(value) < _INT16.size:
                raise BadCoordinatorRecord(f"a {value_class.__name__} of {len(value)} bytes does not tell its version")
            (version,) = _INT16.unpack_from(value)
            return CoordinatorRecord(decoded_key, decode(value_class, version, value[_INT16.size :]), version)
        except (Malformed, UnsupportedVersion) as error:
            raise BadCoordinatorRecord(str(error)) from error


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Encode a record; returns the bytes of its key and of its value, which is None for a tombstone."""
    key, value, version = record
    head = b"".join((_type_of(key.__class__), *encode_parts(key, _KEY_VERSION)))
    return head, None if value is None else b"".join((_INT16.pack(version), *encode_parts(value, version)))


@cache
def _type_of(key: type) -> bytes:
    record_type = message_of(key).record_type
    assert record_type is not None, f"{key.__name__} is no key of a record"
    return _INT16.pack(record_type)


@lru_cache(maxsize=_KEYS_REMEMBERED)
def partition_of(key: str, partitions: int) -> int:
    """The partition of the internal topic for a group or transactional id: Java's `hashCode`, made positive."""
    hashed = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    if hashed >= 1 << 31:
        hashed = (1 << 32) - hashed
    return 0 if hashed == 1 << 31 else hashed % partitions


def hash_cost(key: str) -> int:
    """The cost of `partition_of`, in keys of ordinary length: a key may have 32,767 characters."""
    return 1 + len(key) // 16


@cache
def _by_type(modules: tuple[ModuleType, ...], ending: str) -> dict[int, type[Struct]]:
    found: dict[int, type[Struct]] = {}
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, type) and name.endswith(ending) and "__message__" in vars(value):
                record_type = message_of(value).record_type
                if record_type is not None:
                    found[record_type] = value
    return found
