"""What happens in the shop, made up: the same number of events is the same events, byte for byte.

Rule 1: an event says when it happened; on the way here it may be overtaken by others, by OVERTAKEN_S at most.
Rule 2: a few records are broken, each in one of three ways.
Rule 3: late events are for windows that must be final by then, one for each city and window: the engine counts late
        rows by window, not by event.

`python -m examples.shop.events --topic shop.orders` prints the records of a topic, for `ottla produce`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Final, NamedTuple

ORDERS: Final = "shop.orders"
COURIERS: Final = "shop.couriers"
CITIES: Final = {"Basel": (47.56, 7.59), "Berne": (46.95, 7.44), "Geneva": (46.20, 6.14), "Zurich": (47.37, 8.54)}
COURIERS_PER_CITY: Final = 6

OPENS_MS: Final = int(datetime(2026, 3, 2, 11, 0, tzinfo=UTC).timestamp() * 1000)
MINUTES: Final = 20
MINUTE_MS: Final = 60_000
CLOSES_MS: Final = OPENS_MS + MINUTES * MINUTE_MS
OVERTAKEN_S: Final = 20
ORDERS_SHARE: Final = 0.6
BROKEN_EVERY: Final = 400
LATE_MINUTES: Final = 2
LATE_MS: Final = LATE_MINUTES * MINUTE_MS


class Event(NamedTuple):
    topic: str
    city: str
    value: bytes
    time_ms: int
    """When it happened."""
    arrives_ms: int
    cents: int = 0
    broken: bool = False


def day(count: int, seed: int = 7) -> Iterator[Event]:
    """In the order in which they arrive, evenly over the minutes that the shop is open."""
    random = Random(seed)
    for number in range(count):
        arrives_ms = OPENS_MS + (number + 1) * (CLOSES_MS - OPENS_MS) // (count + 1)
        time_ms = max(OPENS_MS, arrives_ms - random.randrange(OVERTAKEN_S * 1000))
        event = _event(random, number, time_ms)._replace(arrives_ms=arrives_ms)
        if number % BROKEN_EVERY == BROKEN_EVERY // 2:
            event = event._replace(value=_broken(event.value, number // BROKEN_EVERY), broken=True)
        yield event


def late() -> Iterator[Event]:
    """Positions of the first minutes, from couriers who had no network."""
    for minute in range(LATE_MINUTES):
        for city in CITIES:
            yield _position(Random(minute), city, OPENS_MS + minute * MINUTE_MS)


def off_duty() -> Iterator[Event]:
    """A courier of each city says, long after the shop has closed, that there is nothing more to come."""
    for city in CITIES:
        time_ms = CLOSES_MS + 10 * MINUTE_MS
        fields = {"courier": f"{city}-1", "city": city, "event_time": _moment(time_ms)}
        yield Event(COURIERS, city, _json(fields), time_ms, time_ms)


def _event(random: Random, number: int, time_ms: int) -> Event:
    city = random.choice(list(CITIES))
    if random.random() >= ORDERS_SHARE:
        return _position(random, city, time_ms)
    cents = random.randrange(500, 20_000)
    fields = {"order_id": f"order-{number}", "city": city, "cents": cents, "event_time": _moment(time_ms)}
    return Event(ORDERS, city, _json(fields), time_ms, time_ms, cents)


def _position(random: Random, city: str, time_ms: int) -> Event:
    lat, lon = (round(centre + random.uniform(-0.05, 0.05), 5) for centre in CITIES[city])
    courier = f"{city}-{random.randrange(COURIERS_PER_CITY) + 1}"
    fields = {"courier": courier, "city": city, "lat": lat, "lon": lon, "event_time": _moment(time_ms)}
    return Event(COURIERS, city, _json(fields), time_ms, time_ms)


def _broken(value: bytes, kind: int) -> bytes:
    """Cut off, of the wrong type, or no text at all."""
    return (value[: len(value) // 2], value.replace(b'"event_time": "', b'"event_time": "about '), b"\xff\xfe" + value)[
        kind % 3
    ]


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode()


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _print() -> None:
    parser = argparse.ArgumentParser(description="Print the records of a topic of the shop, a line each.")
    parser.add_argument("--topic", choices=(ORDERS, COURIERS), required=True)
    parser.add_argument("--events", type=int, default=60_000, help="of both topics together; default 60000")
    given = parser.parse_args()
    for event in (*day(given.events), *off_duty()):
        if event.topic == given.topic:
            sys.stdout.buffer.write(event.value + b"\n")


if __name__ == "__main__":
    _print()
