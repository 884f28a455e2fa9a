"""One load against one broker, in its own process: `python -m bench.load`.

Standard input has the job as a line of JSON and, after "ready", a line to begin; standard output gets "ready" and then
the result as a line of JSON. Creating topics and connections, and dropping the topic, are not measured.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypedDict

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.catch_up import read_all
from bench.paced import produce_at
from bench.raw_client import Connections, fetch_frame, fetched_up_to, produce_frame, produced_at
from bench.sizes import KiB

BATCH_16K: dict[str, Any] = {"batch.size": 16 * KiB, "linger.ms": 5}
"""What Kafka's own producer has by default."""
BATCH_128K: dict[str, Any] = {"batch.size": 128 * KiB, "linger.ms": 5}
ONE_RECORD: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0}
_TIMEOUT_S = 60
_FETCH_WAIT_MS = 500
_SETTLE_S = 0.2
_VALUES = 101
PERCENTILES = (0.5, 0.99, 0.999)


class Job(TypedDict, total=False):
    kind: str
    port: int
    topic: str
    keep: bool
    """Keep the topic."""
    records: int
    value_bytes: int
    mixed: bool
    """Values from half to one and a half times that size."""
    client: dict[str, Any]
    """Settings of librdkafka."""
    connections: int
    records_per_batch: int
    per_s: float
    seconds: float
    cell: dict[str, Any]
    """Of the matrix (`matrix_cells`), by its fields."""
    scale: float


class Result(TypedDict, total=False):
    wall_s: float
    bytes: int
    requests: int
    latencies_ms: list[float]
    """At each of `PERCENTILES`."""


Run = Callable[[], Result]


