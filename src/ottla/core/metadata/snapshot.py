"""Converts an image to records, and to the batches of a snapshot file `NNNNNNNNNNNNNNNNNNNN-EEEEEEEEEE.checkpoint`.

Rule 1: the records, replayed into an empty image, give the same image. They are in Kafka's order, features first.
Rule 2: a snapshot begins with a control batch (header; with dynamic voters also the quorum's version and voters) and
        ends with a footer. A file without the footer is unfinished and is not read.
Rule 3: offsets in a snapshot start at 0. Its name contains the end offset and the epoch of the part of the log that it
        replaces. `bootstrap.checkpoint`, with the first records of a new log, has the same format.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.core.metadata.control import Voters, header_records, read_control_records
from ottla.core.metadata.framing import DIRECTORY_LEVEL, BadMetadataRecord, decode_record, encode_record
from ottla.core.metadata.image import METADATA_VERSION, Broker, Image, Partition, Topic
from ottla.core.metadata.records import MetadataRecord
from ottla.kernel import (
    BatchBuilder,
    ControlType,
    CorruptBatch,
    Record,
    build_batch,
    control_key,
    crc_ok,
    read_records,
    scan,
)
from ottla.wire.codec import encode
from ottla.wire.records import metadata as records
from ottla.wire.records.control import SnapshotFooterRecord

SUFFIX: Final = ".checkpoint"
UNFINISHED_SUFFIX: Final = ".checkpoint.part"
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_BATCH_RECORDS_MAX: Final = 1024
_BATCH_BYTES_MAX: Final = 1 << 20


class BadMetadataSnapshot(ValueError):
    """The file is not a complete snapshot."""


class SnapshotId(NamedTuple):
    """The snapshot contains the log before `end_offset`; `epoch` is the epoch of the last record before it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> "SnapshotId | None":
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


class Snapshot(NamedTuple):
    last_log_timestamp: int
    voters: Voters | None
    records: list[MetadataRecord]


# Image to records.


def records_of(image: Image) -> Iterator[MetadataRecord]:
    if image.level:
        yield records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=image.level)
    for name in sorted(image.features):
        if name != METADATA_VERSION:
            yield records.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield broker_record(image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id]
    for topic_id in sorted(image.topics_by_id):
        topic = image.topics_by_id[topic_id]
        yield records.TopicRecord(name=topic.name, topic_id=topic_id)
        for index in sorted(topic.partitions):
            yield partition_record(topic, index, topic.partitions[index], image.level)
    for (resource_type, resource_name), settings in sorted(image.configs.items()):
        for name, value in sorted(settings.items()):
            yield records.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    for quota in sorted(image.quotas, key=repr):
        yield image.quotas[quota]
    if image.next_producer_id:
        yield records.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id in sorted(image.acls):
        yield image.acls[acl_id]
    for credential in sorted(image.scram):
        yield image.scram[credential]
    for token_id in sorted(image.tokens):
        yield image.tokens[token_id]


def partition_record(topic: Topic, index: int, partition: Partition, level: int) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if level >= DIRECTORY_LEVEL else [],
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def broker_record(broker: Broker) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in broker.endpoints
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, lowest, highest in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned is None else list(broker.cordoned),
    )


# Records to bytes and back.


def encode_snapshot(
    contents: list[MetadataRecord],
    *,
    level: int,
    epoch: int,
    now_ms: int,
    last_log_timestamp: int = 0,
    voters: Voters | None = None,
) -> list[bytes]:
    """The batches of a snapshot file."""
    batches = [
        build_batch(
            [
                Record(offset, now_ms, key, value)
                for offset, (key, value) in enumerate(header_records(last_log_timestamp, voters))
            ],
            leader_epoch=epoch,
            control=True,
        )
    ]
    offset = read_last_offset(batches[0]) + 1
    builder = BatchBuilder(offset)
    for record in contents:
        if builder.count >= _BATCH_RECORDS_MAX or builder.size >= _BATCH_BYTES_MAX:
            batches.append(builder.build(leader_epoch=epoch))
            offset += builder.count
            builder = BatchBuilder(offset)
        builder.append(now_ms, None, encode_record(record, level))
    if builder.count:
        batches.append(builder.build(leader_epoch=epoch))
        offset += builder.count
    footer = encode(SnapshotFooterRecord(version=0), 0)
    record = Record(offset, now_ms, control_key(ControlType.SNAPSHOT_FOOTER), footer)
    batches.append(build_batch([record], leader_epoch=epoch, control=True))
    return batches


def read_last_offset(batch: bytes) -> int:
    return scan(batch).headers[0].last_offset


def decode_snapshot(data: bytes) -> Snapshot:
    """Decode a snapshot file. Raises `BadMetadataSnapshot` if the bytes are not a complete snapshot."""
    scanned = scan(data)
    if scanned.fault is not None or scanned.consumed != len(data):
        raise BadMetadataSnapshot(f"byte {scanned.consumed} of {len(data)}: {scanned.fault or 'cut off'}")
    contents: list[MetadataRecord] = []
    timestamp, voters, finished, position = -1, None, False, 0
    try:
        for header in scanned.headers:
            if finished:
                raise BadMetadataSnapshot("records follow the footer")
            if not crc_ok(data, position, header.size):
                raise BadMetadataSnapshot(f"wrong CRC at byte {position}")
            batch = read_records(data, header, position)
            position += header.size
            if header.is_control:
                control = read_control_records(batch)
                timestamp = control.last_log_timestamp if control.last_log_timestamp is not None else timestamp
                voters = control.voters or voters
                finished = control.is_footer
            else:
                contents += [decode_record(record.value) for record in batch]
    except (CorruptBatch, BadMetadataRecord) as error:
        raise BadMetadataSnapshot(str(error)) from error
    if not finished:
        raise BadMetadataSnapshot("no footer: it was never finished")
    return Snapshot(timestamp, voters, contents)
