"""Bytes as real clients send them, read by both kernels: to records and to columns."""

from types import ModuleType

import pytest
from drivers import CODECS, DRIVERS, Driver, Sent
from nodes.ottla_node import OttlaNode
from nodes.topics import Topics

from ottla.kernel import Codec, FetchedPart, _native, reference, scan  # type: ignore[attr-defined]

T = 1_700_000_000_000
WRITTEN = [
    Sent(b"key", b"value", T),
    Sent(None, b"no key", T + 5),
    Sent(b"no value", None, T + 3),
    Sent(b"headers", b"v" * 500, T + 9, (("a", b"1"), ("a", b"2"), ("empty", b""), ("né", b"\xff"))),
] * 50


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", DRIVERS, ids=lambda one: one.name)
def test_both_kernels_read_what_a_client_sent(ottla: OttlaNode, topics: Topics, writer: Driver, codec: str) -> None:
    """The log holds the client's own bytes: only offsets and epochs were stamped into them."""
    if codec not in writer.codecs:
        pytest.skip(f"{writer.name} is installed without {codec}")
    topic = topics.create(ottla)
    writer.produce(ottla.bootstrap, topic, WRITTEN, codec=codec)
    data = (ottla.log_dir / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    # A client sends a batch as it is where its codec would not make it smaller: the first may be of one small record.
    assert Codec[codec.upper()] in {header.codec for header in scan(data).headers}
    for kernel in (_native, reference):
        assert records(kernel, data) == columns(kernel, data) == WRITTEN, kernel.__name__


def records(kernel: ModuleType, data: bytes) -> list[Sent]:
    reader = kernel.RecordReader(data, 0)
    taken = reader.take()
    assert [record.offset for record in taken] == list(range(len(WRITTEN)))
    assert (reader.damage, reader.next_offset) == (None, len(WRITTEN))
    return [Sent(record.key, record.value, record.timestamp, record.headers) for record in taken]


def columns(kernel: ModuleType, data: bytes) -> list[Sent]:
    lists = kernel.read_columns([FetchedPart(0, data, 0)]).to_pydict()
    rows = zip(*(lists[name] for name in ("key", "value", "timestamp", "headers")), strict=True)
    return [Sent(key, value, timestamp, tuple(headers)) for key, value, timestamp, headers in rows]
