"""Dead letters sent back, on a node in virtual time: each once, whatever is interrupted and whatever is chosen."""

import argparse
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import simulated_node
from ottla.cli.dlq.history import RedriveOrder, history_of
from ottla.cli.dlq.letters import DeadLetter, LetterFilter, letters
from ottla.cli.dlq.redriving import Redrive, redrive
from ottla.cli.errors import ClusterError, UserError
from ottla.client import BEGINNING, Client, Consumer, Producer, ProducerFenced, Received, TopicPartition
from ottla.client.core.errors import RecordTooLarge
from ottla.client.offsets import LATEST, list_offsets
from ottla.pipelines.sink.dead_letters import ERROR, PARTITION, REDRIVES, TOPIC, LetterOrigin
from simulated_node import BOOTSTRAP

DEAD, PLACES = "dead", [TopicPartition("dead", 0), TopicPartition("dead", 1)]
TOPICS = {DEAD: 2, "orders": 3, "other": 1}
ALL = RedriveOrder(LetterFilter(), None, 3)


def simulated(work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    simulated_node.simulated(work, TOPICS)


def headers(error: str, topic: str | None = "orders", redrives: int = 0) -> list[tuple[str, bytes | None]]:
    told: list[tuple[str, bytes | None]] = [("own", b"x"), (ERROR, error.encode()), (PARTITION, b"1")]
    told += [(TOPIC, topic.encode())] if topic is not None else []
    return told + ([(REDRIVES, b"%d" % redrives)] if redrives else [])


async def fill(client: Client, count: int = 40) -> None:
    """Letters of two errors, in turns."""
    async with Producer(client) as producer:
        for n in range(count):
            error = "timeout" if n % 2 else "not JSON"
            producer.send(DEAD, b"%d" % n, headers=headers(error), partition=n % 3 % 2)


def options(**given: Any) -> argparse.Namespace:
    lists = {"errors": [], "sources": [], "pipelines": []}
    nothing = dict.fromkeys(("since", "until", "from_offset", "to_offset", "to"))
    rest = {"topic": DEAD, "max_redrives": 3, "execute": True, "json": True, "bootstrap": BOOTSTRAP}
    return argparse.Namespace(**{**lists, **nothing, **rest, **given})


async def records(client: Client, topic: str) -> list[Received]:
    places = [TopicPartition(topic, n) for n in range(TOPICS[topic])]
    ends = await list_offsets(client, dict.fromkeys(places, LATEST), committed=True)
    found: list[Received] = []
    async with Consumer(client, committed=True) as consumer:
        await consumer.assign(dict.fromkeys(places, BEGINNING))
        while any(consumer.position(place) < ends[place].offset for place in places):
            found += await consumer.poll(timeout_ms=100)
    return found


async def values(client: Client, topic: str = "orders") -> Counter[bytes]:
    return Counter(record.value for record in await records(client, topic))


def numbers(count: int = 40, **kinds: bool) -> Counter[bytes]:
    return Counter(b"%d" % n for n in range(count) if kinds.get("odd", True) or n % 2 == 0)


def test_a_dry_run_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(client: Client) -> None:
        await fill(client)
        assert await redrive(client, options(execute=False)) == 0
        assert not await values(client)

    simulated(work)
    told = capsys.readouterr()
    assert '"topic": "orders", "count": 40, "redriven": true' in told.out
    assert "dry run: nothing was sent" in told.err


def test_letters_go_back_once_with_their_own_headers_to_where_they_come_from() -> None:
    async def work(client: Client) -> None:
        await fill(client)
        for _ in range(2):
            assert await redrive(client, options()) == 0
        back = await records(client, "orders")
        assert Counter(record.value for record in back) == numbers()
        assert {(record.partition, record.headers) for record in back} == {(1, (("own", b"x"), (REDRIVES, b"1")))}

    simulated(work)


def test_choices_that_overlap_send_nothing_twice() -> None:
    """First those of one error, then the rest."""

    async def work(client: Client) -> None:
        await fill(client)
        await redrive(client, options(errors=["json"]))
        assert await values(client) == numbers(odd=False)
        await redrive(client, options())
        await redrive(client, options(sources=["orders"], to="other"))
        assert await values(client) == numbers()
        assert not await values(client, "other")

    simulated(work)


def test_what_was_interrupted_goes_on() -> None:
    async def work(client: Client) -> None:
        await fill(client)
        read = [letter async for some in letters(client, PLACES, ALL.choice) for letter in some]
        async with Producer(client, transactional_id="a") as producer:
            redriving = Redrive(client, DEAD, ALL, await history_of(client, DEAD, PLACES))
            await redriving.send(producer, read[:15])
            broken = read[15]._replace(record=read[15].record._replace(value=bytes(2_000_000)))
            with pytest.raises(RecordTooLarge):
                await redriving.send(producer, [*read[16:20], broken])
        assert (await values(client)).total() == 15
        await redrive(client, options())
        assert await values(client) == numbers()

    simulated(work)


def test_a_second_redrive_fences_the_first() -> None:
    """Each would send what the other has not committed yet."""

    async def work(client: Client) -> None:
        await fill(client)
        read = [letter async for some in letters(client, PLACES, ALL.choice) for letter in some]
        async with Producer(client, transactional_id=f"ottla.dlq.redrive.{DEAD}") as producer:
            redriving = Redrive(client, DEAD, ALL, await history_of(client, DEAD, PLACES))
            await redrive(client, options())
            with pytest.raises(ProducerFenced):
                await redriving.send(producer, read)
        assert await values(client) == numbers()

    simulated(work)


def test_who_died_too_often_stays(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(client: Client) -> None:
        async with Producer(client) as producer:
            for n in range(5):
                producer.send(DEAD, b"%d" % n, headers=headers("again", redrives=n))
            producer.send(DEAD, b"lost", headers=headers("again", topic=None))
        await redrive(client, options(max_redrives=2))
        assert await values(client) == numbers(2)

    simulated(work)
    told = capsys.readouterr().out
    assert '"count": 3, "redriven": false, "reason": "were sent back 2 times already and failed again"' in told
    assert '"count": 1, "redriven": false, "reason": "do not name their source topic' in told


def test_letters_may_go_elsewhere() -> None:
    async def work(client: Client) -> None:
        await fill(client, 6)
        await redrive(client, options(to="other"))
        assert (await values(client, "other"), await values(client)) == (numbers(6), Counter())

    simulated(work)


@pytest.mark.parametrize(("source", "wrong"), [(DEAD, UserError), ("gone", ClusterError)])
def test_letters_from_nowhere_are_told_of(source: str, wrong: type[Exception]) -> None:
    async def work(client: Client) -> None:
        async with Producer(client) as producer:
            producer.send(DEAD, b"v", headers=headers("e", topic=source))
        with pytest.raises(wrong, match=source):
            await redrive(client, options())

    simulated(work)


def test_an_order_is_read_as_it_was_written() -> None:
    order = RedriveOrder(LetterFilter(("e",), ("t",), ("p",), 1, 2, 3, 4), "to", 7)
    assert RedriveOrder.read(order.metadata) == order
    assert RedriveOrder.read(ALL.metadata) == ALL
    assert len({order.group_id("d"), ALL.group_id("d"), ALL.group_id("e")}) == 3


@pytest.mark.parametrize(
    "metadata", ["", "{}", "[]", "5", '{"choice":{"x":1},"to":null,"redrives_max":1}', '{"choice":5}']
)
def test_what_others_commit_is_no_order(metadata: str) -> None:
    assert RedriveOrder.read(metadata) is None


def letter(**given: Any) -> DeadLetter:
    record = Received(DEAD, 0, given.pop("at", 5), given.pop("time", 100), None, b"v", ())
    return DeadLetter(record, LetterOrigin(**given))


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (LetterFilter(), True),
        (LetterFilter(errors=("TIME", "x")), True),
        (LetterFilter(errors=("json",)), False),
        (LetterFilter(sources=("orders",)), True),
        (LetterFilter(sources=("other",)), False),
        (LetterFilter(pipelines=("shop",)), True),
        (LetterFilter(pipelines=("s",)), False),
        (LetterFilter(since_ms=100, until_ms=101), True),
        (LetterFilter(since_ms=101), False),
        (LetterFilter(until_ms=100), False),
        (LetterFilter(from_offset=5, to_offset=6), True),
        (LetterFilter(from_offset=6), False),
        (LetterFilter(to_offset=5), False),
        (LetterFilter(errors=("time",), sources=("other",)), False),
    ],
)
def test_a_choice_takes_what_fits_every_condition(choice: LetterFilter, taken: bool) -> None:
    assert choice.takes(letter(topic="orders", error="Timeout after 5 s", pipeline="shop")) is taken
