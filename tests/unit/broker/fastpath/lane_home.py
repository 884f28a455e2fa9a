"""As much of a node as the lanes of a connection need: topics with partitions, which can go away."""

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace

from ottla.broker.partitions.partition import Partition
from ottla.config import Config
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.errors import Error, Refused

TOPIC, TOPIC_ID, LEADER_EPOCH = "t", b"\x01" * 16, 3
OTHER, OTHER_ID = "a topic of 16 by", b"a topic of 16 by"
"""Its name has the bytes of its id."""


class _Image:
    """Knows the partitions, and no broker by its address."""

    brokers: Mapping[int, object] = {}

    def __init__(self, led: Mapping[tuple[str, int], Partition]) -> None:
        self._led = led

    def partition(self, topic: str, index: int) -> SimpleNamespace | None:
        return SimpleNamespace(leader=1, leader_epoch=LEADER_EPOCH) if (topic, index) in self._led else None


class LaneHome:
    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        partitions: int = 1,
        other_partitions: int = 0,
        other_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock, Random(1))
        self.disk.make_directory("/data")
        self._directory = LogDirectory(self.disk, "/data")
        self.partitions: dict[tuple[str, int], Partition] = {}
        for index in range(partitions):
            self._lead(TOPIC, TOPIC_ID, index, settings)
        for index in range(other_partitions):
            self._lead(OTHER, OTHER_ID, index, other_settings or {})
        self.led = self.partitions[TOPIC, 0]
        self.metadata = SimpleNamespace(image=_Image(self.partitions))
        self.short = 0
        """How many requests took the short way."""

    def _lead(self, topic: str, topic_id: bytes, index: int, settings: Mapping[str, str]) -> None:
        log = PartitionLog(self._directory, topic, index, Config.of(settings), self.clock, Random(1))
        partition = self.partitions[topic, index] = Partition(log, topic_id, isr=(1,), replicas=(1, 2))
        partition.lead(LEADER_EPOCH)

    @property
    def is_there(self) -> bool:
        """Whether `TOPIC` is."""
        return self.led.is_led

    @is_there.setter
    def is_there(self, is_there: bool) -> None:
        for (topic, _), partition in self.partitions.items():
            if topic == TOPIC and is_there:
                partition.lead(LEADER_EPOCH)
            elif topic == TOPIC:
                partition.follow()

    def topic_name(self, topic_id: bytes) -> str | None:
        for (topic, _), partition in self.partitions.items():
            if partition.topic_id == topic_id and partition.is_led:
                return topic
        return None

    def partition(self, topic: str | None, index: int, _topic_id: bytes = b"") -> Partition:
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, "no topic has this id")
        partition = self.partitions.get((topic, index))
        if partition is None or not partition.is_led:
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{index}")
        return partition
