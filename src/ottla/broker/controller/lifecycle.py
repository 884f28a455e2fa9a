"""The reports of this broker to the controller: that it starts and stops, and where its logs are.

Rule 1: a broker registers once per start. All later requests carry the epoch that the registration returned.
Rule 2: before the registration it reports nothing. Afterwards it reports all its directories and logs.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.broker.controller.channel import ControllerChannel
from ottla.broker.controller.publisher import MetadataPublisher
from ottla.core.metadata.brokers import Placed
from ottla.core.metadata.features import SUPPORTED
from ottla.core.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, Partition, directory_of
from ottla.observe.trace import warn
from ottla.storage.log_directory import LogDirectory
from ottla.storage.store import LogStore
from ottla.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

NOT_REGISTERED: Final = -1
_PLACED_PER_REQUEST: Final = 200


class BrokerIdentity(NamedTuple):
    """The data with which a broker registers, in addition to its directories."""

    cluster_id: str
    incarnation_id: bytes
    listeners: list[Listener]
    rack: str | None


class BrokerLifecycle:
    def __init__(
        self, broker_id: int, channel: ControllerChannel, metadata: MetadataPublisher, store: LogStore
    ) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._metadata = metadata
        self._store = store
        self.epoch = NOT_REGISTERED

    async def register(self, identity: BrokerIdentity) -> None:
        """Register; returns when the broker is registered and unfenced. Raises Refused if the controller refuses."""
        request = BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=identity.listeners,
            features=[
                Feature(name=one.name, min_supported_version=one.lowest, max_supported_version=one.highest)
                for one in SUPPORTED
            ],
            rack=identity.rack,
            log_dirs=[directory_id(directory) for directory in self._store.directories],
        )
        response: BrokerRegistrationResponse = await self._channel.send(request)
        _check(response.error_code, "the controller does not register this broker")
        self.epoch = response.broker_epoch
        if await self._beat():
            raise Refused(Error.BROKER_NOT_AVAILABLE, "the controller keeps this broker fenced")

    async def stop(self) -> None:
        """Report to the controller that this broker stops, so that it is fenced before its session ends."""
        if self.epoch == NOT_REGISTERED:
            return
        try:
            await self._beat(wants_stop=True)
        except Refused as refusal:
            warn("node.not_fenced", node_id=self._broker_id, reason=refusal.text)

    async def tell_directories(self, partitions: Iterable[tuple[bytes, int]] | None = None) -> None:
        """Report which directories can be used, and in which of them the log of each of these partitions is. None
        means all partitions."""
        if self.epoch == NOT_REGISTERED:
            return
        image = self._metadata.image
        if partitions is None:
            partitions = [(topic.topic_id, index) for topic, index, _ in image.partitions()]
        online = self._online()
        placed = [
            Placed(topic_id, index, directory)
            for topic_id, index in partitions
            if (topic := image.topic_by_id(topic_id)) is not None
            and (state := topic.partitions.get(index)) is not None
            and (directory := self._place_of(topic.name, index, state, online)) is not None
        ]
        try:
            await self._beat()
            for first in range(0, len(placed), _PLACED_PER_REQUEST):
                await self._assign(placed[first : first + _PLACED_PER_REQUEST])
        except Refused as refusal:
            warn("directories.not_told", logs=len(placed), reason=refusal.text)

    async def _beat(self, *, wants_stop: bool = False) -> bool:
        """Send a heartbeat; returns whether the broker is fenced after it."""
        online = self._online()
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata.end_offset - 1,
            want_fence=False,
            want_shut_down=wants_stop,
            offline_log_dirs=[one for one in map(directory_id, self._store.directories) if one not in online],
        )
        response: BrokerHeartbeatResponse = await self._channel.send(request)
        _check(response.error_code, "the controller does not take this broker's heartbeat")
        return response.is_fenced

    async def _assign(self, placed: Sequence[Placed]) -> None:
        grouped: dict[bytes, dict[bytes, list[RequestPartitionData]]] = {}
        for one in placed:
            topics = grouped.setdefault(one.directory, {})
            topics.setdefault(one.topic_id, []).append(RequestPartitionData(partition_index=one.partition))
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self.epoch,
            directories=[
                RequestDirectoryData(
                    id=directory,
                    topics=[RequestTopicData(topic_id=topic_id, partitions=few) for topic_id, few in topics.items()],
                )
                for directory, topics in grouped.items()
            ],
        )
        # Errors of single partitions are ignored: a partition may have been deleted or moved meanwhile.
        response: AssignReplicasToDirsResponse = await self._channel.send(request)
        _check(response.error_code, "the controller does not note where logs are")

    def _place_of(self, topic: str, index: int, state: Partition, online: Sequence[bytes]) -> bytes | None:
        """The directory to report for a log; None if the cluster knows it. A log that cannot be used is reported as
        lost, unless its whole directory is lost, which the cluster knows already."""
        known = directory_of(state, self._broker_id)
        if (log := self._store.logs.get((topic, index))) is not None:
            place = directory_id(log.directory)
        elif (topic, index) in self._store.offline and known in (*online, NO_UUID, UNASSIGNED_DIRECTORY):
            place = LOST_DIRECTORY
        else:
            return None
        return place if place != known else None

    def _online(self) -> list[bytes]:
        return [directory_id(directory) for directory in self._store.directories if directory.failure is None]


def directory_id(directory: LogDirectory) -> bytes:
    meta = directory.meta
    assert meta is not None, "a directory that is in use was claimed"
    return meta.directory_id or NO_UUID


def _check(error_code: int, what: str) -> None:
    """Raises Refused if the controller answered with an error."""
    if error_code != Error.NONE:
        error = Error(error_code)
        raise Refused(error, f"{what}: {error.name}")
