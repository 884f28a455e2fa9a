"""Decisions about brokers: registration, fencing and unfencing, and leadership of their partitions.

Rule 1: a broker that registers is fenced until it has read the metadata log past its own registration. Its epoch is the
        offset of its registration, so a later registration has a larger epoch.
Rule 2: a broker that comes back leads again only in a new leader epoch. The state of its clients for the old epoch is
        invalid.
Rule 3: a leader comes from the in-sync set. If that is empty, it comes from the replicas known to have the whole
        committed log: the ELR, or the only replica there is.
Rule 4: a broker leads no partition in a directory that it cannot use. Once it can again, it leads in a new epoch.
Rule 5: a request with an older epoch of the broker is refused, because it may have been delivered late.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.core.metadata.framing import CORDON_LEVEL, DIRECTORY_LEVEL, ELR_LEVEL
from ottla.core.metadata.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    Broker,
    BrokerEndpoint,
    FeatureRange,
    Image,
    Partition,
    Topic,
    is_online,
)
from ottla.core.metadata.records import MetadataRecord
from ottla.core.metadata.snapshot import broker_record
from ottla.core.runtime.decision import Decision
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord

_UNFENCED, _NO_CHANGE, _FENCED = -1, 0, 1


class Registration(NamedTuple):
    """The registration of a broker, sent when it starts."""

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    directories: tuple[bytes, ...]


class Heartbeat(NamedTuple):
    """The periodic heartbeat of a registered broker."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The last offset of the metadata log that the broker has read."""
    wants_fence: bool = False
    wants_stop: bool = False
    offline_directories: tuple[bytes, ...] = ()


class BrokerState(NamedTuple):
    """The state of a broker as the response to its heartbeat reports it."""

    is_caught_up: bool
    is_fenced: bool
    may_stop: bool


class Placed(NamedTuple):
    """The directory in which a broker has a replica."""

    topic_id: bytes
    partition: int
    directory: bytes


def register(image: Image, registration: Registration, epoch: int) -> Decision[int]:
    """Register a broker as fenced. The reply is its epoch. `epoch` is the offset that its record will have."""
    for other in image.brokers.values():
        shared = [one for one in registration.directories if one in other.directories]
        if shared and other.broker_id != registration.broker_id:
            raise Refused(
                Error.INVALID_REGISTRATION,
                f"broker {other.broker_id} has registered with directory {shared[0].hex()} already",
            )
    record: RegisterBrokerRecord = broker_record(
        Broker(
            broker_id=registration.broker_id,
            incarnation_id=registration.incarnation_id,
            epoch=epoch,
            endpoints=registration.endpoints,
            features=registration.features,
            rack=registration.rack,
            fenced=True,
            in_controlled_shutdown=False,
            directories=registration.directories if image.level >= DIRECTORY_LEVEL else (),
            cordoned=None,
        )
    )
    return Decision(epoch, [record])


def heartbeat(image: Image, beat: Heartbeat) -> Decision[BrokerState]:
    """Fence or unfence a broker as it requests, and remove it as leader of the partitions in lost directories."""
    broker = _registered(image, beat.broker_id, beat.broker_epoch)
    usable = tuple(one for one in broker.directories if one not in beat.offline_directories)
    after = broker._replace(directories=usable)
    is_caught_up = beat.metadata_offset >= broker.epoch
    is_fenced = beat.wants_fence or beat.wants_stop or (broker.fenced and not is_caught_up)
    records: list[MetadataRecord] = []
    if usable != broker.directories:
        records.append(_broker_change(broker, log_dirs=usable))
    if broker.fenced and not is_fenced:
        records += _unfenced(image, after)
    else:
        if is_fenced and not broker.fenced:
            records.append(_broker_change(broker, fenced=_FENCED))
        if usable != broker.directories:
            records += _leaderless(image, after)
    return Decision(BrokerState(is_caught_up, is_fenced, may_stop=beat.wants_stop), records)


