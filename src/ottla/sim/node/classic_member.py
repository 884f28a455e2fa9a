"""A member of the classic protocol. Its leader assigns partitions in one of two formats.

If all members use this protocol, an assignment names its generation and member, so that a mix-up is detected. If both
protocols meet (KIP-848), it has the format of Kafka's consumers, which coordinators understand.
"""

from typing import Any, Protocol

from ottla.rpc.errors import ClientError
from ottla.sim.node.ledger import Key
from ottla.sim.node.members import CLOCK_STEP_S, HEARTBEAT_S, NOT_READY, STALE
from ottla.sim.node.scene import ANSWER_MS_MAX, MIXED, Line, Scene
from ottla.sim.played import Violation
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.codec import decode_from, encode
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from ottla.wire.errors import Error

_UNKNOWN = ""
REBALANCE_TIMEOUT_MS = 5_000
_PATIENCE_MS = 2 * REBALANCE_TIMEOUT_MS + ANSWER_MS_MAX
_EMBEDDED_VERSION = 1
_VERSION_BYTES = 2


class _Tongue(Protocol):
    protocol_type: str
    protocol_name: str

    def subscription(self) -> bytes: ...

    def assignment(self, generation: int, name: str, share: list[int]) -> bytes: ...

    def share(self, assignment: bytes, generation: int, name: str) -> list[int]:
        """The assigned partitions. Raises Violation if the assignment is for another member."""


class _Own:
    protocol_type = protocol_name = "sim"

    def subscription(self) -> bytes:
        return b""

    def assignment(self, generation: int, name: str, share: list[int]) -> bytes:
        return f"{generation} {name} {','.join(map(str, share))}".encode()

    def share(self, assignment: bytes, generation: int, name: str) -> list[int]:
        assigned_generation, assigned_name, share = assignment.decode().split(" ")
        if (int(assigned_generation), assigned_name) != (generation, name):
            raise Violation(
                "I11",
                f"{name} in generation {generation} was told what is for {assigned_name} in {assigned_generation}",
            )
        return [int(index) for index in share.split(",") if index]


class _OfConsumers:
    protocol_type, protocol_name = "consumer", "range"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def subscription(self) -> bytes:
        message = ConsumerProtocolSubscription(topics=[self._topic], user_data=None)
        return self._with_version(encode(message, _EMBEDDED_VERSION))

    def assignment(self, _generation: int, _name: str, share: list[int]) -> bytes:
        topics = [TopicPartition(topic=self._topic, partitions=share)] if share else []
        message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
        return self._with_version(encode(message, _EMBEDDED_VERSION))

    def share(self, assignment: bytes, _generation: int, name: str) -> list[int]:
        if not assignment:
            return []
        version = int.from_bytes(assignment[:_VERSION_BYTES], "big")
        message, _ = decode_from(ConsumerProtocolAssignment, version, assignment, _VERSION_BYTES)
        if any(one.topic != self._topic for one in message.assigned_partitions):
            raise Violation("I11", f"{name} was given {message.assigned_partitions} and subscribed to {self._topic}")
        return [index for one in message.assigned_partitions for index in one.partitions]

    @staticmethod
    def _with_version(data: bytes) -> bytes:
        return _EMBEDDED_VERSION.to_bytes(_VERSION_BYTES, "big") + data


