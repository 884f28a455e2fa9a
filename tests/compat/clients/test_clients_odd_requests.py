"""Odd requests are answered as Apache Kafka answers them: drawn from the declarations, and in sequences.

    ODD_SEEDS=100:200 pytest tests/compat/clients/test_clients_odd_requests.py -k drawn

draws fresh ones: a seed makes a world and the requests about it.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from struct import pack

import pytest
from nodes.wire import Wire
from odd.answers import compared, flattened
from odd.differences import KNOWN, REASONS_FOR_ALL
from odd.examples import EXAMPLES
from odd.generator import Generator, warm_ups
from odd.pair import Difference, Pair, report, running_pair, unexplained
from odd.peer import Peer
from odd.scenarios import SCENARIOS, add, end, fetch, of, produce, producers_of
from odd.values import Batch
from odd.world import World, write

from ottla.broker.network.dispatch import ROUTES
from ottla.wire.api import ApiKey

SEEDS = "ODD_SEEDS"
REQUESTS = 30


def seeds() -> range:
    first, _, last = os.environ.get(SEEDS, "0:16").partition(":")
    return range(int(first), int(last or int(first) + 1))


@pytest.fixture(scope="module")
def pair(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Servers of their own: what is tried here would be in the way of other tests."""
    with running_pair(kafka_jars, tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.mark.parametrize("seed", seeds())
def test_drawn_requests_are_answered_alike(pair: Pair, seed: int) -> None:
    """Half of the Produce requests come after others like them, and so on Ottla's short way."""
    world, worlds = World(f"odd{seed}"), 1
    pair.build(world)
    generator = Generator(seed, world)
    found: list[Difference] = []
    for number in range(REQUESTS):
        case = generator.draw()
        differences = pair.ask_all([*(warm_ups(case) if number % 2 else ()), case], world)
        found += unexplained(differences)
        if case.starts_timers or any(one.changes_state for one in differences):
            # What follows would differ for no other reason than this.
            world, worlds = World(f"odd{seed}x{worlds}"), worlds + 1
            pair.build(world)
            generator.go_on_in(world)
    assert not found, f"{SEEDS}={seed} draws them again{report(found)}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_sequences_are_answered_alike(pair: Pair, name: str) -> None:
    world = World(f"odd-{name.replace(' ', '-')}")
    pair.build(world)
    found = unexplained(pair.ask_all(SCENARIOS[name](world), world))
    assert not found, report(found)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("again", [False, True])
def test_a_long_poll_at_read_committed_counts_what_is_committed(pair: Pair, again: bool, commit: bool) -> None:
    """It is answered when the transaction ends, with all of it: neither when its records are appended, which nobody may
    read yet, nor only when its time is up. Asked again, it goes Ottla's short way."""
    world = World(f"odd-poll-{again}-{commit}")
    pair.build(world)
    topic, name = world.named("victim"), "idle"
    record = Batch(values=(b"x" * 2000,))
    told = []
    for peer in pair.both:
        write(peer, topic, record)
        ask = fetch(topic, isolation=1, min_bytes=1500, max_wait_ms=600_000)
        with Wire(peer.bootstrap) as reader:
            for _ in range(3 if again else 0):
                reader.call(ask.request, ask.version)
            ask.request.topics[0].partitions[0].fetch_offset = 8
            reader.send(ask.request, ask.version)
            batch = of(world, name, 0, values=record.values, transactional=True)
            peer.call(add(world, name, topic).request, 3)
            write(peer, topic, batch, transactional_id=world.named(name))
            peer.call(end(world, name, commit=commit).request, 4)
            told.append(flattened(reader.receive(ask.request, ask.version), peer, world.prefix))
    kafka, ottla = told
    assert compared(kafka, ottla) == []
    assert "x" * 2000 in ottla[f"responses[{topic}].partitions[0].records"]


@pytest.mark.parametrize("version", [-1, 99])
def test_versions_that_there_are_not_end_the_connection(pair: Pair, version: int) -> None:
    """Except that of ApiVersions, which is answered in version 0."""
    for api in sorted(ROUTES):
        ended = []
        for peer in pair.both:
            with Wire(peer.bootstrap) as wire:
                wire.socket.sendall(_frame(api, version))
                ended.append(wire.is_closed_by_peer())
        assert ended == [api is not ApiKey.API_VERSIONS] * 2, api


@pytest.mark.parametrize("api", [-1, 93, 999, ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT])
def test_requests_that_are_not_served_here_end_the_connection(pair: Pair, api: int) -> None:
    for peer in pair.both:
        with Wire(peer.bootstrap) as wire:
            wire.socket.sendall(_frame(api, 0))
            assert wire.is_closed_by_peer(), peer.name


def _frame(api: int, version: int) -> bytes:
    """A header that could be of a flexible version: without a client id, without tagged fields."""
    header = pack(">hhihb", api, version, 7, -1, 0)
    return pack(">i", len(header)) + header


def test_a_forgotten_producer_may_begin_anew(kafka_jars: Path, tmp_path: Path) -> None:
    """Who has been silent for long is forgotten at the next look, and not before."""
    often = {"producer.id.expiration.check.interval.ms": "300"}
    with running_pair(kafka_jars, tmp_path, often) as pair:
        world = World("odd-expiry")
        for peer in pair.both:
            world.make_topics(peer)
        topic = world.named("plain")
        batch = Batch(producer_id=2**40, epoch=0, sequence=0)
        found = pair.ask_all([produce(topic, batch)], world)
        for peer in pair.both:
            peer.wait(partial(_has_no_producers, peer, topic), "the producer is forgotten")
        found += pair.ask_all([produce(topic, batch), produce(topic, batch), fetch(topic)], world)
        assert not unexplained(found), report(found)


def _has_no_producers(peer: Peer, topic: str) -> bool:
    (told,) = peer.call(producers_of(topic).request, 0).topics
    return not told.partitions[0].active_producers


def test_every_known_difference_is_still_one(pair: Pair) -> None:
    """What is mended, or differs otherwise, leaves the table."""
    found: list[Difference] = []
    for example in EXAMPLES:
        world = World(f"odd-known-{example.__name__}")
        pair.build(world)
        found += pair.ask_all(example(world), world)
    assert not unexplained(found), report(unexplained(found))
    assert {one.reason for one in found} == {known.reason for known in KNOWN} | set(REASONS_FOR_ALL)
