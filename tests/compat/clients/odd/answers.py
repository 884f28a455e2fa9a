"""An answer as paths and values, so that two of them can be compared and their differences read.

Rule 1: what no two servers share is replaced: ids by what they are the id of, times, addresses, the words of messages
        (that there is one is kept). Errors are shown by name.
Rule 2: the elements of an array go by what names them, not by their place: Kafka answers in the order of hash tables.
Rule 3: what an earlier world has left on the servers is left out of lists.
"""

import re
from typing import Any, Final

from odd.peer import Peer
from odd.values import TIMESTAMP
from ottla.kernel import CorruptBatch, read_header, read_records
from ottla.wire.errors import Error
from ottla.wire.schema import Struct
from ottla.wire.types import NO_UUID

Flat = dict[str, str]
ABSENT: Final = "<absent>"

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT_UUID: Final = re.compile(r"[\w-]{22}")
_NAMES: Final = (
    *("name", "topic", "topic_name", "resource_name", "group_id", "transactional_id", "member_id", "key", "feature"),
    *("topic_id", "partition_index", "index", "partition", "producer_id", "node_id", "broker_id", "api_key"),
    *("resource_type", "batch_index", "replica_id", "log_dir", "first_offset"),
)
"""The fields that an element goes by: all of these that it has."""
_MESSAGES: Final = ("error_message", "batch_index_error_message", "reason", "topic_config_error_message")
_TIMES: Final = (
    *("transaction_start_time_ms", "last_timestamp", "last_fetch_timestamp", "last_caught_up_timestamp"),
    *("log_append_time_ms", "timestamp"),
)
_OWN: Final = ("host", "port", "cluster_id", "log_dir", "total_bytes", "usable_bytes", "finalized_features_epoch")
_IDS: Final = ("topic_id", "producer_id", "session_id", "replica_directory_id")
_LONG_AGO_MS: Final = TIMESTAMP + 86_400_000 * 30
"""Later times come from the clock, earlier ones from the records of the tests."""


def flattened(answer: Any, peer: Peer, prefix: str) -> Flat:
    """By path; an answer that is no message is a value without one."""
    if not isinstance(answer, Struct):
        return {"": str(answer)}
    flat: Flat = {}
    _Flattener(peer, prefix, flat).structure(answer, "")
    return flat


