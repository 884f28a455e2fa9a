"""Requests with as many elements as their size allows, of every API that a node serves, generated from the
declarations.

Each is wide in one place: one array of the message has as many elements as fit into the size, and into the node's limit
for decoding; the others have one. The elements are all different or all equal, and name existing or missing things.
Others have the longest possible strings, and some have more elements than a node accepts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.broker.network.dispatch import ROUTES
from ottla.kernel import Record, build_batch
from ottla.wire.api import ApiKey, request_class
from ottla.wire.codec import Malformed, encode
from ottla.wire.frame import decode_request_in_steps, encode_request
from ottla.wire.schema import message_of, structure_of
from ottla.wire.shapes import Field, Structure

TOPIC, PARTITIONS, GROUP, TRANSACTION, BROKER = "sweep", 100, "sweep-group", "sweep-transaction", "1"
"""What exists on the node that receives the requests."""
LONGEST = 32_000
_BROKER_RESOURCE, _TOPIC_RESOURCE = 4, 2
_SAMPLE = 64

Path = tuple[str, ...]

# The values that a field needs so that a request is processed further.
_FIXED: dict[str, Any] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "config_operation": 0,
    "endpoint_type": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "isolation_level": 0,
    "max_bytes": 1 << 20,
    "max_wait_ms": 0,
    "member_epoch": 0,
    "min_bytes": 0,
    "num_partitions": 1,
    "partition_max_bytes": 1024,
    "producer_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "replica_id": -1,
    "replication_factor": 1,
    "response_partition_limit": 100_000,
    "session_epoch": 0,
    "session_id": 0,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "transaction_timeout_ms": 10_000,
    "validate_only": True,
    "verify_only": True,
    "current_leader_epoch": -1,
    "committed_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "key_type": 0,
    "member_id": "",
    "protocol_type": "consumer",
    "server_assignor": None,
    "group_instance_id": None,
    "cluster_id": None,
    "rack_id": "",
    "cursor": None,
    "subscribed_topic_regex": None,
    "transactional_id_pattern": None,
}
_TOPICS = ("topic", "topic_name", "topics", "topic_names", "subscribed_topic_names")
_TOPIC_STRUCTURES = ("Topic", "Marker")
_GROUPS = ("group_id", "group", "groups", "groups_names", "group_ids", "key", "coordinator_keys")
_PARTITION_NUMBERS = ("partition", "partitions", "partition_index", "partition_indexes", "index")


@dataclass(frozen=True, slots=True)
class Content:
    """The contents of the elements."""

    is_repeated: bool
    exists: bool
    topic_id: bytes = bytes(16)
    length: int = 0
    """Of strings; 0: unchanged."""

    def __str__(self) -> str:
        long = f", strings of {self.length}" if self.length else ""
        return f"{'the same' if self.is_repeated else 'different'}, {'real' if self.exists else 'unknown'}{long}"


class Hostile(NamedTuple):
    api: ApiKey
    version: int
    shape: str
    frame: bytes

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} {self.shape} ({len(self.frame) / 1e6:.1f} MB)"


def requests(size: int, topic_id: bytes, *, thorough: bool, only: ApiKey | None = None) -> Iterator[Hostile]:
    """Of every API, or of one, of about this size; `topic_id` is that of `TOPIC`."""
    for key in sorted(ROUTES) if only is None else [only]:
        facts = message_of(request_class(key))
        last = facts.versions[-1] - (1 if facts.unstable else 0)
        yield from _of_version(key, last, size, topic_id, thorough=thorough)
        plain = [version for version in facts.versions if not facts.is_flexible(version)]
        if thorough and plain and plain[-1] != last:
            yield from _of_version(key, plain[-1], size, topic_id, thorough=False)


def _of_version(key: ApiKey, version: int, size: int, topic_id: bytes, *, thorough: bool) -> Iterator[Hostile]:
    structure = structure_of(request_class(key))
    paths = list(_arrays(structure, version))
    contents = [Content(False, False), Content(True, True, topic_id)]
    if thorough:
        contents += [Content(False, True, topic_id), Content(True, False)]
    for path in paths:
        for content in contents:
            yield _wide(key, version, {path: size}, content)
        outer = path[:-1]
        if thorough and outer in paths:
            yield _wide(key, version, {outer: math.isqrt(size), path: math.isqrt(size)}, contents[0])
    longest = Content(False, False, length=LONGEST)
    yield _wide(key, version, dict.fromkeys(paths[-1:], size), longest)
    if thorough:
        yield _wide(key, version, dict.fromkeys(paths[-1:], 8 * size), contents[0], is_accepted=False)


def _arrays(structure: Structure, version: int, path: Path = ()) -> Iterator[Path]:
    for f in structure.fields:
        if f.in_version(version):
            here = (*path, f.name)
            if f.array:
                yield here
            if f.structure is not None:
                yield from _arrays(f.structure, version, here)


def _wide(key: ApiKey, version: int, sizes: dict[Path, int], content: Content, *, is_accepted: bool = True) -> Hostile:
    """So many bytes for each of the arrays; where one is inside the other, their product counts."""
    counts: dict[Path, int] = {}
    for path, size in sizes.items():
        few, many = (len(_encoded(key, version, {path: count}, content)) for count in (1, 1 + _SAMPLE))
        counts[path] = max(int(size * _SAMPLE / max(many - few, 1)), 1)
    while True:
        body = _Filler(version, counts, content).fill(structure_of(request_class(key)))
        frame = b"".join(encode_request(body, version, 1, "sweep"))
        if not is_accepted or _is_accepted(frame):
            break
        counts = {path: max(count * 7 // 8, 1) for path, count in counts.items()}
    shape = " and ".join(f"{'.'.join(path)} x {count:,}" for path, count in counts.items()) or "no array"
    return Hostile(key, version, f"{shape}, {content}", frame)


def _is_accepted(frame: bytes) -> bool:
    try:
        for _ in decode_request_in_steps(memoryview(frame)[4:]):
            pass
    except Malformed:
        return False
    return True


def _encoded(key: ApiKey, version: int, counts: dict[Path, int], content: Content) -> bytes:
    return encode(_Filler(version, counts, content).fill(structure_of(request_class(key))), version)


class _Filler:
    def __init__(self, version: int, counts: dict[Path, int], content: Content) -> None:
        self._version, self._counts, self._content = version, counts, content
        self._number = 0
        self._records = build_batch([Record(0, 1_700_000_000_000, None, b"v")])

    def fill(self, structure: Structure, path: Path = ()) -> Any:
        return structure.cls(**{f.name: self._value(f, structure, (*path, f.name)) for f in structure.fields})

    def _value(self, f: Field, structure: Structure, path: Path) -> Any:
        if not f.in_version(self._version):
            return f.default()
        if not f.array:
            return self._element(f, structure, path)
        count = self._counts.get(path, 1)
        if self._content.is_repeated:
            return [self._element(f, structure, path)] * count
        return [self._element(f, structure, path) for _ in range(count)]

    def _element(self, f: Field, structure: Structure, path: Path) -> Any:
        if f.name in _FIXED and not f.array:
            fixed = _FIXED[f.name]
            return fixed if fixed is not None or f.nullable_in(self._version) else f.default()
        if f.structure is not None:
            return self.fill(f.structure, path)
        assert f.primitive is not None
        self._number += 1
        match f.primitive.name:
            case "string":
                return self._text(f.name, structure).ljust(self._content.length, "y")
            case "bytes":
                return b"metadata"
            case "records":
                return bytearray(self._records)
            case "uuid":
                return self._content.topic_id if self._content.exists else self._number.to_bytes(16, "big")
            case "bool":
                return False
            case "float64":
                return 1.0
            case _:
                return self._whole_number(f)

    def _whole_number(self, f: Field) -> int:
        if f.name == "resource_type":
            return _BROKER_RESOURCE if self._content.exists else _TOPIC_RESOURCE
        if f.name in _PARTITION_NUMBERS and self._content.exists:
            return self._number % PARTITIONS
        assert f.primitive is not None
        return self._number % (100 if f.primitive.size == 1 else 30_000 if f.primitive.size == 2 else 1 << 30)

    def _text(self, name: str, structure: Structure) -> str:
        is_topic = name in _TOPICS or (name == "name" and "Topic" in structure.cls.__name__)
        if self._content.exists:
            if is_topic:
                return TOPIC
            if name in _GROUPS:
                return GROUP
            if name.startswith("transactional_id"):
                return TRANSACTION
            if name == "resource_name":
                return BROKER
        return f"x{self._number}"