class SimClassicMember:
    def __init__(
        self, scene: Scene, line: Line, group: str, topic: str, session_ms: int, instance: str | None = None
    ) -> None:
        self._scene = scene
        self._line = line
        self.group = group
        self._topic = topic
        self._session_ms = session_ms
        self._is_mixed = scene.protocol == MIXED
        self._tongue: _Tongue = _OfConsumers(topic) if self._is_mixed else _Own()
        self.instance = instance
        self._fenced = 0
        self.member_id = _UNKNOWN
        self.generation = -1
        self.owned: dict[Key, None] = {}
        self.changes = 0
        self.heard_at = -1.0
        self.is_sure = True
        """Whether no join request without a response is in flight."""
        self._joined = False
        self._next_heartbeat = 0.0

    @property
    def name(self) -> str:
        return self.instance or self.member_id

    async def keep_up(self) -> None:
        if not self._joined:
            try:
                await self._join()
            except ClientError:
                self.is_sure = False
                raise
        elif self._scene.now >= self._next_heartbeat:
            await self._heartbeat()

    async def _join(self) -> None:
        self._lose()
        if self.instance is not None and self.member_id == _UNKNOWN:
            self._scene.groups.coming(self.group, self.instance, self._line.name, is_classic=True)
        asked_at = self._scene.now
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self._tongue.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self._tongue.protocol_name, metadata=self._tongue.subscription())],
        )
        answer = await self._line.call(request, timeout_ms=_PATIENCE_MS)
        error = Error(answer.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is Error.NONE:
            self.member_id = answer.member_id
            await self._sync(answer, asked_at)
        else:
            await self._put_off(error, "join")

    async def _sync(self, joined: Any, asked_at: float) -> None:
        sent_at = self._scene.now
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self._tongue.protocol_type,
            protocol_name=self._tongue.protocol_name,
            assignments=[] if joined.skip_assignment else self._shared_out(joined),
        )
        answer = await self._line.call(request, timeout_ms=_PATIENCE_MS)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            await self._put_off(error, "sync")
            return
        share = self._tongue.share(bytes(answer.assignment), joined.generation_id, self.name)
        topic_id = self._scene.topics[self._topic].topic_id
        self.generation = joined.generation_id
        self.owned = {(topic_id, index): None for index in share}
        self.changes += 1
        self._joined = True
        self.heard_at, self._next_heartbeat = sent_at, self._scene.now + HEARTBEAT_S
        self._enter(asked_at, sent_at)

    def _enter(self, asked_at: float, sent_at: float) -> None:
        groups, now, mine = self._scene.groups, self._scene.now, list(self.owned)
        if not self._is_mixed:
            groups.assigned(
                self.group, self.generation, self.member_id, mine, now, instance=self.instance, asked_at=asked_at
            )
        elif now < self._until(sent_at):
            groups.given(self.group, self.member_id, mine, now, self._until(sent_at), instance=self.instance)
        else:
            self._joined = False
            self._lose()

    def _until(self, sent_at: float) -> float:
        """The earliest time at which a session may end that a request sent at `sent_at` has renewed."""
        return sent_at + self._session_ms / 1000 - CLOCK_STEP_S

    def _shared_out(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        if joined.leader != self.member_id:
            return []
        names = {member.member_id: member.group_instance_id or member.member_id for member in joined.members}
        ids = sorted(names)
        shares: dict[str, list[int]] = {one: [] for one in ids}
        for index in range(self._scene.topics[self._topic].partitions):
            shares[ids[index % len(ids)]].append(index)
        return [
            SyncGroupRequestAssignment(
                member_id=one, assignment=self._tongue.assignment(joined.generation_id, names[one], share)
            )
            for one, share in shares.items()
        ]

    async def _heartbeat(self) -> None:
        sent_at = self._scene.now
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        error = Error((await self._line.call(request)).error_code)
        self._next_heartbeat = self._scene.now + HEARTBEAT_S
        if error is Error.NONE:
            self.heard_at = sent_at
            self._scene.groups.extended(self.group, self.member_id, self._until(sent_at))
            topic = self._scene.topics[self._topic]
            if len(self.owned) < topic.partitions and self._scene.random.random() < 0.05:
                self._joined = False  # There may be more partitions than were assigned.
        else:
            await self._put_off(error, "heartbeat")

    async def _put_off(self, error: Error, what: str) -> None:
        if error is Error.UNKNOWN_MEMBER_ID:
            self.begin_anew()
        elif error is Error.FENCED_INSTANCE_ID and self.instance:
            self.begin_anew()
            self._fenced += 1
            self.instance = f"{self._line.name}-{self._fenced}"
        elif error in STALE:
            self._joined = False
        elif error in NOT_READY:
            await self._scene.pause(0.5)
        else:
            raise Violation("I11", f"{what} of {self.name or 'a new member'} of {self.group}: {error.name}")

    def is_behind(self) -> None:
        """Join again, because a commit was refused as stale."""
        self._joined = False

    async def leave(self) -> None:
        if self.member_id:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            self.begin_anew()
            await self._line.call(LeaveGroupRequest(group_id=self.group, members=[identity]))

    async def restart(self) -> None:
        """Restart the member. A static member does not leave first: it returns under its instance id."""
        if self.instance is None:
            await self.leave()
        self.begin_anew()

    def begin_anew(self) -> None:
        self._lose()
        self.member_id = _UNKNOWN

    def _lose(self) -> None:
        self._scene.groups.released(self.group, self.member_id, list(self.owned))
        self._joined = False
        self.owned = {}
        self.changes += 1