def _registered(image: Image, broker_id: int, broker_epoch: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise Refused(
            Error.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, the request is from {broker_epoch}"
        )
    return broker


def _broker_change(
    broker: Broker,
    *,
    fenced: int = _NO_CHANGE,
    log_dirs: Sequence[bytes] = (),
    cordoned: list[bytes] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        log_dirs=list(log_dirs),
        cordoned_log_dirs=cordoned,
    )


def _unfenced(image: Image, broker: Broker) -> list[MetadataRecord]:
    """Unfence the broker, and make it lead the partitions that only it can lead."""
    records: list[MetadataRecord] = [_broker_change(broker, fenced=_UNFENCED)]
    if image.level >= CORDON_LEVEL and broker.cordoned is None:
        records.append(_broker_change(broker, cordoned=[]))
    records += [
        change
        for topic, index, partition in image.partitions()
        if (change := _led_by(image, topic, index, partition, broker)) is not None
    ]
    return records


def _leaderless(image: Image, broker: Broker) -> list[MetadataRecord]:
    """Remove the leader of the partitions that the broker leads and that are in a directory it cannot use."""
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)
        for topic, index, partition in image.partitions()
        if partition.leader == broker.broker_id and not is_online(partition, broker)
    ]


def _led_by(
    image: Image, topic: Topic, index: int, partition: Partition, broker: Broker
) -> PartitionChangeRecord | None:
    """The change of a partition that the broker is recorded to lead, or that has no leader. It makes the broker the
    leader, or removes it as leader if it cannot use the directory. None if another broker leads or may lead."""
    broker_id = broker.broker_id
    usable = is_online(partition, broker)
    if partition.leader == broker_id:
        leader_now = broker_id if usable else NO_LEADER
        return PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=leader_now)
    if not usable:
        return None
    leader = image.brokers.get(partition.leader)
    if leader is not None and leader.active:
        return None
    if broker_id not in _eligible(partition):
        return None
    has_elr = image.level >= ELR_LEVEL and bool(partition.elr or partition.last_known_elr)
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        leader=broker_id,
        isr=None if broker_id in partition.isr else [broker_id],
        eligible_leader_replicas=[] if has_elr else None,
        last_known_elr=[] if has_elr else None,
    )


def _eligible(partition: Partition) -> tuple[int, ...]:
    if partition.isr or partition.elr:
        return partition.isr or partition.elr
    return partition.replicas if len(partition.replicas) == 1 else ()


def assign_directories(
    image: Image, broker_id: int, broker_epoch: int, placed: Sequence[Placed]
) -> Decision[list[Error]]:
    """Record in which of its directories a broker has replicas. The reply has one error code for each of `placed`,
    because topics may have been deleted and replicas moved meanwhile."""
    broker = _registered(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    errors: list[Error] = []
    for topic_id, index, directory in placed:
        topic = image.topic_by_id(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if topic is None:
            errors.append(Error.UNKNOWN_TOPIC_ID)
        elif partition is None:
            errors.append(Error.UNKNOWN_TOPIC_OR_PARTITION)
        elif broker_id not in partition.replicas:
            errors.append(Error.NOT_LEADER_OR_FOLLOWER)
        elif image.level < DIRECTORY_LEVEL:
            errors.append(Error.UNSUPPORTED_VERSION)
        else:
            errors.append(Error.NONE)
            at = partition.replicas.index(broker_id)
            directories = list(partition.directories) or [bytes(16)] * len(partition.replicas)
            if directories[at] != directory:
                directories[at] = directory
                records.append(_placed(image, topic, index, partition, directories, broker))
    return Decision(errors, records)


def _placed(
    image: Image, topic: Topic, index: int, partition: Partition, directories: list[bytes], broker: Broker
) -> PartitionChangeRecord:
    """The change of directories, and of the leader if that depends on the new directory."""
    after = partition._replace(directories=tuple(directories))
    change: PartitionChangeRecord | None = None
    if partition.leader == NO_LEADER or not is_online(after, broker):
        change = _led_by(image, topic, index, after, broker)
    if change is None:
        change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER_CHANGE)
    change.directories = directories
    return change
