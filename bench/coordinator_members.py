"""Members of a group with their own implementation of the protocol, so that no client library is measured.

All connect first, and send ApiVersions, as clients do: otherwise the first member's second heartbeat could come before
the last one's join. Then all join at once. A member does at once what a response requires; otherwise it sends a
heartbeat every tenth of a second.
"""

import asyncio
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import uvloop

from bench.raw_client import frame
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response

_HEARTBEAT_S = 0.1
_ASK_AGAIN_S = 0.02
_SESSION_MS = 30_000
_REBALANCE_MS = 60_000
_STABLE_S_MAX = 120.0
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION, _LEAVE_VERSION = 9, 5, 4, 5
_CONSUMER_VERSION = 1
_API_VERSIONS_VERSION = 0
_LEAVES = -1
_PROTOCOL = "bench"
_METADATA = bytes(32)
_NOT_YET = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)


class Group(ABC):
    """A group, and when it is stable."""

    def __init__(self, group_id: str, size: int) -> None:
        self.group_id = group_id
        self.size = size
        self.stable = asyncio.Event()

    @abstractmethod
    def member(self, connection: "Connection") -> "Member":
        """One more member, on its own connection."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, api_key: ApiKey, version: int, request: object) -> Any:
        self._writer.write(frame(request, version))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(api_key, version, await self._reader.readexactly(size))[1]

    def close(self) -> None:
        self._writer.close()


class Member(ABC):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @abstractmethod
    async def take_part(self) -> None:
        """Runs until it is cancelled."""

    @abstractmethod
    async def leave(self) -> None: ...


class ClassicGroup(Group):
    """Stable when all members have their assignment of one generation."""

    def __init__(self, group_id: str, size: int) -> None:
        super().__init__(group_id, size)
        self._in_generation: dict[int, set[str]] = {}

    def member(self, connection: Connection) -> Member:
        return _ClassicMember(self, connection)

    def assigned(self, generation_id: int, member_id: str) -> None:
        members = self._in_generation.setdefault(generation_id, set())
        members.add(member_id)
        if len(members) == self.size:
            self.stable.set()


class _ClassicMember(Member):
    def __init__(self, group: ClassicGroup, connection: Connection) -> None:
        super().__init__(connection)
        self._group = group
        self._member_id = ""

    async def take_part(self) -> None:
        while True:
            joined = await self._join()
            if await self._sync(joined):
                self._group.assigned(joined.generation_id, self._member_id)
                await self._until_rebalance(joined.generation_id)

    async def _join(self) -> Any:
        while True:
            request = JoinGroupRequest(
                group_id=self._group.group_id,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=_METADATA)],
            )
            joined = await self.connection.ask(ApiKey.JOIN_GROUP, _JOIN_VERSION, request)
            if joined.error_code == Error.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            elif await _is_done("JoinGroup", joined.error_code):
                return joined

    async def _sync(self, joined: Any) -> bool:
        """Whether there is an assignment; not if the next rebalance has begun."""
        assignments = []
        if joined.leader == self._member_id:
            assignments = [
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=_METADATA) for one in joined.members
            ]
        request = SyncGroupRequest(
            group_id=self._group.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        answer = await self.connection.ask(ApiKey.SYNC_GROUP, _SYNC_VERSION, request)
        return answer.error_code != Error.REBALANCE_IN_PROGRESS and await _is_done("SyncGroup", answer.error_code)

    async def _until_rebalance(self, generation_id: int) -> None:
        request = HeartbeatRequest(
            group_id=self._group.group_id, generation_id=generation_id, member_id=self._member_id
        )
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            answer = await self.connection.ask(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, request)
            if answer.error_code == Error.REBALANCE_IN_PROGRESS:
                return
            await _is_done("Heartbeat", answer.error_code)

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group.group_id, members=[MemberIdentity(member_id=self._member_id)])
        await self.connection.ask(ApiKey.LEAVE_GROUP, _LEAVE_VERSION, request)


class ConsumerGroup(Group):
    """Stable when all partitions of the topic are owned, by all members as evenly as can be."""

    def __init__(self, group_id: str, size: int, topic: str, partitions: int) -> None:
        super().__init__(group_id, size)
        self.topic = topic
        self._fewest = partitions // size
        self._partitions = partitions
        self._owned: dict[str, frozenset[int]] = {}

    def member(self, connection: Connection) -> Member:
        return _ConsumerMember(self, connection)

    def owns(self, member_id: str, partitions: frozenset[int]) -> None:
        self._owned[member_id] = partitions
        if len(self._owned) == self.size and min(map(len, self._owned.values())) == self._fewest:
            owned = [index for indexes in self._owned.values() for index in indexes]
            if len(owned) == len(set(owned)) == self._partitions:
                self.stable.set()


class _ConsumerMember(Member):
    def __init__(self, group: ConsumerGroup, connection: Connection) -> None:
        super().__init__(connection)
        self._group = group
        self._member_id = str(uuid4())
        self._epoch = 0

    async def take_part(self) -> None:
        answer = await self._heartbeat(
            rebalance_timeout_ms=_REBALANCE_MS, subscribed_topic_names=[self._group.topic], topic_partitions=[]
        )
        while True:
            if answer.assignment is None:
                await asyncio.sleep(_HEARTBEAT_S)
                answer = await self._heartbeat()
                continue
            assigned = answer.assignment.topic_partitions
            self._group.owns(self._member_id, frozenset(index for one in assigned for index in one.partitions))
            owned = [TopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in assigned]
            answer = await self._heartbeat(topic_partitions=owned)  # A complete heartbeat gets a complete response.

    async def _heartbeat(self, **told: Any) -> Any:
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group.group_id, member_id=self._member_id, member_epoch=self._epoch, **told
            )
            answer = await self.connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, _CONSUMER_VERSION, request)
            if await _is_done("ConsumerGroupHeartbeat", answer.error_code):
                self._epoch = answer.member_epoch
                return answer

    async def leave(self) -> None:
        self._epoch = _LEAVES
        await self._heartbeat()


def time_to_stable(port: int, make_group: Callable[[], Group]) -> float:
    """Seconds from the first join until the group that `make_group` makes is stable; then all leave."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_time_to_stable(port, make_group()))


async def _time_to_stable(port: int, group: Group) -> float:
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(group.size)]
    connections = [Connection(*pair) for pair in streams]
    for connection in connections:
        await connection.ask(ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, ApiVersionsRequest())
    members = [group.member(connection) for connection in connections]
    started = time.perf_counter()
    tasks = [asyncio.create_task(member.take_part()) for member in members]
    waiting = asyncio.create_task(group.stable.wait())
    await asyncio.wait([waiting, *tasks], timeout=_STABLE_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    took = time.perf_counter() - started
    for task in (waiting, *tasks):
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    if not group.stable.is_set():
        raise RuntimeError(f"a group of {group.size} was not stable within {_STABLE_S_MAX:.0f} s")
    for member in members:
        member.connection.close()
    leaving = Connection(*await asyncio.open_connection("127.0.0.1", port))
    for member in members:
        member.connection = leaving
        await member.leave()
    leaving.close()
    return took


async def _is_done(what: str, error_code: int) -> bool:
    """Whether it succeeded; False if it must be repeated."""
    if error_code == Error.NONE:
        return True
    if error_code in _NOT_YET:
        await asyncio.sleep(_ASK_AGAIN_S)
        return False
    raise RuntimeError(f"{what} was answered with {Error(error_code).name}")
