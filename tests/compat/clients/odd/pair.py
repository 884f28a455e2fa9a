"""Both servers, asked the same."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nodes.ottla_node import running_node
from peers.broker import running_broker

from odd.answers import compared, flattened
from odd.differences import reason_for, reason_for_all
from odd.generator import Case
from odd.peer import Peer
from odd.world import World, settle_transactions
from ottla.wire.api import ApiKey

SETTINGS: Mapping[str, str] = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.coordinator.append.linger.ms": "0",
    # Records have fixed timestamps, of years ago, and nothing may happen to them between two requests.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "86400000",
}
_ENDS_TRANSACTIONS = (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID)


class Difference(NamedTuple):
    case: Case
    path: str
    kafka: str
    ottla: str
    reason: str | None
    """Why it may be; None where nobody has said so."""

    def __str__(self) -> str:
        what = f"{self.case.api.name} v{self.case.version} {self.path}"
        return f"{what}\n    kafka: {self.kafka}\n    ottla: {self.ottla}"


class Pair:
    def __init__(self, kafka: Peer, ottla: Peer) -> None:
        self.kafka, self.ottla = kafka, ottla

    def build(self, world: World) -> None:
        for peer in (self.kafka, self.ottla):
            world.build(peer)

    def ask(self, case: Case, world: World) -> list[Difference]:
        """How the answers differ."""
        flat = []
        for peer in (self.kafka, self.ottla):
            flat.append(flattened(peer.ask(case.request, case.version), peer, world.prefix))
            if case.changes_metadata:
                peer.settle_metadata()
            if case.api in _ENDS_TRANSACTIONS:
                settle_transactions(peer, [world.named(name) for name in ("idle", "open", "done", "fresh")])
        kafka, ottla = flat
        unforeseen = reason_for_all(kafka, ottla)
        return [
            Difference(case, path, theirs, ours, unforeseen or reason_for(case, path, theirs, ours))
            for path, theirs, ours in compared(kafka, ottla)
        ]


@contextmanager
def running_pair(jars: Path, home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    given = {**SETTINGS, **(settings or {})}
    with running_broker(jars, home / "kafka", given) as broker, running_node(home / "ottla", given) as node:
        kafka, ottla = Peer("kafka", broker.bootstrap), Peer("ottla", node.bootstrap)
        try:
            yield Pair(kafka, ottla)
        finally:
            kafka.close()
            ottla.close()


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    return [one for one in differences if one.reason is None]
