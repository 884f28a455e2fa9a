"""Both servers, asked the same."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nodes.ottla_node import running_node
from peers.broker import running_broker

from odd.answers import Flat, compared, flattened
from odd.differences import reason_for, reason_for_all
from odd.generator import Case
from odd.peer import Peer
from odd.world import World, settle_transactions
from ottla.core.fetch_sessions import FINAL
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
    # On a machine that is busy a broker may be late with its heartbeats; it is alive all the same.
    "broker.session.timeout.ms": "120000",
    # Records have fixed timestamps, of years ago, and nothing may happen to them between two requests.
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "86400000",
}
_UNTIL_LANE = 3
_READS = (
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
)
_ENDS_TRANSACTIONS = (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID)


class Difference(NamedTuple):
    case: Case
    path: str
    kafka: str
    ottla: str
    reason: str | None
    """Why it may be; None where nobody has said so."""

    @property
    def changes_state(self) -> bool:
        """The servers may differ from now on in more than what they say."""
        return not self.path.endswith("message") and self.case.api not in _READS


class Pair:
    def __init__(self, kafka: Peer, ottla: Peer) -> None:
        self.kafka, self.ottla = kafka, ottla

    @property
    def both(self) -> tuple[Peer, Peer]:
        return self.kafka, self.ottla

    def build(self, world: World) -> None:
        for peer in self.both:
            world.build(peer)

    def ask(self, case: Case, world: World) -> list[Difference]:
        """How the answers differ."""
        kafka = self._asked(self.kafka, case, world)
        found = self._differences(case, kafka, self._asked(self.ottla, case, world))
        if case.api is ApiKey.FETCH and case.request.session_epoch == FINAL and not found:
            # Changes nothing, so it may be asked again, until it goes the short way (`broker/fastpath/fetch_lane`).
            for _ in range(_UNTIL_LANE):
                found = found or self._differences(case, kafka, self._asked(self.ottla, case, world))
        return found

    def ask_all(self, cases: Iterable[Case], world: World) -> list[Difference]:
        return [difference for case in cases for difference in self.ask(case, world)]

    def _asked(self, peer: Peer, case: Case, world: World) -> Flat:
        answer = peer.ask(case.request, case.version)
        if case.keep is not None:
            case.keep(peer, answer)
        flat = flattened(answer, peer, world.prefix)
        if case.changes_metadata:
            peer.settle_metadata()
        if case.api in _ENDS_TRANSACTIONS:
            settle_transactions(peer, [world.named(name) for name in ("idle", "open", "done", "fresh")])
        return flat

    def _differences(self, case: Case, kafka: Flat, ottla: Flat) -> list[Difference]:
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


def report(differences: Iterable[Difference]) -> str:
    """For a person: each request once, with all in which its answers differ."""
    lines: list[str] = []
    last: Case | None = None
    for one in differences:
        if one.case is not last:
            lines += ["", str(one.case)]
            last = one.case
        lines += [f"    {one.path or 'the answer'}", f"        kafka: {one.kafka}", f"        ottla: {one.ottla}"]
    return "\n".join(lines)
