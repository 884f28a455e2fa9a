"""The small text files of a log directory and of a partition, in Kafka's formats.

A file that does not parse raises `BadCheckpoint`; the caller decides how to proceed without it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.config.properties import BadProperties, parse_properties
from ottla.wire.uuids import uuid_from_text, uuid_to_text

_DIGITS_MAX = 19  # of a 64-bit number


class BadCheckpoint(ValueError):
    """The text is not a checkpoint of the expected kind."""


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    start_offset: int


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """The contents of an offset checkpoint, such as `recovery-point-offset-checkpoint`: an offset per partition."""
    return _encode_rows(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> dict[tuple[str, int], int]:
    offsets = {}
    for row in _decode_rows(data):
        match row.split(" "):
            case [topic, partition, offset]:
                offsets[topic, _number(partition, row)] = _number(offset, row)
            case _:
                raise BadCheckpoint(f"expected 'topic partition offset', found {row!r}")
    return offsets


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """The contents of `leader-epoch-checkpoint`: the first offset of each leader epoch."""
    return _encode_rows(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_epochs(data: bytes) -> list[EpochStart]:
    epochs: list[EpochStart] = []
    for row in _decode_rows(data):
        match row.split(" "):
            case [epoch, offset]:
                entry = EpochStart(_number(epoch, row), _number(offset, row))
            case _:
                raise BadCheckpoint(f"expected 'epoch offset', found {row!r}")
        if epochs and not (epochs[-1].epoch < entry.epoch and epochs[-1].start_offset <= entry.start_offset):
            raise BadCheckpoint(f"{row!r} follows epoch {epochs[-1].epoch} at offset {epochs[-1].start_offset}")
        epochs.append(entry)
    return epochs


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The contents of `partition.metadata`. They bind the directory to a topic id, which distinguishes a topic from an
    older one with the same name."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise BadCheckpoint(f"expected 'version: 0' and a topic_id, found {data[:80]!r}")
    return _id(fields["topic_id"].strip())


class MetaProperties(NamedTuple):
    """The contents of `meta.properties`: the node and cluster that own the directory."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None

    def encode(self) -> bytes:
        lines = ["version=1", f"cluster.id={self.cluster_id}", f"node.id={self.node_id}"]
        if self.directory_id is not None:
            lines.append(f"directory.id={uuid_to_text(self.directory_id)}")
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> "MetaProperties":
        try:
            fields = parse_properties(_text(data))
        except BadProperties as error:
            raise BadCheckpoint(str(error)) from error
        version = fields.get("version", "0")
        if version not in ("0", "1"):
            raise BadCheckpoint(f"meta.properties has version {version}; 0 and 1 are known")
        # Version 0 predates node.id.
        node_id = fields.get("node.id") or fields.get("broker.id")
        if node_id is None or "cluster.id" not in fields:
            raise BadCheckpoint("meta.properties lacks node.id or cluster.id")
        directory_id = fields.get("directory.id")
        return cls(fields["cluster.id"], _number(node_id, "node.id"), _id(directory_id) if directory_id else None)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The contents of `.kafka_cleanshutdown`. The file is written after everything else was synced."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def _id(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise BadCheckpoint(str(error)) from error


def _encode_rows(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _decode_rows(data: bytes) -> list[str]:
    lines = _text(data).split("\n")
    if len(lines) < 3 or lines[-1] != "":
        raise BadCheckpoint("cut off: the last line is not whole")
    version, count, *rows = lines[:-1]
    if version != "0":
        raise BadCheckpoint(f"version {version!r}; 0 is known")
    if _number(count, count) != len(rows):
        raise BadCheckpoint(f"{count} entries announced, {len(rows)} found")
    return rows


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadCheckpoint(f"not text: {data[:40]!r}") from error


def _number(text: str, row: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise BadCheckpoint(f"{text!r} is not a number in {row!r}")
    return int(text)
