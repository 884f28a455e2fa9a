"""A broker in memory that coordinates one transactional id, as little as a producer needs."""

from client_fakes import HOST, PORT, Answer, FakeBroker, Handler

from ottla.kernel import read_records
from ottla.wire.api import ApiKey
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.api.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error
from ottla.wire.frame import Request

PRODUCER_ID = 500


class Coordinating(FakeBroker):
    """`ends` are the decisions it took; `version` is that of the cluster's transactions."""

    def __init__(self, version: int) -> None:
        super().__init__({"t": 2})
        self.version = version
        self.epoch = -1
        self.ends: list[bool] = []
        self.apis |= {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
            ApiKey.END_TXN: self.end_txn,
        }

    def api_versions(self, request: Request) -> Answer:
        answer = super().api_versions(request)
        assert isinstance(answer, ApiVersionsResponse)
        answer.finalized_features_epoch = 1
        answer.finalized_features = [
            FinalizedFeatureKey(
                name="transaction.version", max_version_level=self.version, min_version_level=self.version
            )
        ]
        return answer

    def find_coordinator(self, request: Request) -> Answer:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host=HOST, port=PORT, error_code=0, error_message=None)
                for key in request.body.coordinator_keys
            ]
        )

    def init_producer_id(self, _: Request) -> Answer:
        self.epoch += 1
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=PRODUCER_ID, producer_epoch=self.epoch
        )

    def add_partitions(self, request: Request, error: Error = Error.NONE) -> Answer:
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                        for index in topic.partitions
                    ],
                )
                for topic in request.body.v3_and_below_topics
            ],
        )

    def add_offsets(self, _: Request) -> Answer:
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)

    def commit_offsets(self, request: Request, error: Error = Error.NONE) -> Answer:
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                        for one in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ],
        )

    def end_txn(self, request: Request) -> Answer:
        """Sent again, it is told again: in version 2 by its epoch, before by its being the same."""
        asked = request.body.producer_epoch
        if self.version < 2 or asked == self.epoch:
            self.ends.append(request.body.committed)
            self.epoch += self.version >= 2
        return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    # What tests look at.

    def epochs(self) -> list[int]:
        """Of the stored batches."""
        return [stored.producer_epoch for log in self.logs.values() for stored in log]

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [one.value for batch in self.logs.get(("t", partition), []) for one in read_records(batch.data)]


def end_error(error: Error) -> Handler:
    return lambda _: EndTxnResponse(throttle_time_ms=0, error_code=error, producer_id=-1, producer_epoch=-1)
