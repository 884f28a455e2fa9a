"""Brokers come, go, and take the lead of what they hold.

Rule 1: a broker that registers is fenced until it says it is ready. Its epoch is the offset of its registration, so a
        later one is always larger.
Rule 2: a broker that comes back leads again only in a new leader epoch: what its clients knew of the old one is over.
Rule 3: a leader comes from the in-sync set, or, where that is empty, from the replicas known to have the whole
        committed log (ELR, and for a single replica the last known one: nobody else can have more).
Rule 4: a broker leads nothing that lies in a directory it cannot use. When it can again, it leads in a new epoch.
"""

from typing import NamedTuple

from ottla.core.metadata.decision import Decision, MetadataRecord
from ottla.core.metadata.features import SUPPORTED
from ottla.core.metadata.framing import CORDON_LEVEL, DIRECTORY_LEVEL, ELR_LEVEL
from ottla.core.metadata.image import NO_LEADER, NO_LEADER_CHANGE, Broker, Endpoint, Image, Partition, Topic, is_online
from ottla.core.metadata.snapshot import broker_record
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord

_UNFENCED, _FENCED = -1, 1


class Registration(NamedTuple):
    """What a broker says of itself when it comes."""

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directories: tuple[bytes, ...]


def register(image: Image, registration: Registration, epoch: int) -> Decision[int]:
    """Take a broker in, fenced; the reply is its epoch. `epoch` is the offset its record will have."""
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
            features=SUPPORTED,
            rack=registration.rack,
            fenced=True,
            in_controlled_shutdown=False,
            directories=registration.directories if image.level >= DIRECTORY_LEVEL else (),
            cordoned=None,
        )
    )
    return Decision([record], epoch)


def unfence(image: Image, broker_id: int) -> Decision[None]:
    """A registered broker is ready: it may lead, and at once leads what only it can."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if not broker.fenced:
        return Decision([], None)
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=_UNFENCED)
    ]
    if image.level >= CORDON_LEVEL and broker.cordoned is None:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=[])
        )
    records += [
        change
        for topic, index, partition in image.partitions()
        if (change := _led_by(image, topic, index, partition, broker)) is not None
    ]
    return Decision(records, None)


def directories_online(image: Image, broker_id: int, online: tuple[bytes, ...]) -> Decision[None]:
    """A broker says which of its directories it can still use; at least one of them."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if image.level < DIRECTORY_LEVEL or set(online) == set(broker.directories):
        return Decision([], None)
    after = broker._replace(directories=online)
    records: list[MetadataRecord] = [
        BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=list(online))
    ]
    records += [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)
        for topic, index, partition in image.partitions()
        if partition.leader == broker_id and not is_online(partition, after)
    ]
    return Decision(records, None)


def fence(image: Image, broker_id: int) -> Decision[None]:
    """A broker has stopped. It need not wait for its old session to end before it registers again."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=_FENCED)
    return Decision([change], None)


def _led_by(
    image: Image, topic: Topic, index: int, partition: Partition, broker: Broker
) -> PartitionChangeRecord | None:
    """The change that makes a broker lead, which it does already by name or which has nobody else; or that takes the
    lead from it where it cannot use the directory."""
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


def assign_directories(image: Image, broker_id: int, placed: list[tuple[bytes, int, bytes]]) -> Decision[None]:
    """A broker says in which of its directories replicas are: topic id, partition, directory of each."""
    if broker_id not in image.brokers:
        raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    records: list[MetadataRecord] = []
    for topic_id, index, directory in placed:
        topic = image.topic_by_id(topic_id)
        if topic is None or image.level < DIRECTORY_LEVEL:
            continue  # Deleted meanwhile.
        partition = topic.partitions.get(index)
        if partition is None or broker_id not in partition.replicas:
            continue  # Moved meanwhile.
        at = partition.replicas.index(broker_id)
        directories = list(partition.directories) or [bytes(16)] * len(partition.replicas)
        if directories[at] != directory:
            directories[at] = directory
            records.append(_placed(image, topic, index, partition, directories, image.brokers[broker_id]))
    return Decision(records, None)


def _placed(
    image: Image, topic: Topic, index: int, partition: Partition, directories: list[bytes], broker: Broker
) -> PartitionChangeRecord:
    """The change of directories, and of the leader where it follows."""
    after = partition._replace(directories=tuple(directories))
    change: PartitionChangeRecord | None = None
    if partition.leader == NO_LEADER or not is_online(after, broker):
        change = _led_by(image, topic, index, after, broker)
    if change is None:
        change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER_CHANGE)
    change.directories = directories
    return change
