"""Consumers in groups: those that only commit their offsets, and those that transform within transactions.

Rule 1: a worker begins at its group's offset, and reads on without a gap until its assignment changes.
Rule 2: the output and the offsets are committed in one transaction; after a failure it begins again at the group's
        offset.
Rule 3: when writing has ended, the group reads to the end; then its members are done.
"""

from collections.abc import Callable
from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.classic_member import SimClassicMember
from ottla.sim.node.committed import with_verdict
from ottla.sim.node.consumer_member import ConsumerMember
from ottla.sim.node.group_offsets import COMMIT_AGAIN, INPUT, Hindered, commit_offsets, fetch_offsets
from ottla.sim.node.ledger import Key, Sent, name_of
from ottla.sim.node.members import STALE, Member
from ottla.sim.node.readers import batches_in
from ottla.sim.node.scene import MIXED, OF_GROUP, OF_TRANSACTION, Line, Scene
from ottla.sim.node.swarm import STATIC
from ottla.sim.node.transactional import TIMEOUTS_MS, ProducerSession, new_writes
from ottla.sim.played import Violation
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.errors import Error

OUTPUT = "output"
SESSION_MS = 3_000
_BATCH_RECORDS_MAX = 5
"""A batch must fit into the smallest segment."""
_FETCH_AGAIN = (Error.KAFKA_STORAGE_ERROR, Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION)


_PROTOCOLS: dict[str, Callable[[Scene, Line, str, str, int, str | None], Member]] = {
    "classic": SimClassicMember,
    "consumer": ConsumerMember,
}


def member_of(scene: Scene, line: Line, group: str, instance: str | None) -> Member:
    """A member of this run's protocol; of either if both are used."""
    protocol = scene.random.choice(list(_PROTOCOLS)) if scene.protocol == MIXED else scene.protocol
    return _PROTOCOLS[protocol](scene, line, group, INPUT, SESSION_MS, instance)


class Taken:
    """The records read from one partition, and the next position."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.records: list[tuple[int, Sent]] = []
        self.at_end = False


class GroupWorker:
    """A member of a group that reads `INPUT`; subclasses process the records."""

    commits_in_transactions = False

    def __init__(self, scene: Scene, name: str) -> None:
        random = scene.random
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)
        kind = "transformers" if self.commits_in_transactions else "consumers"
        self.group = f"{scene.protocol}-{kind}"
        # Some share an instance id.
        instance = f"{kind}-{random.randrange(3)}" if STATIC in scene.hazards and random.random() < 0.7 else None
        self._member = member_of(scene, self._line, self.group, instance)
        self._positions: dict[Key, int] = {}
        self._changes = 0
        self._fails = random.choice((0.0, 0.05, 0.15))
        self._more_ways = ("restart",) * (STATIC in scene.hazards) + ("migrate",) * (scene.protocol == MIXED)

    async def run(self) -> None:
        scene = self._scene
        scene.workers[self.group] = None
        await self._line.find_coordinator(self.group, OF_GROUP)
        while not self._is_done():
            try:
                await self._member.keep_up()
                await self._work()
                if not scene.ending:
                    await self._stumble()
            except (ClientError, Hindered) as error:
                scene.note(f"{self._name}: {error}")
                self._positions.clear()
                await scene.pause(0.5)
            await scene.pause(0.2)
        await self._bow_out()
        self._line.hang_up()

    def _is_done(self) -> bool:
        scene = self._scene
        index = range(scene.topics[INPUT].partitions)
        finished = scene.groups.group(self.group).finished
        return scene.closing and all((scene.topics[INPUT].topic_id, number) in finished for number in index)

    async def _bow_out(self) -> None:
        try:
            await self._member.leave()
        except ClientError as error:
            self._scene.note(f"{self._name} left without a word: {error}")

    async def _stumble(self) -> None:
        """Leave and return, die and return, or pause for longer than a session."""
        random = self._scene.random
        if random.random() < self._fails:
            match random.choice(("leave", "die", "pause", *self._more_ways)):
                case "leave":
                    await self._member.leave()
                case "restart":
                    await self._member.restart()
                case "migrate":
                    await self._migrate()
                case "die":
                    self._die()
                case "pause":
                    await self._scene.pause(2.5 * SESSION_MS / 1000)

    def _die(self) -> None:
        self._line.hang_up()
        self._member.begin_anew()

    async def _migrate(self) -> None:
        """Return as a member of either protocol, as an application with a changed configuration."""
        old = self._member
        self._member, self._changes = member_of(self._scene, self._line, self.group, old.instance), -1
        await old.leave()

    async def _work(self) -> None:
        if self._changes != self._member.changes:
            self._changes = self._member.changes
            self._positions.clear()
        if not self._member.owned:
            return
        if not self._positions:
            self._positions = await fetch_offsets(self._line, self.group, list(self._member.owned))
        taken = await self._fetch()
        if self._scene.random.random() < self._fails:
            await self._scene.pause(2 * SESSION_MS / 1000)  # The partition may be another member's by then.
        if any(one.records for one in taken.values()):
            await self._finish(taken)
        if self._changes != self._member.changes:
            return
        self._positions = {key: one.position for key, one in taken.items()}
        if self._scene.closing:
            finished = self._scene.groups.group(self.group).finished
            finished.update({key: None for key, one in taken.items() if one.at_end and not one.records})

    async def _fetch(self) -> dict[Key, Taken]:
        topics = [
            FetchTopic(
                topic_id=key[0],
                partitions=[FetchPartition(partition=key[1], fetch_offset=position, partition_max_bytes=2_000)],
            )
            for key, position in self._positions.items()
        ]
        request = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=4_000, isolation_level=1, topics=topics)
        answer = await self._line.call(request)
        taken = {key: Taken(position) for key, position in self._positions.items()}
        for topic in answer.responses:
            for data in topic.partitions:
                self._take((topic.topic_id, data.partition_index), taken, data)
        return taken

    def _take(self, key: Key, taken: dict[Key, Taken], data: Any) -> None:
        error, one = Error(data.error_code), taken[key]
        if error in _FETCH_AGAIN:
            return
        if error is Error.OFFSET_OUT_OF_RANGE and self._scene.has_lost:
            one.position = 0  # The group's offset is beyond the end of its input.
            return
        if error is not Error.NONE:
            raise Violation("I8", f"a fetch of {name_of(key)} at {one.position} was refused: {error.name}")
        asked, life = one.position, self._scene.ledger.lives
        for batch, is_committed in with_verdict(batches_in(key, data), data.aborted_transactions or ()):
            if batch.base_offset > one.position or batch.last_offset < one.position:
                raise Violation(
                    "I8", f"{name_of(key)}: at {one.position}, got {batch.base_offset} to {batch.last_offset}"
                )
            one.position = batch.last_offset + 1
            for record in batch.records if is_committed else ():
                sent = self._scene.ledger.read(key, record, life=life)
                if sent.transaction is not None:
                    sent.transaction.seen(f"record {sent.id.decode()}")
                if record.offset >= asked:
                    one.records.append((record.offset, sent))
        one.at_end = one.position == data.last_stable_offset == data.high_watermark

    async def _finish(self, taken: dict[Key, Taken]) -> None:
        """Process the records, and commit the group's offsets."""
        raise NotImplementedError


