"""What coordinators have in common: state machines that live in a partition of an internal topic.

Rule 1: deciding changes nothing durable. `replay` is the only mutator of what is durable, live and at load, so that a
        shard loaded from any prefix of its log is the shard that wrote that prefix.
Rule 2: the records of one decision stand in one batch: all of them count or none.
Rule 3: nobody hears of a decision before its records are committed, nor of anything decided after them.
Rule 4: who waits (tokens) and when a member is given up (deadlines) is not durable: it is gone when the shard is loaded
        anew, and clients ask again.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct as Layout
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, NewType, Protocol, TypeVar, overload

from ottla.wire.codec import Malformed, UnsupportedVersion, decode, encode_parts
from ottla.wire.schema import Struct, message_of

R = TypeVar("R")

Token = NewType("Token", int)
"""A request that is being handled; its answer may come later under this name."""

PARKED: Final[Any] = object()
"""The reply of a decision whose answer comes later: some decision's `wake` will name the token."""

NO_PRODUCER: Final = -1
_INT16: Final = Layout(">h")
_KEY_VERSION: Final = 0
_KEYS_REMEMBERED: Final = 10_000  # A group asks every few seconds, and its name never changes place.


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Any
    """One of the declared `...Key` classes of the topic."""
    value: Any
    """The `...Value` class of the same type. None: what the key names is gone."""
    value_version: int = 0


class RecordRun(Sequence[CoordinatorRecord]):
    """Records of one decision that know a shorter way to their bytes, and into the state, than one by one."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    """As they stand in the log."""
    size: int
    """Bytes of all keys and values."""

    @abstractmethod
    def replay(self, shard: Any, first_offset: int, /) -> None:
        """As `shard.replay` of each, one offset after the other."""

    @abstractmethod
    def record(self, number: int) -> CoordinatorRecord:
        """One of them, as if it stood alone."""

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
    """The producer in whose transaction records are written: they count once it has committed."""

    producer_id: int
    producer_epoch: int


class Origin(NamedTuple):
    """Where a record stands, when it was written, and in whose transaction."""

    offset: int
    timestamp: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER


class Decision(NamedTuple, Generic[R]):
    reply: R
    """Given once the records are committed; PARKED: later."""
    records: Sequence[CoordinatorRecord] = ()
    wake: Sequence[tuple[Token, object]] = ()
    """Answers to requests that were parked, given together with the reply."""


class Shard(Protocol):
    """One partition of an internal topic."""

    def replay(self, record: CoordinatorRecord, origin: Origin, /) -> None: ...

    def replay_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        """The transaction of a producer has ended: what was written in it counts now, or never did."""

    def loaded(self, now_ms: int) -> Decision[None]:
        """The log was replayed to its end; deadlines begin now."""

    def tick(self, now_ms: int) -> Decision[None]:
        """Do what is due. Its records may be split over several batches."""

    def next_deadline(self) -> int | None: ...

    def clock_set(self, by_ms: int) -> None:
        """The wall clock has jumped: what was due in a minute still is."""


class BadRecord(ValueError):
    """Bytes that are no record of this topic known here."""


class RecordTypes:
    """The kinds of records of an internal topic, by the number that their keys begin with."""

    def __init__(self, *modules: ModuleType) -> None:
        self._keys = _by_type(modules, "Key")
        self._values = _by_type(modules, "Value")

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """None for a type that is not known here: another release wrote it, and it stays in the log."""
        if key is None or len(key) < _INT16.size:
            raise BadRecord("a record without a key that tells its type")
        (record_type,) = _INT16.unpack_from(key)
        key_class, value_class = self._keys.get(record_type), self._values.get(record_type)
        if key_class is None or value_class is None:
            return None
        try:
            told = decode(key_class, _KEY_VERSION, key[_INT16.size :])
            if value is None:
                return CoordinatorRecord(told, None)
            if len(value) < _INT16.size:
                raise BadRecord(f"a {value_class.__name__} of {len(value)} bytes does not tell its version")
            (version,) = _INT16.unpack_from(value)
            return CoordinatorRecord(told, decode(value_class, version, value[_INT16.size :]), version)
        except (Malformed, UnsupportedVersion) as error:
            raise BadRecord(str(error)) from error


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
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
    """Where in the internal topic a group or transactional id belongs: Java's `hashCode`, made positive."""
    hashed = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    if hashed >= 1 << 31:
        hashed = (1 << 32) - hashed
    return 0 if hashed == 1 << 31 else hashed % partitions


def hash_cost(key: str) -> int:
    """How long `partition_of` takes, counted in keys of an ordinary length: a key may have 32,767 characters."""
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
