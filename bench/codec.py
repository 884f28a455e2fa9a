"""Encoding and decoding of messages, next to kio on the same bytes."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from bench.measure import turn_about
from bench.report import Section, Table, verdict
from bench.sizes import Sizes
from ottla.wire.api import fetch, metadata, produce
from ottla.wire.codec import decode, encode
from ottla.wire.schema import message_of

RECORDS = bytes(100)
TOPIC_ID = bytes(range(16))

DECODE_AIM_US = 8.0  # Produce with ten partitions.
ENCODE_AIM_US = 3.2


def produce_request(partitions: int) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(index=i, records=RECORDS) for i in range(partitions)]
    topic = produce.TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch_request(partitions: int) -> fetch.FetchRequest:
    asked = [
        fetch.FetchPartition(partition=i, current_leader_epoch=3, fetch_offset=1_000_000, partition_max_bytes=1 << 20)
        for i in range(partitions)
    ]
    topic = fetch.FetchTopic(topic_id=TOPIC_ID, partitions=asked)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])


def fetch_response(partitions: int) -> fetch.FetchResponse:
    data = [
        fetch.PartitionData(
            partition_index=i,
            error_code=0,
            high_watermark=1_000_100,
            last_stable_offset=1_000_100,
            log_start_offset=0,
            aborted_transactions=[],
            records=RECORDS,
        )
        for i in range(partitions)
    ]
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)
    return fetch.FetchResponse(throttle_time_ms=0, responses=[topic])


def metadata_response(partitions: int) -> metadata.MetadataResponse:
    brokers = [metadata.MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092) for i in range(3)]
    replicas = [
        metadata.MetadataResponsePartition(
            error_code=0,
            partition_index=i,
            leader_id=i % 3,
            leader_epoch=7,
            replica_nodes=[i % 3, (i + 1) % 3, (i + 2) % 3],
            isr_nodes=[i % 3, (i + 1) % 3],
        )
        for i in range(partitions)
    ]
    topic = metadata.MetadataResponseTopic(error_code=0, name="topic", topic_id=TOPIC_ID, partitions=replicas)
    return metadata.MetadataResponse(brokers=brokers, cluster_id="bench", controller_id=1, topics=[topic])


MESSAGES: list[Callable[[int], Any]] = [produce_request, fetch_request, fetch_response, metadata_response]


def run(sizes: Sizes) -> Section:
    section = Section(
        "Codec",
        "Microseconds for one message, newest version, one topic; 100 bytes of records a partition, so that it is the "
        "codec that is timed and not the copying. Encoding joins the buffers; a broker hands them on unjoined.",
    )
    table = Table(
        "One message to bytes and back; kio 0.6.5 beside it",
        ["message", "partitions", "bytes", "decode µs", "ours / kio", "encode µs", "ours / kio"],
    )
    section.tables.append(table)
    for make in MESSAGES:
        for partitions in sizes.codec_partitions:
            decoded, decoded_ratio, encoded, encoded_ratio = _measure(make(partitions), table, partitions, sizes)
            if make is produce_request and partitions == 10:
                section.findings += [
                    f"Produce with ten partitions, decode: {verdict(decoded, DECODE_AIM_US, ' µs')} "
                    f"({decoded_ratio:.2f} times kio's time).",
                    f"Produce with ten partitions, encode: {verdict(encoded, ENCODE_AIM_US, ' µs')} "
                    f"({encoded_ratio:.2f} times kio's time).",
                ]
    section.findings.append(
        "kio reads with native code and copies the records, Ottla's reader is generated Python and leaves the records "
        "in the buffer; kio writes in plain Python. The gap in decoding is what a native reader could win; it is "
        "widest where a message is many small objects (Metadata), which a broker writes and only clients read."
    )
    return section


def _measure(message: Any, table: Table, partitions: int, sizes: Sizes) -> tuple[float, float, float, float]:
    cls = type(message)
    version = message_of(cls).versions[-1]
    data = encode(message, version)
    kio_class = _kio_class(cls.__name__, version)
    read, write = entity_reader(kio_class), entity_writer(kio_class)
    entity, _ = read(data, 0)
    assert decode(cls, version, data) == message
    costs = turn_about(
        {
            "decode": lambda: decode(cls, version, data),
            "kio decodes": lambda: read(data, 0),
            "encode": lambda: encode(message, version),
            "kio encodes": lambda: write(BytesIO(), entity),
        },
        sizes.rounds,
        sizes.round_seconds,
    )
    decoded, encoded = costs["decode"].cpu_us, costs["encode"].cpu_us
    decoded_ratio = decoded / costs["kio decodes"].cpu_us
    encoded_ratio = encoded / costs["kio encodes"].cpu_us
    table.add(
        f"{cls.__name__} v{version}", partitions, len(data), decoded, decoded_ratio, encoded, encoded_ratio
    )  # CPU time: nothing here waits.
    return decoded, decoded_ratio, encoded, encoded_ratio


def _kio_class(name: str, version: int) -> Any:
    for api, versions in schema_name_map.items():
        for kind, path in versions.get(version, {}).items():
            if path.rpartition(":")[2] == name:
                return load_entity_schema(api, version, kind)
    raise LookupError(f"kio has no {name} of version {version}")
