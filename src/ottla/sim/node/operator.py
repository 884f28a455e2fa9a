"""An operator that aborts hanging transactions, as `ottla txn abort` does.

Without syncs, a power loss may remove state from a coordinator's log that a partition still has: a transaction is open
there that is never ended, because the coordinator does not know it, or has an earlier epoch whose marker is refused.
The operator ends those, and only those: a transaction that the coordinator has open must end by itself (I24).
"""

from typing import NamedTuple

from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.rpc.errors import ClientError
from ottla.sim.node.scene import Line, Scene
from ottla.sim.node.transactional import TIMEOUT_MS_MAX
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

_ONGOING = "Ongoing"
_OPEN_S_MAX = TIMEOUT_MS_MAX / 1000 + 10


class _Open(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int


class Operator:
    def __init__(self, scene: Scene, offsets_partitions: int) -> None:
        self._scene = scene
        self._line = Line(scene, "operator")
        self._offsets_partitions = offsets_partitions
        self._since: dict[_Open, float] = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._scene.pause(6)
            try:
                await self._look()
            except ClientError as error:
                self._scene.note(f"operator: {error}")

    async def _look(self) -> None:
        found = await self._find_open()
        self._since = {one: self._since.get(one, self._scene.now) for one in found}
        for one, since in self._since.items():
            if self._scene.now - since > _OPEN_S_MAX and not await self._will_end(one):
                await self._abort(one)

    async def _find_open(self) -> list[_Open]:
        topics = {name: topic.partitions for name, topic in self._scene.topics.items()}
        wanted = [
            TopicRequest(name=name, partition_indexes=list(range(partitions)))
            for name, partitions in (topics | {CONSUMER_OFFSETS: self._offsets_partitions}).items()
        ]
        answer = await self._line.call(DescribeProducersRequest(topics=wanted))
        return [
            _Open(
                topic.name,
                partition.partition_index,
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for topic in answer.topics
            for partition in topic.partitions
            for one in partition.active_producers
            if one.current_txn_start_offset >= 0
        ]

    async def _will_end(self, one: _Open) -> bool:
        """Whether the coordinator has an open transaction of this producer that includes the partition."""
        listed = await self._line.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[one.producer_id]))
        ids = [known.transactional_id for known in listed.transaction_states]
        if listed.error_code or not ids:
            return bool(listed.error_code)
        described = await self._line.call(DescribeTransactionsRequest(transactional_ids=ids))
        return any(
            topic.topic == one.topic and one.partition in topic.partitions
            for known in described.transaction_states
            if known.producer_id == one.producer_id and known.transaction_state == _ONGOING
            for topic in known.topics
        )

    async def _abort(self, one: _Open) -> None:
        self._scene.note(f"operator: ends {one}")
        marker = WritableTxnMarker(
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=one.topic, partition_indexes=[one.partition])],
            coordinator_epoch=one.coordinator_epoch,
        )
        await self._line.call(WriteTxnMarkersRequest(markers=[marker]))
