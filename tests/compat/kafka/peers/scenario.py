"""What a real Kafka is made to write: one function per topic, each with the feature of the log that it exercises.

Timestamps are given, not taken from the clock, so that segments roll where the scenario wants it.
"""

import random
import time
from collections.abc import Callable

from confluent_kafka import Producer

from peers.client import Client, Draft, Headers, send

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECOMPRESSING = ("gzip", "snappy", "lz4", "zstd", "uncompressed")
TRIMMED_TO = 133
HOUR_MS = 3_600_000
START_MS = int(time.time()) * 1000 - 12 * HOUR_MS
"""Old enough that what follows it by hours still lies in the past."""

SMALL = {
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "512",
    "retention.ms": "-1",
    "segment.ms": "31536000000",
}
HOURLY = SMALL | {"segment.ms": str(HOUR_MS)}
FUTURE = {"message.timestamp.after.max.ms": str(200 * HOUR_MS)}
UNCLEANABLE = {"min.cleanable.dirty.ratio": "1.0"}
CLEANABLE = {"min.cleanable.dirty.ratio": "0.0001"}

TOPICS: dict[str, dict[str, str]] = {
    "codecs": SMALL,
    "idempotent": SMALL,
    "transactions": SMALL,
    "trimmed": SMALL,
    "hourly": HOURLY,
    "append-time": SMALL | {"message.timestamp.type": "LogAppendTime"},
    "torn": SMALL,
    "rotten": SMALL,
    "empty": SMALL,
    "compacted": HOURLY,
    "compacted-transactions": HOURLY | FUTURE,
    "purged": HOURLY | {"delete.retention.ms": "0"},
    "mixed": HOURLY | FUTURE | {"delete.retention.ms": "0"},
} | {f"recompressed-{codec}": SMALL | {"compression.type": codec} for codec in RECOMPRESSING}

PARTITIONS = {"idempotent": 2}

CLEANED_ONCE = ("compacted", "compacted-transactions")
CLEANED_AGAIN = ("purged", "mixed")
COMPACTED = (*CLEANED_ONCE, *CLEANED_AGAIN)
CLEANED_AGAIN_SEED = 103
"""One by which a producer aborts in the clean part and commits in the dirty one."""
PASSES = 3
"""Of the cleaner, over what is cleaned again: a marker may be dated in the first, emptied in the second, gone after."""

NAMES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS.get(topic, 1))]


class Writer:
    """Makes drafts from one seed and sends them in batches of a known size."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._random = random.Random(7)

    def draft(self, timestamp: int, key: bytes | None = None, value_size: int = 60) -> Draft:
        """A record with compressible contents, some headers, now and then without a value."""
        chance = self._random.random()
        headers: Headers = ()
        if chance < 0.3:
            headers = (("trace", self._random.randbytes(8)), ("empty", b""), ("none", None))
        value = None if chance > 0.95 else b"event " * (value_size // 6) + self._random.randbytes(4).hex().encode()
        return Draft(key, value, timestamp, headers)

    def batch(self, size: int, at: int, keys: int = 20) -> list[Draft]:
        """A batch whose timestamps wander back and forth and whose keys are sometimes null."""
        drafts = []
        for number in range(size):
            key = None if self._random.random() < 0.1 else b"key-%d" % self._random.randrange(keys)
            drafts.append(self.draft(at + number * 10 - self._random.randrange(30), key))
        return drafts

    def fill(self, producer: Producer, topic: str, batches: int, *, at: int = START_MS, partition: int = 0) -> int:
        """Several batches a second apart; returns the time after the last."""
        for number in range(batches):
            send(producer, topic, self.batch(8, at + number * 1000), partition)
        return at + batches * 1000

    def keyed(self, at: int, keys: range, *, tombstone: bool = False) -> list[Draft]:
        """One record per key, so that the compaction of the topic is easy to foresee."""
        return [
            Draft(b"key-%d" % key, None if tombstone else b"%d at %d" % (key, at), at + position, (("at", b"%d" % at),))
            for position, key in enumerate(keys)
        ]


def write_codecs(writer: Writer) -> None:
    """Every codec as librdkafka writes it, in one log of several segments."""
    at = START_MS
    for codec in CODECS:
        at = writer.fill(writer.client.producer(compression_type=codec), "codecs", 8, at=at)


def write_recompressed(writer: Writer) -> None:
    """Every codec as Kafka's own broker writes it."""
    for codec in RECOMPRESSING:
        given = "lz4" if codec == "uncompressed" else "none"
        writer.fill(writer.client.producer(compression_type=given), f"recompressed-{codec}", 6)


def write_idempotent(writer: Writer) -> None:
    """Two producers with sequences in both partitions; more batches than the five whose sequences are remembered."""
    first, second = (writer.client.producer(enable_idempotence=True) for _ in range(2))
    for partition in range(PARTITIONS["idempotent"]):
        at = writer.fill(first, "idempotent", 7, partition=partition)
        at = writer.fill(second, "idempotent", 3, at=at, partition=partition)
        writer.fill(first, "idempotent", 5, at=at, partition=partition)


