"""Members of consumer groups, of the classic and of the consumer protocol, that speak for themselves.

Rule 1: a member that is told that the group does not know it begins anew, with nothing.
Rule 2: whoever gets no answer asks again; a request to join that had none is not repeated in the same name, because it
        may still arrive.
Rule 3: an assignment that comes when the session may be over is none.
"""

from typing import Any, Protocol

from ottla.client.core.errors import ClientError
from ottla.sim.checkers import Violation
from ottla.sim.node.ledger import Key
from ottla.sim.node.scene import ANSWER_MS_MAX, Line, Scene
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error

JOIN, LEAVE = 0, -1
_UNKNOWN = ""
_PROTOCOL = "sim"
HEARTBEAT_S = 0.7
_CLOCK_STEP_S = 1.0
"""A coordinator does not notice when the wall clock is set by less: sessions may be shorter by that."""
REBALANCE_TIMEOUT_MS = 5_000
NOT_READY = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
)
"""The coordinator is not there, or not for sure: ask again."""
STALE = (
    Error.ILLEGAL_GENERATION,
    Error.UNKNOWN_MEMBER_ID,
    Error.REBALANCE_IN_PROGRESS,
    Error.STALE_MEMBER_EPOCH,
    Error.FENCED_MEMBER_EPOCH,
    Error.FENCED_INSTANCE_ID,
)
"""What a member hears that is behind its group."""


class Member(Protocol):
    group: str
    member_id: str
    generation: int
    owned: dict[Key, None]
    changes: int
    """Counts assignments: positions from before the last one are worth nothing."""

    async def keep_up(self) -> None:
        """Join, or stay in the group, as is due. Raises ClientError."""

    def is_behind(self) -> None:
        """A commit said so."""

    async def leave(self) -> None: ...

    def begin_anew(self) -> None:
        """Forget everything, as a process that died and was started again."""


