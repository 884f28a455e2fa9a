"""A member of the consumer protocol (KIP-848): its heartbeats report what it owns, the responses its assignment."""

from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.ledger import Key
from ottla.sim.node.members import CLOCK_STEP_S, HEARTBEAT_S, NOT_READY, STALE
from ottla.sim.node.scene import Line, Scene
from ottla.sim.played import Violation
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.errors import Error

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2


class ConsumerMember:
    def __init__(
        self, scene: Scene, line: Line, group: str, topic: str, session_ms: int, instance: str | None = None
    ) -> None:
        self._scene = scene
        self._line = line
        self.group = group
        self._topic = topic
        self._session_s = session_ms / 1000 - CLOCK_STEP_S
        self.instance = instance
        self._incarnations = 0
        self.member_id = ""
        self.generation = JOIN
        self.owned: dict[Key, None] = {}
        self.changes = 0
        self.heard_at = -1.0
        self.is_sure = True
        """Whether no join request without a response is in flight."""
        self._must_tell = True
        """The next heartbeat contains the owned partitions."""
        self._must_ask = True
        """The next heartbeat is complete: a response was missed, and with it possibly an assignment."""
        self._next_heartbeat = 0.0
        self.begin_anew()

    async def keep_up(self) -> None:
        if self._scene.now >= self._next_heartbeat:
            try:
                await self._heartbeat()
            except ClientError:
                self._must_ask = True
                if self.generation == JOIN:
                    self.is_sure = False
                    self.begin_anew()
                raise

    async def _heartbeat(self) -> None:
        joins, sent_at = self.generation == JOIN, self._scene.now
        asks = joins or self._must_ask
        topics = [TopicPartitions(topic_id=key[0], partitions=[key[1]]) for key in self.owned]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            instance_id=self.instance,
            member_epoch=self.generation,
            rebalance_timeout_ms=60_000 if asks else -1,
            subscribed_topic_names=[self._topic] if asks else None,
            topic_partitions=topics if asks or self._must_tell else None,
        )
        self._must_tell = self._must_ask = False
        if joins and self.instance is not None:
            self._scene.groups.coming(self.group, self.instance, self._line.name, is_classic=False)
        answer = await self._line.call(request)
        error = Error(answer.error_code)
        self._next_heartbeat = self._scene.now + HEARTBEAT_S
        if error is Error.NONE and self._scene.now < sent_at + self._session_s:
            self.heard_at = sent_at
            self._take(answer, sent_at + self._session_s)
        elif error is Error.FENCED_INSTANCE_ID and self.instance:
            self.instance = self.member_id  # A unique instance id.
            self.begin_anew()
        elif error in (Error.NONE, Error.GROUP_ID_NOT_FOUND, *STALE):  # A group without members ends, too.
            self.begin_anew()
        elif error in NOT_READY or (error is Error.UNRELEASED_INSTANCE_ID and joins and self.instance):
            self._must_ask = True
            await self._scene.pause(0.5)
        else:
            raise Violation("I11", f"a heartbeat of {self.member_id} of {self.group}: {error.name}")

    def _take(self, answer: Any, until: float) -> None:
        groups, now = self._scene.groups, self._scene.now
        self.generation = answer.member_epoch
        groups.extended(self.group, self.member_id, until)
        if answer.assignment is None:
            return
        target = {(one.topic_id, index): None for one in answer.assignment.topic_partitions for index in one.partitions}
        revoked = [key for key in self.owned if key not in target]
        added = [key for key in target if key not in self.owned]
        groups.released(self.group, self.member_id, revoked)
        groups.given(self.group, self.member_id, added, now, until, instance=self.instance)
        if revoked or added:
            self.owned = target
            self.changes += 1
            self._must_tell = True
            self._next_heartbeat = now

    def is_behind(self) -> None:
        """Send a heartbeat at once, because a commit was refused as stale: the response has the new epoch."""
        self._next_heartbeat = 0.0

    async def leave(self) -> None:
        await self._go(LEAVE)

    async def restart(self) -> None:
        """Restart the member. A static member leaves only temporarily, and keeps its partitions for its session."""
        if self.instance is None:
            await self.leave()
            return
        was, owned, sent_at = self.member_id, list(self.owned), self._scene.now
        if await self._go(LEAVE_FOR_NOW):
            until = sent_at + self._session_s
            self._scene.groups.away(self.group, was, owned, until, instance=self.instance)

    async def _go(self, epoch: int) -> bool:
        """Leave with a heartbeat of this epoch; returns whether the coordinator responded. Raises ClientError."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, instance_id=self.instance, member_epoch=epoch
        )
        joined = self.generation != JOIN
        self.begin_anew()
        return joined and Error((await self._line.call(request)).error_code) is Error.NONE

    def begin_anew(self) -> None:
        self._scene.groups.released(self.group, self.member_id, list(self.owned))
        self._incarnations += 1
        self.member_id = f"{self._line.name}-{self._incarnations}"
        self.generation = JOIN
        self.owned = {}
        self.changes += 1
        self._must_tell = True
