"""Transactions go with their directory: Kafka begins them, Ottla takes them over, Kafka takes them back.

Each is killed in turn with one transaction open and one whose end is decided, but not carried out: the records that
carried it out are cut off, as a machine loses them that loses its power.
"""

from pathlib import Path
from typing import Any, NamedTuple

from nodes.ottla_node import OttlaNode
from nodes.wire import Wire, batch_of, produce_request
from peers.broker import KafkaBroker, wait_until
from peers.client import Client

from ottla.core.runtime.shard import RecordTypes
from ottla.core.transactions.transaction import TransactionState
from ottla.kernel import read_header, read_records, scan
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import Error
from ottla.wire.records import transactions

TOPIC, GROUP = "shared", "group"
PLACES = [(TOPIC, 0), (TOPIC, 1)]
STATE, LATER = "__transaction_state-0", (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS)
PRODUCE, OFFSETS, END = 12, 5, 5
"""The first versions in which every end raises the epoch, and partitions need not be added."""


class Producer(NamedTuple):
    """A client that outlives the servers it speaks to."""

    transactional_id: str
    producer_id: int
    epoch: int


class Cluster:
    """Whoever serves the directory now."""

    def __init__(self, bootstrap: str) -> None:
        self.wire = Wire(bootstrap)
        self.client = Client(bootstrap)

    def find_coordinators(self) -> None:
        """Asking for them makes their topics."""
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
            wait_until(
                lambda request=request: self.wire.call(request, 4).coordinators[0].error_code == Error.NONE,
                "there is a coordinator",
            )

    def ask(self, request: Any, version: int) -> Any:
        """The answer, once the coordinator has read its log and has written markers that are due."""
        told: list[Any] = []

        def is_told() -> bool:
            told[:] = [self.wire.call(request, version)]
            return told[0].error_code not in (*LATER, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)

        wait_until(is_told, "the coordinator answers")
        return told[0]

    def take_over(self, transactional_id: str) -> Producer:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        told = self.ask(request, 4)
        assert told.error_code == Error.NONE
        return Producer(transactional_id, told.producer_id, told.producer_epoch)

    def write(self, who: Producer, value: str, partition: int, sequence: int = 0) -> Error:
        batch = batch_of(
            [value.encode()], producer_id=who.producer_id, epoch=who.epoch, sequence=sequence, transactional=True
        )
        request = produce_request(TOPIC, batch, partition=partition)
        request.transactional_id = who.transactional_id
        return Error(self.wire.call(request, PRODUCE).responses[0].partition_responses[0].error_code)

    def write_offset(self, who: Producer, offset: int) -> Error:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=who.transactional_id,
            group_id=GROUP,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        return Error(self.wire.call(request, OFFSETS).topics[0].partitions[0].error_code)

    def end(self, who: Producer, *, commit: bool) -> Error:
        request = EndTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        return Error(self.ask(request, END).error_code)

    def state(self, transactional_id: str) -> tuple[str, int, list[tuple[str, int]]]:
        """Its name, the producer's epoch, and the partitions of what is open."""
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (told,) = self.wire.call(asked, 0).transaction_states
        places = [(topic.topic, index) for topic in told.topics for index in topic.partitions]
        return told.transaction_state, told.producer_epoch, sorted(places)

    def completed(self, transactional_id: str, state: str) -> None:
        wait_until(lambda: self.state(transactional_id)[0] == state, f"{transactional_id} is {state}")

    def committed(self) -> list[list[str]]:
        read = self.client.read_all(PLACES, committed=True)
        return [[(one.value or b"").decode() for one in read[place]] for place in PLACES]

    def offset(self) -> int:
        """What the group has committed; -1: nothing."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
        topics = self.wire.call(request, 8).groups[0].topics
        return int(topics[0].partitions[0].committed_offset) if topics else -1


def leave_behind(here: Cluster, opened: str, decided: str, *, commit: bool) -> Producer:
    """A transaction that is open, of the producer that is returned, and one that has just ended."""
    left = here.take_over(opened)
    assert here.write(left, f"{opened} 1", 0) is Error.NONE
    wait_until(lambda: here.write_offset(left, 7) is Error.NONE, "the group has a coordinator")
    other = here.take_over(decided)
    assert here.write(other, decided, 1) is Error.NONE
    assert here.end(other, commit=commit) is Error.NONE
    here.completed(decided, "CompleteCommit" if commit else "CompleteAbort")
    here.wire.socket.close()
    return left


def lose_last_batch(directory: Path) -> bytes:
    """What a crash does to a log that was not synced; the batch that is the last one now."""
    segment = max(directory.glob("*.log"))
    data = segment.read_bytes()
    sizes = [header.size for header in scan(data).headers]
    end = sum(sizes[:-1])
    with segment.open("r+b") as file:
        file.truncate(end)
    return data[end - sizes[-2] : end]


def undo_completion(log_dir: Path, state: TransactionState) -> None:
    """The last transaction is decided, but its marker is not written, nor that it is over."""
    assert not read_header(lose_last_batch(log_dir / f"{TOPIC}-1")).is_control
    (last,) = read_records(lose_last_batch(log_dir / STATE))
    known = RecordTypes(transactions).decode(last.key, last.value)
    assert known is not None
    assert known.value.transaction_status == state


def test_transactions_go_back_and_forth(kafka_jars: Path, tmp_path: Path) -> None:
    """What is open stays its producer's, what is decided is carried out; whoever reads the log goes on from there."""
    kafka = KafkaBroker(kafka_jars, tmp_path)
    kafka.start()
    try:
        here = Cluster(kafka.bootstrap)
        here.client.create_topics({TOPIC: {}}, {TOPIC: 2})
        here.find_coordinators()
        first = leave_behind(here, "open", "decided", commit=True)
    finally:
        kafka.kill()
    undo_completion(kafka.log_dir, TransactionState.PREPARE_COMMIT)

    ottla = OttlaNode(tmp_path, {"node.id": "1"})
    ottla.start()
    try:
        here = Cluster(ottla.bootstrap)
        here.completed("decided", "CompleteCommit")
        assert here.committed() == [[], ["decided"]], "without anybody asking"
        assert here.state("open") == ("Ongoing", first.epoch, [("__consumer_offsets", 0), (TOPIC, 0)])
        assert here.offset() == -1
        assert here.write(first, "open 2", 0, sequence=1) is Error.NONE
        assert here.end(first, commit=True) is Error.NONE
        here.completed("open", "CompleteCommit")
        assert here.committed() == [["open 1", "open 2"], ["decided"]]
        assert here.offset() == 7
        second = leave_behind(here, "open here", "decided here", commit=False)
    finally:
        ottla.kill()
    undo_completion(ottla.log_dir, TransactionState.PREPARE_ABORT)

    kafka.start()
    try:
        here = Cluster(kafka.bootstrap)
        here.completed("decided here", "CompleteAbort")
        assert here.state("open here") == ("Ongoing", second.epoch, [("__consumer_offsets", 0), (TOPIC, 0)])
        assert here.end(first, commit=True) is Error.NONE, "told again how it ended in Ottla"
        heir = here.take_over("open here")
        assert here.end(second, commit=True) is Error.PRODUCER_FENCED
        assert here.write(heir, "heir", 0) is Error.NONE
        assert here.end(heir, commit=True) is Error.NONE
        here.completed("open here", "CompleteCommit")
        assert here.committed() == [["open 1", "open 2", "heir"], ["decided"]]
        assert here.offset() == 7
    finally:
        kafka.stop()