class _Flattener:
    def __init__(self, peer: Peer, prefix: str, flat: Flat) -> None:
        self._peer = peer
        self._prefix = prefix
        self._flat = flat
        self._names = {
            (kind, value): f"<{kind} of {name}>" for (kind, name), value in peer.given.items() if kind in _IDS
        }
        self._made_up: dict[str, str] = {}

    def structure(self, value: Struct, path: str) -> None:
        for field in value.__structure__.fields:
            self._value(getattr(value, field.name), field.name, f"{path}.{field.name}" if path else field.name)

    def _value(self, value: Any, name: str, path: str) -> None:
        if isinstance(value, Struct):
            self.structure(value, path)
        elif name == "records":
            self._flat[path] = self._records(value)
        elif isinstance(value, list) or type(value).__name__ == "Rows":
            self._list(list(value), name, path)
        else:
            self._flat[path] = self._leaf(value, name)

    def _list(self, elements: list[Any], name: str, path: str) -> None:
        if not elements or not isinstance(elements[0], Struct):
            kept = [self._leaf(one, name) for one in elements if not self._is_foreign(one)]
            self._flat[path] = f"[{', '.join(sorted(kept))}]"
            return
        seen: dict[str, int] = {}
        for label, one in self._merged(elements):
            seen[label] = seen.get(label, 0) + 1
            again = f" #{seen[label]}" if seen[label] > 1 else ""
            self.structure(one, f"{path}[{label}{again}]")
        self._flat[f"{path}#"] = str(sum(seen.values()))

    def _merged(self, elements: list[Any]) -> list[tuple[str, Any]]:
        """Elements with what they go by. A topic whose partitions are told of in several places is one."""
        merged: dict[str, Any] = {}
        found = []
        for one in elements:
            if any(self._is_foreign(getattr(one, field, None)) for field in _NAMES):
                continue
            label = " ".join(
                self._leaf(getattr(one, field), field).strip("'")
                for field in _NAMES
                if getattr(one, field, None) not in (None, "", NO_UUID)
            )
            parts = [field.name for field in one.__structure__.fields if field.array and field.structure]
            others = [field.name for field in one.__structure__.fields if field.name not in (*parts, *_NAMES)]
            if label in merged and len(parts) == 1 and not others:
                (name,) = parts
                setattr(merged[label], name, [*getattr(merged[label], name), *getattr(one, name)])
            else:
                merged.setdefault(label, one)
                found.append((label, one))
        return found

    def _is_foreign(self, value: Any) -> bool:
        return isinstance(value, str) and value.startswith("odd") and not value.startswith(self._prefix)

    def _leaf(self, value: Any, name: str) -> str:
        if name.endswith("error_code") or name == "error_code":
            return Error(value).name if value in Error._value2member_map_ else str(value)
        if name in _MESSAGES:
            return repr(value) if not value else "<text>"
        if name in _IDS and (name, value) in self._names:
            return self._names[name, value]
        if name in ("session_id", "topic_id") and _is_big(value):
            return f"<new {name}>"
        if name in _TIMES and value is not None and value > _LONG_AGO_MS:
            return "<time>"
        if name in _OWN:
            return "<its own>" if value not in (None, "", -1, 0) else repr(value)
        if name == "member_id" and _SHORT_UUID.fullmatch(value or ""):
            return repr(self._made_up.setdefault(value, f"<id {len(self._made_up)}>"))
        if isinstance(value, str):
            return self._text(value)
        return repr(value)

    def _text(self, value: str) -> str:
        return repr(_UUID.sub(lambda found: self._made_up.setdefault(found[0], f"<id {len(self._made_up)}>"), value))

    def _records(self, value: Any) -> str:
        """The whole batches at its beginning: Kafka cuts the last one where a limit falls."""
        if value is None:
            return "null"
        data, position, batches = bytes(value), 0, []
        while position < len(data):
            try:
                header = read_header(data, position)
            except CorruptBatch:
                break
            if position + header.size > len(data):
                break
            batches.append(self._batch(data[position : position + header.size]))
            position += header.size
        return f"[{'; '.join(batches)}]"

    def _batch(self, data: bytes) -> str:
        header = read_header(data)
        producer = self._leaf(header.producer_id, "producer_id")
        try:
            records = [
                (one.offset, self._leaf(one.timestamp, "timestamp"), one.key, one.value, one.headers)
                for one in read_records(data)
            ]
        except Exception as error:
            return f"{type(error).__name__} at {header.base_offset}"
        return (
            f"{header.base_offset}+{header.last_offset_delta} epoch {header.leader_epoch} attributes "
            f"{header.attributes:#x} by {producer} {header.producer_epoch} {header.base_sequence} {records}"
        )


def _is_big(value: Any) -> bool:
    return (isinstance(value, int) and value > 1000) or (isinstance(value, bytes) and len(set(value)) > 2)


def compared(kafka: Flat, ottla: Flat) -> list[tuple[str, str, str]]:
    """Where they differ: the path, Kafka's value and Ottla's. An element that only one of them has is told of once."""
    if "" in kafka or "" in ottla:
        theirs, ours = (one.get("", _briefly(one)) for one in (kafka, ottla))
        return [("", theirs, ours)] if theirs != ours else []
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(kafka.keys() | ottla.keys()):
        theirs, ours = kafka.get(path), ottla.get(path)
        if theirs == ours:
            continue
        if theirs is None or ours is None:
            path = _element_absent_from(kafka if theirs is None else ottla, path)
            there = ottla if theirs is None else kafka
            told = _briefly({one: value for one, value in there.items() if one.startswith(path)})
            found[path] = (ABSENT, told) if theirs is None else (told, ABSENT)
        else:
            found[path] = (theirs, ours)
    return [(path, *values) for path, values in found.items()]


def _element_absent_from(flat: Flat, path: str) -> str:
    """The outermost element on the way to the path that the other answer has nothing of."""
    for end in (at + 1 for at, character in enumerate(path) if character == "]"):
        if not any(one.startswith(path[:end]) for one in flat):
            return path[:end]
    return path


def _briefly(flat: Flat) -> str:
    """The errors in an answer, or in an element of one."""
    errors = [f"{path}={value}" for path, value in flat.items() if path.endswith("error_code")]
    return f"<answer with {', '.join(errors)}>" if errors else "<answer>"
