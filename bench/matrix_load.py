"""One cell of the matrix against one broker. The load prepares, waits for its start, and tells how long it took."""

import re
import string
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from peers.jars import fetch_jars
from peers.jvm import LOGGING

from bench.load import BATCH_16K, BATCH_128K, ONE_RECORD, Result
from bench.matrix_cells import Consume, Produce
from bench.raw_client import Connections, produce_frame_of

_TIMEOUT_S = 120
_SETTLE_S = 0.2
_BYTES = {"100 B": 100, "1,000 B": 1000, "mixed": 500}
_MIXED = [20, 90, 150, 400, 700, 1640]
"""Their mean is that of `_BYTES`."""
_RECORDS_PER_FRAME = {"default": 16_384, "one record": 1, "128 KiB": 131_072}
"""Bytes of records in a batch; 1: one record."""
_LETTERS = string.ascii_uppercase.encode()
_VALUES = 240
"""How many different ones there are: a multiple of the sizes of mixed ones."""
_RATE = re.compile(r"([\d.]+) records/sec")
_TAIL_PER_S = 2_000

Run = Callable[[], Result]


def records_of(cell: Produce, scale: float) -> int:
    """As many as take some seconds: a broker needs little processor time, which is told in hundredths of a second."""
    if cell.batching == "one record":
        most = 100_000
    else:
        most = {"100 B": 1_500_000, "1,000 B": 400_000, "mixed": 600_000}[cell.records]
    return max(int(most * scale) // cell.producers, 20) * cell.producers


def produce(cell: Produce, port: int, scale: float) -> Run:
    topics = _make_topics(port, [f"matrix-{number}" for number in range(cell.topics)], cell.partitions)
    way = {"java": _by_java, "librdkafka": _by_librdkafka, "frames": _by_frames}[cell.client]
    return way(cell, port, topics, records_of(cell, scale))


def _bytes_sent(cell: Produce, records: int) -> int:
    return records * _BYTES[cell.records]


def _values(cell: Produce) -> list[bytes]:
    """Random letters, as Kafka's tool makes them: a codec has some work with them, and some success."""
    random = Random(1)
    sizes = _MIXED if cell.records == "mixed" else [_BYTES[cell.records]]
    return [bytes(random.choices(_LETTERS, k=sizes[number % len(sizes)])) for number in range(_VALUES)]


def _by_librdkafka(cell: Produce, port: int, topics: Sequence[str], records: int) -> Run:
    batching = {"default": BATCH_16K, "one record": ONE_RECORD, "128 KiB": BATCH_128K}[cell.batching]
    sending: dict[str, Any] = {"acks": "1"} if cell.acks == "1" else {"acks": "all"}
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "log_level": 0,
        "queue.buffering.max.messages": records + 1,
        "queue.buffering.max.kbytes": 2_000_000,
        "enable.idempotence": cell.acks == "idempotent",
        "compression.codec": cell.codec,
    }
    producers = [Producer(settings | sending | batching) for _ in range(cell.producers)]
    for producer in producers:
        for topic in topics:
            producer.list_topics(topic, _TIMEOUT_S)
    values = _values(cell)
    places = [(topic, partition) for topic in topics for partition in range(cell.partitions)]

    def run() -> Result:
        started = time.perf_counter()
        for number in range(records // len(producers)):
            (topic, partition), value = places[number % len(places)], values[number % len(values)]
            for producer in producers:
                producer.produce(topic, value, partition=partition)
        if left := sum(producer.flush(_TIMEOUT_S) for producer in producers):
            raise RuntimeError(f"{left} of {records} records were not acknowledged")
        took = time.perf_counter() - started
        _check_ends(port, topics, cell.partitions, records, once=cell.acks == "idempotent")
        return Result(wall_s=took, bytes=_bytes_sent(cell, records))

    return run


def _by_java(cell: Produce, port: int, topics: Sequence[str], records: int) -> Run:
    (topic,) = topics
    batching = {
        "default": {"batch.size": 16_384, "linger.ms": 5},
        "one record": {"batch.size": 0, "linger.ms": 0},
        "128 KiB": {"batch.size": 131_072, "linger.ms": 5},
    }[cell.batching]
    properties = batching | {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "acks": "1" if cell.acks == "1" else "all",
        "enable.idempotence": str(cell.acks == "idempotent").lower(),
        "compression.type": cell.codec,
        "buffer.memory": 64 << 20,
    }
    given = [f"{name}={value}" for name, value in properties.items()]
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    tool = ["-cp", f"{fetch_jars()}/*", "org.apache.kafka.tools.ProducerPerformance"]

    def run() -> Result:
        with ExitStack() as stack:
            place = Path(stack.enter_context(TemporaryDirectory()))
            payloads = place / "payloads"
            payloads.write_bytes(b"\n".join(_values(cell)))
            size = ["--payload-file", str(payloads)]
            if cell.records != "mixed":
                size = ["--record-size", str(_BYTES[cell.records])]
            each = ["--topic", topic, "--num-records", str(records // cell.producers), "--throughput", "-1", *size]
            command = [*java, f"-Dlog4j2.configurationFile={LOGGING}", *tool, *each, "--producer-props", *given]
            running = [
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for _ in range(cell.producers)
            ]
            said = [process.communicate(timeout=_TIMEOUT_S)[0] for process in running]
        rates = [_RATE.findall(text) for text in said]
        if not all(rates) or any(process.returncode for process in running):
            raise RuntimeError(f"ProducerPerformance did not end well: {said}")
        _check_ends(port, topics, cell.partitions, records, once=cell.acks == "idempotent")
        # The tool's own clock: a JVM takes longer to start than to send all of this.
        took = max(records / cell.producers / float(found[-1]) for found in rates)
        return Result(wall_s=took, bytes=_bytes_sent(cell, records))

    return run


def _by_frames(cell: Produce, port: int, topics: Sequence[str], records: int) -> Run:
    values, limit = _values(cell), _RECORDS_PER_FRAME[cell.batching]
    places = cell.topics * cell.partitions
    per_batch = max(limit // (_BYTES[cell.records] + 10), 1)
    batch = [values[number % len(values)] for number in range(per_batch)]
    frame = produce_frame_of(topics, range(cell.partitions), batch, acks=1 if cell.acks == "1" else -1)
    connections = Connections(port, cell.producers)
    requests = max(records // (per_batch * places), cell.producers)

    def run() -> Result:
        took = connections.exchange(frame, requests)
        sent = requests * per_batch * places
        _check_ends(port, topics, cell.partitions, sent, once=True)
        return Result(wall_s=took, bytes=sent * _BYTES[cell.records], requests=requests)

    return run


# Reading.


def consume(cell: Consume, port: int, scale: float) -> Run:
    topic = f"matrix-read-{cell.partitions}-{cell.way}"
    records = max(int((400_000 if cell.way == "catch-up" else 3 * _TAIL_PER_S) * scale), cell.partitions)
    (topic,) = _make_topics(port, [topic], cell.partitions)
    if cell.way == "catch-up":
        _fill(port, topic, cell.partitions, records)
    consumers = _consumers(cell, port, topic)
    every = [one for consumer in consumers for one in consumer.assignment()]
    assert len(every) == cell.partitions * (1 if cell.assignment == "group" else len(consumers)), every
    expected = records if cell.assignment == "group" else records * cell.consumers

    def run() -> Result:
        for consumer in consumers:
            if assigned := consumer.assignment():
                consumer.resume(assigned)
        sending = _sending_paced(port, topic, cell.partitions, records) if cell.way == "tail" else None
        started, left = time.perf_counter(), expected
        while left:
            if sending is not None:
                next(sending, None)
            for consumer in consumers:
                left -= len(consumer.consume(10_000, 0 if len(consumers) > 1 or sending is not None else 1))
            if time.perf_counter() - started > _TIMEOUT_S:
                raise RuntimeError(f"{left} of {expected} records did not come")
        took = time.perf_counter() - started
        for consumer in consumers:
            # All before the first is closed: a member that is given partitions while it closes hangs (librdkafka 2.15).
            consumer.unsubscribe()
        for consumer in consumers:
            consumer.close()
        return Result(wall_s=took, bytes=expected * 100)

    return run


def _consumers(cell: Consume, port: int, topic: str) -> list[Consumer]:
    """With all partitions assigned, and paused."""
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "log_level": 0,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 10,
        "group.id": f"matrix-{time.time_ns()}",
    }
    consumers = [Consumer(settings) for _ in range(cell.consumers)]
    partitions = [TopicPartition(topic, index, 0) for index in range(cell.partitions)]
    if cell.assignment == "assigned":
        for consumer in consumers:
            consumer.assign(partitions)
            consumer.pause(partitions)
            consumer.poll(_SETTLE_S)
        return consumers
    for consumer in consumers:
        consumer.subscribe([topic], on_assign=_begin_paused)
    deadline = time.monotonic() + _TIMEOUT_S
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    while not _is_complete(admin, settings["group.id"], consumers, cell.partitions):
        for consumer in consumers:
            consumer.poll(0.05)
        if time.monotonic() > deadline:
            raise RuntimeError("the group did not form")
    return consumers


def _is_complete(admin: AdminClient, group: str, consumers: list[Consumer], partitions: int) -> bool:
    """Whether all members are in the group and have their partitions: no rebalance is to come."""
    counts = [len(consumer.assignment()) for consumer in consumers]
    if sum(counts) != partitions or max(counts) - min(counts) > 1:
        return False
    (described,) = admin.describe_consumer_groups([group]).values()
    found = described.result(_TIMEOUT_S)
    return found.state is ConsumerGroupState.STABLE and len(found.members) == len(consumers)


def _begin_paused(consumer: Consumer, given: list[TopicPartition]) -> None:
    for one in given:
        one.offset = 0
    consumer.assign(given)
    consumer.pause(given)


def _fill(port: int, topic: str, partitions: int, records: int) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    producer = Producer(settings | BATCH_16K | {"queue.buffering.max.messages": records + 1})
    for number in range(records):
        producer.produce(topic, bytes(100), partition=number % partitions)
    producer.flush(_TIMEOUT_S)


def _sending_paced(port: int, topic: str, partitions: int, records: int) -> Iterator[None]:
    """Sends what is due each time it is asked to go on."""
    settings: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, "linger.ms": 0}
    producer, started, sent = Producer(settings), time.perf_counter(), 0
    while sent < records:
        due = min(int((time.perf_counter() - started) * _TAIL_PER_S), records)
        for number in range(sent, due):
            producer.produce(topic, bytes(100), partition=number % partitions)
        sent = due
        producer.poll(0)
        yield
    producer.flush(_TIMEOUT_S)


# Topics.


def _make_topics(port: int, names: Sequence[str], partitions: int) -> Sequence[str]:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            known = admin.list_topics(timeout=_TIMEOUT_S).topics
            if all(len(known[name].partitions) == partitions for name in names):
                _check_ends(port, names, partitions, 0, once=True)  # Kafka tells of a partition before it leads it.
                return names
        except (KafkaException, KeyError):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"{', '.join(names)} were not made")


def drop_topics(port: int) -> None:
    """So that the next cell does not pay for their dirty pages."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    names = [name for name in admin.list_topics(timeout=_TIMEOUT_S).topics if name.startswith("matrix-")]
    for future in admin.delete_topics(names).values() if names else ():
        future.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        if not any(name.startswith("matrix-") for name in admin.list_topics(timeout=_TIMEOUT_S).topics):
            return
        time.sleep(0.05)


def _check_ends(port: int, topics: Sequence[str], partitions: int, records: int, *, once: bool) -> None:
    """Whether every record arrived; `once`: none of them twice, as from an idempotent producer."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "matrix", "log_level": 0})
    places = [TopicPartition(topic, index) for topic in topics for index in range(partitions)]
    arrived = sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
    consumer.close()
    if arrived < records or (once and arrived > records):
        raise RuntimeError(f"{records} records were sent, {arrived} arrived")