class CommittingWorker(GroupWorker):
    async def _finish(self, taken: dict[Key, Taken]) -> None:
        member, scene = self._member, self._scene
        commits = [
            scene.groups.committing(self.group, member.member_id, key, one.position, scene.now)
            for key, one in taken.items()
            if one.records
        ]
        offsets = {commit.where: (commit.offset, commit.id) for commit in commits}
        sent_at = scene.now
        errors = await commit_offsets(self._line, self.group, member, offsets)
        for commit in commits:
            error = errors[commit.where]
            if error is Error.NONE:
                scene.groups.granted(commit, scene.now)
            elif error in STALE or (
                error is Error.GROUP_ID_NOT_FOUND and scene.groups.may_be_forgotten(self.group, sent_at)
            ):
                commit.is_refused = True
                member.is_behind()
            elif error not in COMMIT_AGAIN:
                raise Violation("I11", f"{commit.id} of {self.group} was refused: {error.name}")
        if any(errors.values()):
            raise Hindered(next(error.name for error in errors.values() if error))


class Transformer(GroupWorker):
    """Writes one record for every record read: exactly one, whatever happens (I12)."""

    commits_in_transactions = True

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        version, timeout_ms = scene.random.choice((1, 2, 2)), scene.random.choice(TIMEOUTS_MS)
        self._session = ProducerSession(scene, self._line, name, version, timeout_ms)

    async def run(self) -> None:
        await self._line.find_coordinator(self._name, OF_TRANSACTION)
        await super().run()

    def _die(self) -> None:
        super()._die()
        self._session.crash()

    async def _finish(self, taken: dict[Key, Taken]) -> None:
        transaction = await self._session.begin()
        try:
            await self._write(taken)
            commits = [
                self._scene.groups.committing(
                    self.group, self._member.member_id, key, one.position, self._scene.now, transaction
                )
                for key, one in taken.items()
                if one.records
            ]
            await self._session.send_offsets(self._member, INPUT, commits)
            if self._scene.random.random() < self._fails:
                await self._scene.pause(2 * SESSION_MS / 1000)  # The next owner of the partitions has to wait for it.
            is_committed = await self._session.end(commit=self._scene.random.random() > self._fails)
        except (Hindered, ClientError):
            if self._session.transaction is not None:
                await self._session.end(commit=False)
            raise
        if not is_committed:
            raise Hindered("not committed")

    async def _write(self, taken: dict[Key, Taken]) -> None:
        scene, output = self._scene, self._scene.topics[OUTPUT]
        read = [(key, offset) for key, one in taken.items() for offset, _ in one.records]
        for first in range(0, len(read), _BATCH_RECORDS_MAX):
            sources = read[first : first + _BATCH_RECORDS_MAX]
            where = (output.topic_id, scene.random.randrange(output.partitions))
            written = new_writes(scene, where, self._name, self._session.transaction, len(sources))
            for sent, source in zip(written, sources, strict=True):
                scene.sources[sent.id] = self.group, *source
            await self._session.send(where, written)
