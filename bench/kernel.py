"""Encoding and decoding of records: the kernel, and other Python clients with the same records."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import confluent_kafka
import pyarrow
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from bench.measure import Cost, Work, lowest, turn_about
from bench.nodes import Node, Ottla
from bench.report import Section, Table, verdict
from bench.sizes import Sizes
from ottla import kernel
from ottla.client import BEGINNING, Client, Consumer, Producer, TopicPartition
from ottla.kernel import Codec, FetchedPart, reference

T = 1_700_000_000_000
VALUE = bytes(range(100))
PER_BATCH = 150  # About 16 KiB, the default of Kafka's producer.
TOPIC = "records"
RECORDS = 300_000
ROUNDS = 3

OBJECTS_AIM_US = 0.4  # For appending a record from Python, and for making one of fetched bytes.
COLUMNS_AIM_US = 0.05


def run(sizes: Sizes) -> Section:
    section = Section(
        "Records",
        f"Records of 100 bytes without a key, {PER_BATCH} a batch. First the encoders and decoders alone, in this "
        "process: Ottla's kernel, its reference in plain Python, and aiokafka's own builder and parser (Cython). "
        "Then whole clients that produce (acks=all) to a partition of an Ottla node and consume it from its beginning: "
        "CPU time of the client's process, all threads. `one by one` calls a method for every record.",
    )
    section.tables += [_alone(sizes, section), _clients(sizes)]
    return section


# The encoders and decoders alone.


def _alone(sizes: Sizes, section: Section) -> Table:
    table = Table("Encoding and decoding", ["what", "Ottla µs", "reference µs", "aiokafka µs", "Ottla records/s"])
    for codec in (Codec.NONE, Codec.LZ4):
        name = "" if codec is Codec.NONE else f", {codec.name.lower()}"
        costs = _encoding(codec, sizes)
        _add(table, f"encode one by one{name}", costs["one by one"], costs["reference"], costs["aiokafka"])
        _add(table, f"encode at once{name}", costs["at once"])
        encoded = costs["one by one"].cpu_us
        costs = _decoding(codec, sizes)
        _add(table, f"decode to objects{name}", costs["objects"], costs["reference"], costs["aiokafka"])
        _add(table, f"decode to Arrow{name}", costs["columns"])
        if codec is Codec.NONE:
            section.findings += [
                f"Encoding, one by one: {verdict(encoded, OBJECTS_AIM_US, ' µs')}.",
                f"Decoding to objects: {verdict(costs['objects'].cpu_us, OBJECTS_AIM_US, ' µs')}.",
                f"Decoding to Arrow: {verdict(costs['columns'].cpu_us, COLUMNS_AIM_US, ' µs')}.",
            ]
    return table


def _add(table: Table, what: str, ours: Cost, of_reference: Cost | None = None, theirs: Cost | None = None) -> None:
    table.add(what, ours.cpu_us, of_reference and of_reference.cpu_us, theirs and theirs.cpu_us, 1 / ours.wall)


def _encoding(codec: Codec, sizes: Sizes) -> dict[str, Cost]:
    drafts = [(T + n, None, VALUE, (), None) for n in range(PER_BATCH)]

    def one_by_one(builder_type: Callable[[], Any]) -> Work:
        def work() -> None:
            builder = builder_type()
            append = builder.append
            for n in range(PER_BATCH):
                append(T + n, None, VALUE)
            builder.build(codec=codec)

        return work

    def at_once() -> None:
        builder = kernel.BatchBuilder()
        builder.extend(drafts)
        builder.build(codec=codec)

    def aiokafka() -> None:
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
        for n in range(PER_BATCH):
            builder.append(n, T + n, None, VALUE, [])
        builder.build()

    works = {
        "one by one": one_by_one(kernel.BatchBuilder),
        "at once": at_once,
        "reference": one_by_one(reference.BatchBuilder),
        "aiokafka": aiokafka,
    }
    return _per_record(works, PER_BATCH, sizes)


def _decoding(codec: Codec, sizes: Sizes) -> dict[str, Cost]:
    batches = 10
    data = b"".join(_batch(codec, base * PER_BATCH) for base in range(batches))

    def aiokafka() -> None:
        records = MemoryRecords(data)
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            for record in batch:
                record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018 - made when asked

    works: dict[str, Work] = {
        "objects": lambda: kernel.RecordReader(data, 0).take(),
        "columns": lambda: pyarrow.record_batch(kernel.read_columns([FetchedPart(0, data, 0)])),
        "reference": lambda: reference.RecordReader(data, 0).take(),
        "aiokafka": aiokafka,
    }
    return _per_record(works, batches * PER_BATCH, sizes)


def _batch(codec: Codec, base_offset: int) -> bytes:
    builder = kernel.BatchBuilder(base_offset)
    builder.extend((T + n, None, VALUE, ()) for n in range(PER_BATCH))
    return builder.build(codec=codec)


def _per_record(works: dict[str, Work], records: int, sizes: Sizes) -> dict[str, Cost]:
    costs = turn_about(works, sizes.rounds, sizes.round_seconds)
    return {name: cost.per(records) for name, cost in costs.items()}


# Whole clients.


def _clients(sizes: Sizes) -> Table:
    table = Table("Clients, end to end", ["client", "produce CPU µs", "records/s", "consume CPU µs", "records/s "])
    count = int(RECORDS * sizes.broker_scale)
    with TemporaryDirectory() as home:
        node = Node(Ottla(), Path(home) / "node")
        try:
            for name, (produce, consume) in CLIENTS.items():
                produced, consumed = [], []
                for number in range(ROUNDS if sizes.rounds > 1 else 1):
                    topic = f"{TOPIC}-{number}-{name.split()[0]}"
                    produced.append(_timed(produce, node.bootstrap, topic, count))
                    consumed.append(_timed(consume, node.bootstrap, topic, count))
                made, taken = lowest(produced), lowest(consumed)
                table.add(name, made.cpu_us, 1 / made.wall, taken.cpu_us, 1 / taken.wall)
        finally:
            node.stop()
    return table


Driver = Callable[[str, str, int], None]


def _timed(driver: Driver, bootstrap: str, topic: str, count: int) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    driver(bootstrap, topic, count)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu).per(count)


def _confluent_produce(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _confluent_consume(bootstrap: str, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = count
    while left > 0:
        left -= sum(1 for message in consumer.consume(500, 1.0) if message.value() is not None)
    consumer.close()


def _ottla_produce(bootstrap: str, topic: str, count: int) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client, Producer(client) as producer:
            for _ in range(count):
                if not producer.has_room:
                    await producer.room()
                producer.send(topic, VALUE)
            await producer.flush()

    asyncio.run(work())


def _ottla_consume(bootstrap: str, topic: str, count: int) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client, Consumer(client) as consumer:
            await consumer.assign({TopicPartition(topic, 0): BEGINNING})
            left = count
            while left > 0:
                left -= len(await consumer.poll())

    asyncio.run(work())


def _aiokafka_produce(bootstrap: str, topic: str, count: int) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5) as producer:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()

    asyncio.run(work())


def _aiokafka_consume(bootstrap: str, topic: str, count: int) -> None:
    async def work() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            partition = AiokafkaPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            left = count
            while left > 0:
                left -= sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))

    asyncio.run(work())


CLIENTS: dict[str, tuple[Driver, Driver]] = {
    "Ottla": (_ottla_produce, _ottla_consume),
    "confluent-kafka": (_confluent_produce, _confluent_consume),
    "aiokafka": (_aiokafka_produce, _aiokafka_consume),
}
