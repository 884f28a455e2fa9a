"""One to two thousand connections: the node's cost of keeping, using and waiting on them."""

import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.growth import TOPIC, compared, make_topic, running, settle, spending
from bench.nodes import Node
from bench.raw_client import Connections, RawConnection, fetch_frame, fetched_up_to, produce_frame
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes

_VALUE = bytes(100)
_RECORDS = 10
_WAIT_MS = 60_000


def run(sizes: Sizes) -> Section:
    section = Section(
        "Growth: connections",
        "A node of its own (`ottla serve`) with so many connections; CPU is user and system time of its process. "
        "Produce: 10 records of 100 bytes a request, one request at a time, from one of the connections or from each "
        "in turn. `waiting`: every connection has a Fetch open at the end of the topic; then one record arrives and "
        "all are answered.",
    )
    table = Table(
        "Connections",
        [
            *("connections", "connect CPU µs each", "idle CPU ms/minute", "from one CPU µs/request"),
            *("from all in turn CPU µs/request", "KiB each", "waiting CPU ms/minute", "KiB each, waiting"),
            *("answered CPU µs each", "MiB resident", "files open"),
        ],
    )
    section.tables.append(table)
    for connections in sizes.growth_connections:
        with TemporaryDirectory() as path, running(Path(path)) as node:
            _measure(node, connections, sizes, table)
    section.findings += _findings(table)
    return section


def _measure(node: Node, count: int, sizes: Sizes, table: Table) -> None:
    first = RawConnection(node.port)
    make_topic(first, 1)
    produce = produce_frame(TOPIC, _RECORDS, _VALUE)
    # Warm-up, so that nothing is used for the first time below.
    _ask_in_turn(node, [first], produce, sizes.growth_requests)
    bare_bytes = node.resident_bytes()
    with spending(node) as connecting:
        connections = Connections(node.port, count)
        connections.all[-1].ask(produce)
    idle = _rest(node, sizes)
    from_one = _ask_in_turn(node, connections.all[:1], produce, sizes.growth_requests)
    from_all = _ask_in_turn(node, connections.all, produce, max(sizes.growth_requests, count))
    with_idle_bytes = node.resident_bytes()
    end = fetched_up_to(first.ask(fetch_frame(TOPIC, 0, 0)))
    fetch = fetch_frame(TOPIC, end, _WAIT_MS)
    for connection in connections.all:
        connection.send(fetch)
    settle(node)
    waiting = _rest(node, sizes)
    resident, files = node.resident_bytes(), node.open_files()
    with spending(node) as answering:
        first.ask(produce)
        _take_answers(connections, count)
    table.add(
        *(count, connecting.cpu_us(count), idle, from_one, from_all, (with_idle_bytes - bare_bytes) / count / KiB),
        *(waiting, (resident - bare_bytes) / count / KiB, answering.cpu_us(count), resident / MiB, files),
    )
    connections.close()


def _rest(node: Node, sizes: Sizes) -> float:
    """CPU milliseconds per minute of an idle node."""
    with spending(node) as spent:
        time.sleep(sizes.growth_idle_s)
    return spent.cpu_s / sizes.growth_idle_s * 60e3


def _ask_in_turn(node: Node, connections: list[RawConnection], frame: bytes, requests: int) -> float:
    """CPU microseconds of the node per request."""
    with spending(node) as spent:
        for connection in islice(cycle(connections), requests):
            connection.ask(frame)
    return spent.cpu_us(requests)


def _take_answers(connections: Connections, count: int) -> None:
    while count:
        answered = len(list(connections.answered()))
        if not answered:
            raise RuntimeError(f"{count} fetches were not answered")
        count -= answered


def _findings(table: Table) -> list[str]:
    few, some, many = table.rows[0], table.rows[-2], table.rows[-1]
    span = f"{few[0]:,} to {many[0]:,} connections"
    idle_ms, waiting_ms, files = many[2], many[6], many[10]
    assert isinstance(idle_ms, float)
    assert isinstance(waiting_ms, float)
    return [
        compared(f"Produce from one of them, {span}, CPU", few[3], many[3], "Not explained."),
        compared(
            f"Produce from all in turn, {span}, CPU",
            *(few[4], many[4]),
            "Each request meets a connection that nobody used for a while: what is needed of it is in no cache.",
        ),
        compared(
            f"A waiting Fetch answered, {some[0]:,} to {many[0]:,} of them, CPU", some[8], many[8], "Not explained."
        ),
        f"Idle with {many[0]:,}: {idle_ms / 600:.2f}% of a core, with as many open fetches {waiting_ms / 600:.2f}%. "
        "One look at all of them every five seconds; no timer for each.",
        f"Memory: {many[5]:.1f} KiB each, {many[7]:.1f} with a Fetch open. Open files: {files:,}, two for each: "
        "answers leave through a duplicate of the socket's descriptor.",
    ]
