"""As much of a node as the lanes of a connection need: one topic of one partition, which can go away."""

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace

from ottla.broker.partition import Partition
from ottla.config import Config
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.wire.errors import Error, Refused

TOPIC, TOPIC_ID, LEADER_EPOCH = "t", b"\x01" * 16, 3


class _Image:
    """Knows the one partition, and no broker by its address."""

    brokers: Mapping[int, object] = {}

    def partition(self, topic: str, index: int) -> SimpleNamespace | None:
        return SimpleNamespace(leader=1, leader_epoch=LEADER_EPOCH) if (topic, index) == (TOPIC, 0) else None


class LaneHome:
    metadata = SimpleNamespace(image=_Image())

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock, Random(1))
        self.disk.make_directory("/data")
        directory = LogDirectory(self.disk, "/data")
        log = PartitionLog(directory, TOPIC, 0, Config.of(settings), self.clock, Random(1))
        self.led = Partition(log, TOPIC_ID, LEADER_EPOCH, isr=(1,))
        self.led.lead(LEADER_EPOCH)
        self.short = 0
        """How many requests took the short way."""

    @property
    def is_there(self) -> bool:
        return not self.led.retired

    @is_there.setter
    def is_there(self, is_there: bool) -> None:
        self.led.retired = not is_there

    def topic_name(self, topic_id: bytes) -> str | None:
        return TOPIC if self.is_there and topic_id == TOPIC_ID else None

    def partition(self, topic: str | None, index: int, _topic_id: bytes = b"") -> Partition:
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, "no topic has this id")
        if (topic, index, self.is_there) != (TOPIC, 0, True):
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{index}")
        return self.led