def write_transactions(writer: Writer) -> Producer:
    """Transactions that interleave, commit, abort, span segments; one stays open while its producer lives."""
    steady, wavering, idle = (_transactional(writer.client, f"transactions-{name}") for name in ("a", "b", "c"))
    at = START_MS
    for round_number in range(6):
        steady.begin_transaction()
        wavering.begin_transaction()
        at = writer.fill(steady, "transactions", 3, at=at)
        at = writer.fill(wavering, "transactions", 4, at=at)
        _end(steady, commit=round_number % 3 != 2)
        at = writer.fill(wavering, "transactions", 1, at=at)
        _end(wavering, commit=round_number % 2 == 0)
    idle.begin_transaction()
    at = writer.fill(idle, "transactions", 2, at=at)
    steady.begin_transaction()
    writer.fill(steady, "transactions", 2, at=at)
    _end(steady, commit=False)
    return idle


def write_trimmed(writer: Writer) -> None:
    """A log whose start lies inside a segment, after others were deleted."""
    writer.fill(writer.client.producer(), "trimmed", 30)
    writer.client.delete_records("trimmed", 0, TRIMMED_TO)


def write_hourly(writer: Writer) -> None:
    """Segments rolled by time, and records that arrive late."""
    producer = writer.client.producer()
    for hour in (0, 0.4, 2, 3.5, 3.2, 1, 5, 5.9):
        writer.fill(producer, "hourly", 2, at=START_MS + int(hour * HOUR_MS))


def write_append_time(writer: Writer) -> None:
    """The broker's clock instead of the producer's, with and without compression."""
    for codec in ("none", "lz4"):
        writer.fill(writer.client.producer(compression_type=codec), "append-time", 10)


def write_damageable(writer: Writer) -> None:
    """Logs whose last segment is damaged once the node is dead; idempotent, so producer state has to follow."""
    for topic in ("torn", "rotten"):
        writer.fill(writer.client.producer(enable_idempotence=True), topic, 30)


def write_compacted(writer: Writer) -> None:
    """Keys overwritten within a batch, between batches and between segments; null keys; tombstones; a codec or two."""
    at = START_MS
    for codec in ("none", "zstd", "none"):
        at = writer.fill(writer.client.producer(compression_type=codec), "compacted", 6, at=at) + HOUR_MS
    producer = writer.client.producer()
    send(producer, "compacted", writer.keyed(at, range(10, 14), tombstone=True))
    send(producer, "compacted", writer.keyed(at + 2 * HOUR_MS, range(2)))


def write_compacted_transactions(writer: Writer) -> None:
    """A committed, an aborted and an emptied transaction under the cleaner."""
    first, second = (_transactional(writer.client, f"compacted-{name}") for name in ("a", "b"))
    at = START_MS
    for producer, keys, commit in ((first, range(8), True), (second, range(4, 12), False), (first, range(2, 6), True)):
        producer.begin_transaction()
        send(producer, "compacted-transactions", writer.keyed(at, keys))
        _end(producer, commit=commit)
        at += HOUR_MS // 3
    plain = writer.client.producer()
    send(plain, "compacted-transactions", writer.keyed(at, range(8)))
    # A marker carries the coordinator's clock, so only a record of the future rolls the segment that holds one.
    send(plain, "compacted-transactions", writer.keyed(START_MS + 60 * HOUR_MS, range(2)))


class CleanedAgain:
    """Topics that are written to before each pass of the cleaner."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._random = random.Random(CLEANED_AGAIN_SEED)
        self._at = START_MS
        self._plain = writer.client.producer()
        self._transactional = [_transactional(writer.client, f"mixed-{number}") for number in range(3)]

    def write(self, number: int) -> None:
        self._write_purged(number)
        self._write_mixed(number)

    def _write_purged(self, number: int) -> None:
        """Tombstones that the first pass gives a time to die, and the second removes."""
        at = START_MS + number * 3 * HOUR_MS
        send(self._plain, "purged", self._writer.keyed(at, range(8 * number, 10 + 2 * number)))
        if number == 0:
            send(self._plain, "purged", self._writer.keyed(at + 10_000, range(5), tombstone=True))
        send(self._plain, "purged", self._writer.keyed(at + 2 * HOUR_MS, range(20, 22)))

    def _write_mixed(self, number: int) -> None:
        """Transactions of three producers, records outside of them and tombstones, in an order drawn from the seed."""
        running: list[Producer] = []
        for _ in range(70):
            self._at += self._random.choice((1000, 60_000, HOUR_MS // 4))
            producer = self._random.choice([self._plain, *self._transactional])
            if producer in running and self._random.random() < 0.5:
                running.remove(producer)
                _end(producer, commit=self._random.random() < 0.6)
                continue
            if producer is not self._plain and producer not in running:
                producer.begin_transaction()
                running.append(producer)
            first = self._random.randrange(16)
            keys = range(first, first + self._random.randrange(1, 5))
            tombstone = self._random.random() < 0.25
            send(producer, "mixed", self._writer.keyed(self._at, keys, tombstone=tombstone))
        for producer in running:
            _end(producer, commit=self._random.random() < 0.5)
        send(self._plain, "mixed", self._writer.keyed(START_MS + (60 + 10 * number) * HOUR_MS, range(2)))


PLAIN: tuple[Callable[[Writer], None], ...] = (
    write_codecs,
    write_recompressed,
    write_idempotent,
    write_trimmed,
    write_hourly,
    write_append_time,
    write_damageable,
    write_compacted,
    write_compacted_transactions,
)


def _transactional(client: Client, name: str) -> Producer:
    producer = client.producer(transactional_id=name, transaction_timeout_ms=900_000)
    producer.init_transactions(30)
    return producer


def _end(producer: Producer, *, commit: bool) -> None:
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