def produce(job: Job) -> Run:
    """All the records as fast as librdkafka sends them, acknowledged by all."""
    settings = {"queue.buffering.max.messages": job["records"] + 1, "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer(_bootstrap(job) | settings | job["client"])
    _make_topic(job)
    producer.list_topics(job["topic"], _TIMEOUT_S)
    values, topic, send = _values(job), job["topic"], producer.produce
    rounds, rest = divmod(job["records"], len(values))

    def run() -> Result:
        started = time.perf_counter()
        for _ in range(rounds):
            for value in values:
                send(topic, value, partition=0)
        for value in values[:rest]:
            send(topic, value, partition=0)
        left = producer.flush(_TIMEOUT_S)
        took = time.perf_counter() - started
        end = Consumer(_bootstrap(job) | {"group.id": "bench"}).get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
        if left or end != job["records"]:
            raise RuntimeError(f"{job['records']} records were sent, {end} arrived")
        return Result(wall_s=took, bytes=job["records"] * job["value_bytes"])

    return run


def _values(job: Job) -> list[bytes]:
    """The values that are sent repeatedly."""
    size = job["value_bytes"]
    if not job.get("mixed"):
        return [bytes(size)] * _VALUES
    return [bytes(size // 2 + number * 37 % (size + 1)) for number in range(_VALUES)]


def consume(job: Job) -> Run:
    """Read a topic from its beginning, as fast as librdkafka can.

    The consumer has read some of it before: its connections exist, and its memory and TCP's windows have grown.
    """
    consumer = Consumer(_bootstrap(job) | {"group.id": "bench", "enable.auto.commit": False} | job["client"])
    beginning = TopicPartition(job["topic"], 0, 0)

    def read(left: int) -> None:
        consumer.assign([beginning])
        while left:
            found = consumer.consume(min(left, 10_000), 5)
            if not found:
                raise RuntimeError(f"{left} records did not come")
            left -= len(found)

    read(job["records"] // 4)
    consumer.unassign()
    consumer.poll(_SETTLE_S)

    def run() -> Result:
        started = time.perf_counter()
        read(job["records"])
        took = time.perf_counter() - started
        consumer.close()
        return Result(wall_s=took, bytes=job["records"] * job["value_bytes"])

    return run


def produce_from_many(job: Job) -> Run:
    """Each connection sends a small batch, waits for the response, and sends the next."""
    _make_topic(job)
    connections = Connections(job["port"], job["connections"])
    frame = produce_frame(job["topic"], job["records_per_batch"], bytes(job["value_bytes"]))
    requests = job["records"] // job["records_per_batch"]

    def run() -> Result:
        took = connections.exchange(frame, requests)
        connections.all[0].send(frame)
        if (offset := produced_at(connections.all[0].answer())) != requests * job["records_per_batch"]:
            raise RuntimeError(f"{requests} batches were sent, {offset} records arrived")
        return Result(wall_s=took, bytes=requests * job["records_per_batch"] * job["value_bytes"], requests=requests)

    return run


def read_bytes(job: Job) -> Run:
    """Read a topic from its beginning, as fast as one connection can; the records are not decoded."""

    def run() -> Result:
        started = time.perf_counter()
        fetches = read_all(job["port"], job["topic"], job["records"])
        took = time.perf_counter() - started
        return Result(wall_s=took, bytes=job["records"] * job["value_bytes"], requests=fetches)

    return run


def produce_paced(job: Job) -> Run:
    """Small batches at a fixed rate; measures the time to their acknowledgement."""
    _make_topic(job)
    connections = Connections(job["port"], job["connections"])
    frame = produce_frame(job["topic"], job["records_per_batch"], bytes(job["value_bytes"]))

    def run() -> Result:
        done = produce_at(connections, frame, job["per_s"], job["seconds"])
        requests = len(done.latencies_ms)
        size = requests * job["records_per_batch"] * job["value_bytes"]
        return Result(wall_s=done.wall_s, bytes=size, requests=requests, latencies_ms=_percentiles(done.latencies_ms))

    return run


def tail(job: Job) -> Run:
    """Readers wait at the end of a topic while one record after another is written at a fixed rate."""
    _make_topic(job)
    connections = Connections(job["port"], job["connections"] + 1)
    writer, *readers = connections.all
    frame = produce_frame(job["topic"], 1, bytes(job["value_bytes"]))
    records = int(job["per_s"] * job["seconds"])
    fetches = [fetch_frame(job["topic"], offset, _FETCH_WAIT_MS) for offset in range(records + 1)]

    def run() -> Result:
        seen = dict.fromkeys(readers, 0)
        for reader in readers:
            reader.send(fetches[0])
        latencies: list[float] = []
        sent: list[float] = []
        begun = next_at = time.perf_counter() + _SETTLE_S
        while len(latencies) < records * len(readers):
            now = time.perf_counter()
            if now >= next_at and len(sent) < records:
                sent.append(now)
                writer.send(frame)
                next_at += 1 / job["per_s"]
            wait_s = max(next_at - time.perf_counter(), 0) if len(sent) < records else 5.0
            for reader, answer in connections.answered(wait_s):
                if reader is writer:
                    continue
                end, now = fetched_up_to(answer), time.perf_counter()
                latencies += [(now - sent[offset]) * 1000 for offset in range(seen[reader], end)]
                seen[reader] = end
                reader.send(fetches[end])
        return Result(
            wall_s=time.perf_counter() - begun,
            bytes=len(latencies) * job["value_bytes"],
            requests=len(latencies) + records,
            latencies_ms=_percentiles(sorted(latencies)),
        )

    return run


def _percentiles(ascending: list[float]) -> list[float]:
    return [ascending[int(share * (len(ascending) - 1))] for share in PERCENTILES]


def _drop_topic(job: Job) -> None:
    """So that the next load does not pay for its dirty pages."""
    admin = AdminClient(_bootstrap(job))  # Kept alive until the response.
    for future in admin.delete_topics([job["topic"]]).values():
        future.result(_TIMEOUT_S)


def _make_topic(job: Job) -> None:
    admin = AdminClient(_bootstrap(job))
    for future in admin.create_topics([NewTopic(job["topic"], 1, 1)]).values():
        future.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            topics = admin.list_topics(job["topic"], _TIMEOUT_S).topics
            if all(each.leader >= 0 for topic in topics.values() for each in topic.partitions.values()):
                return
        except KafkaException:
            pass
        time.sleep(0.05)


def _bootstrap(job: Job) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{job['port']}", "log_level": 0}


def matrix(job: Job) -> Run:
    from bench import matrix_load
    from bench.matrix_cells import Consume, Produce

    cell, port, scale = job["cell"], job["port"], job["scale"]
    if "client" in cell:
        return matrix_load.produce(Produce(**cell), port, scale)
    return matrix_load.consume(Consume(**cell), port, scale)


KINDS: dict[str, Callable[[Job], Run]] = {
    "produce": produce,
    "consume": consume,
    "produce from many": produce_from_many,
    "produce paced": produce_paced,
    "read bytes": read_bytes,
    "tail": tail,
    "matrix": matrix,
}


def main() -> None:
    job: Job = json.loads(sys.stdin.readline())
    run = KINDS[job["kind"]](job)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(run()), flush=True)
    sys.stdin.readline()
    if job["kind"] == "matrix":
        from bench.matrix_load import drop_topics

        drop_topics(job["port"])
    elif not job.get("keep"):
        _drop_topic(job)


if __name__ == "__main__":
    main()