class ClassicMember:
    def __init__(self, scene: Scene, line: Line, group: str, topic: str, session_ms: int) -> None:
        self._scene = scene
        self._line = line
        self.group = group
        self._topic = topic
        self._session_ms = session_ms
        self.member_id = _UNKNOWN
        self.generation = -1
        self.owned: dict[Key, None] = {}
        self.changes = 0
        self._joined = False
        self._next_heartbeat = 0.0

    async def keep_up(self) -> None:
        if not self._joined:
            await self._join()
        elif self._scene.now >= self._next_heartbeat:
            await self._heartbeat()

    async def _join(self) -> None:
        self._lose()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=_PROTOCOL,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )
        answer = await self._line.call(request, timeout_ms=2 * REBALANCE_TIMEOUT_MS + ANSWER_MS_MAX)
        error = Error(answer.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is Error.NONE:
            self.member_id = answer.member_id
            await self._sync(answer)
        else:
            await self._put_off(error, "join")

    async def _sync(self, joined: Any) -> None:
        parts: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id:
            ids = sorted(member.member_id for member in joined.members)
            shares: dict[str, list[str]] = {one: [] for one in ids}
            for index in range(self._scene.topics[self._topic].partitions):
                shares[ids[index % len(ids)]].append(str(index))
            parts = [
                SyncGroupRequestAssignment(
                    member_id=one, assignment=f"{joined.generation_id} {one} {','.join(share)}".encode()
                )
                for one, share in shares.items()
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=_PROTOCOL,
            protocol_name=_PROTOCOL,
            assignments=parts,
        )
        answer = await self._line.call(request, timeout_ms=2 * REBALANCE_TIMEOUT_MS + ANSWER_MS_MAX)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            await self._put_off(error, "sync")
            return
        generation, member_id, share = bytes(answer.assignment).decode().split(" ")
        if (int(generation), member_id) != (joined.generation_id, self.member_id):
            raise Violation(
                "I11",
                f"{self.member_id} in generation {joined.generation_id} of {self.group} "
                f"was told what is for {member_id} in {generation}",
            )
        topic_id = self._scene.topics[self._topic].topic_id
        self.generation = joined.generation_id
        self.owned = {(topic_id, int(index)): None for index in share.split(",") if index}
        self.changes += 1
        self._joined = True
        self._next_heartbeat = self._scene.now + HEARTBEAT_S
        self._scene.groups.assigned(self.group, self.generation, self.member_id, list(self.owned), self._scene.now)

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        error = Error((await self._line.call(request)).error_code)
        self._next_heartbeat = self._scene.now + HEARTBEAT_S
        if error is Error.NONE:
            topic = self._scene.topics[self._topic]
            if len(self.owned) < topic.partitions and self._scene.random.random() < 0.05:
                self._joined = False  # Perhaps there are more partitions than were shared out.
        else:
            await self._put_off(error, "heartbeat")

    async def _put_off(self, error: Error, what: str) -> None:
        if error is Error.UNKNOWN_MEMBER_ID:
            self.begin_anew()
        elif error in STALE:
            self._joined = False
        elif error in NOT_READY:
            await self._scene.pause(0.5)
        else:
            raise Violation("I11", f"{what} of {self.member_id or 'a new member'} of {self.group}: {error.name}")

    def is_behind(self) -> None:
        """A commit said so."""
        self._joined = False

    async def leave(self) -> None:
        if self.member_id:
            request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
            self.begin_anew()
            await self._line.call(request)

    def begin_anew(self) -> None:
        self._lose()
        self.member_id = _UNKNOWN

    def _lose(self) -> None:
        self._joined = False
        self.owned = {}
        self.changes += 1


class ConsumerMember:
    def __init__(self, scene: Scene, line: Line, group: str, topic: str, session_ms: int) -> None:
        self._scene = scene
        self._line = line
        self.group = group
        self._topic = topic
        self._session_s = session_ms / 1000 - _CLOCK_STEP_S
        self._incarnations = 0
        self.member_id = ""
        self.generation = JOIN
        self.owned: dict[Key, None] = {}
        self.changes = 0
        self._must_tell = True
        """What is owned is part of the next heartbeat."""
        self._must_ask = True
        """Everything is part of it: an answer was missed, and with it perhaps an assignment."""
        self._next_heartbeat = 0.0
        self.begin_anew()

    async def keep_up(self) -> None:
        if self._scene.now >= self._next_heartbeat:
            try:
                await self._heartbeat()
            except ClientError:
                self._must_ask = True
                if self.generation == JOIN:
                    self.begin_anew()
                raise

    async def _heartbeat(self) -> None:
        joins, sent_at = self.generation == JOIN, self._scene.now
        asks = joins or self._must_ask
        topics = [TopicPartitions(topic_id=key[0], partitions=[key[1]]) for key in self.owned]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=60_000 if asks else -1,
            subscribed_topic_names=[self._topic] if asks else None,
            topic_partitions=topics if asks or self._must_tell else None,
        )
        self._must_tell = self._must_ask = False
        answer = await self._line.call(request)
        error = Error(answer.error_code)
        self._next_heartbeat = self._scene.now + HEARTBEAT_S
        if error is Error.NONE and self._scene.now < sent_at + self._session_s:
            self._take(answer, sent_at + self._session_s)
        elif error in (Error.NONE, *STALE):
            self.begin_anew()
        elif error in NOT_READY:
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
        told = {(one.topic_id, index): None for one in answer.assignment.topic_partitions for index in one.partitions}
        revoked = [key for key in self.owned if key not in told]
        added = [key for key in told if key not in self.owned]
        groups.released(self.group, self.member_id, revoked)
        groups.given(self.group, self.member_id, added, now, until)
        if revoked or added:
            self.owned = told
            self.changes += 1
            self._must_tell = True
            self._next_heartbeat = now

    def is_behind(self) -> None:
        """A commit said so: the next heartbeat tells what has changed."""
        self._next_heartbeat = 0.0

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=LEAVE)
        joined = self.generation != JOIN
        self.begin_anew()
        if joined:
            await self._line.call(request)

    def begin_anew(self) -> None:
        self._scene.groups.released(self.group, self.member_id, list(self.owned))
        self._incarnations += 1
        self.member_id = f"{self._line.name}-{self._incarnations}"
        self.generation = JOIN
        self.owned = {}
        self.changes += 1
        self._must_tell = True
