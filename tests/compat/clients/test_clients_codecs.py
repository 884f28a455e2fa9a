"""Every client writes with every codec and every level of acknowledgement, and every client reads it."""

import pytest
from drivers import CODECS, DRIVERS, Driver, Sent
from nodes.topics import Server, Topics

T = 1_700_000_000_000
WRITTEN = [
    Sent(b"key", b"value", T),
    Sent(None, b"no key", T + 5),
    Sent(b"no value", None, T + 3),
    Sent(b"", b"", T + 4),
    Sent(b"headers", b"v" * 500, T + 9, (("a", b"1"), ("a", b"2"), ("empty", b""), ("né", b"\xff"))),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", DRIVERS, ids=lambda one: one.name)
def test_what_one_client_writes_all_read(server: Server, topics: Topics, writer: Driver, codec: str) -> None:
    if codec not in writer.codecs:
        pytest.skip(f"{writer.name} is installed without {codec}")
    topic = topics.create(server)
    for acks in (-1, 1, 0):
        writer.produce(server.bootstrap, topic, WRITTEN, codec=codec, acks=acks)
    expected = WRITTEN * 3
    for reader in DRIVERS:
        if codec in reader.codecs:
            got = reader.consume(server.bootstrap, topic, len(expected))
            assert [record.as_sent for record in got] == expected, reader.name
            assert [record.offset for record in got] == list(range(len(expected))), reader.name
