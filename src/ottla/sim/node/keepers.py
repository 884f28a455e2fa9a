"""A member alone in its group, with offsets from before it joined, which are never committed again.

Rule: offsets expire only in a group without members: from its first heartbeat to its last they stay, however old they
get and however often the coordinator is loaded. In the log they precede the group's own records, so a coordinator that
has read half of it could take them for those of no group (KAFKA-8069).
"""

from contextlib import suppress

from ottla.rpc.errors import ClientError
from ottla.sim.node.group_offsets import INPUT, Hindered, ask_offsets, commit_offsets
from ottla.sim.node.ledger import Key
from ottla.sim.node.members import CLOCK_STEP_S, STALE
from ottla.sim.node.scene import OF_GROUP, Line, Scene
from ottla.sim.node.swarm import STATIC
from ottla.sim.node.workers import SESSION_MS, member_of
from ottla.sim.played import Violation


class Keeper:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)
        self._group = f"{name}-group"
        self._member = member_of(scene, self._line, self._group, name if STATIC in scene.hazards else None)
        self._commits = 0

    async def run(self) -> None:
        scene = self._scene
        await self._line.find_coordinator(self._group, OF_GROUP)
        while not scene.ending:
            try:
                await self._commit()
                await self._stay()
            except (ClientError, Hindered) as error:
                scene.note(f"{self._name}: {error}")
                await scene.pause(0.5)
        with suppress(ClientError):
            await self._member.leave()
        self._line.hang_up()

    async def _commit(self) -> None:
        """Commit offsets without a member id, which only a group without members accepts."""
        self._commits += 1
        offsets = dict.fromkeys(self._keys(), (self._commits, f"{self._name}-{self._commits}"))
        errors = await commit_offsets(self._line, self._group, None, offsets)
        hindrance = next((error for error in errors.values() if error), None)
        if hindrance is not None:
            if hindrance in STALE:
                await self._member.leave()
            raise Hindered(hindrance.name)

    async def _stay(self) -> None:
        """Be a member until the group forgets it, and check that the group's offsets do not change meanwhile. Raises
        ClientError, `Hindered`."""
        scene, member = self._scene, self._member
        await self._hear_of(scene.now)
        name, known = member.member_id, await self._fetch()
        while not scene.ending:
            await scene.pause(1)
            if member.instance is not None and member.member_id == name and scene.random.random() < 0.2:
                name = await self._restart()
            found = await self._fetch()
            await self._hear_of(scene.now)
            if member.member_id != name:
                return
            if any(found[key] != before for key, before in known.items()):
                raise Violation(
                    "I11", f"{self._group} has had a member since its offsets were {known}; now they are {found}"
                )

    async def _restart(self) -> str:
        """Leave and return: a static member that returns in time finds the same generation (KIP-345).

        Returns its new name, or "" if it returned too late. Raises ClientError.
        """
        scene, member = self._scene, self._member
        name = member.member_id
        await self._hear_of(scene.now)
        if member.member_id != name:
            return ""  # The group had forgotten it by then.
        generation, owned, heard_at = member.generation, set(member.owned), member.heard_at
        await member.restart()
        await self._hear_of(scene.now)
        in_time = scene.now < heard_at + SESSION_MS / 1000 - CLOCK_STEP_S
        if not in_time:
            return ""
        # If the topic has grown, the owned partitions differ, and a new generation is right.
        if member.is_sure and set(member.owned) == owned and member.generation != generation:
            raise Violation(
                "I11",
                f"{self._group} went from generation {generation} to {member.generation} when its only member, "
                f"the static {member.instance}, came back in time",
            )
        return member.member_id

    async def _hear_of(self, since: float) -> None:
        """Send heartbeats until one that was sent after `since` is answered."""
        while self._member.heard_at < since:
            try:
                await self._member.keep_up()
            except ClientError as error:
                self._scene.note(f"{self._name}: {error}")
            await self._scene.pause(0.4)

    async def _fetch(self) -> dict[Key, tuple[int, str | None]]:
        while True:
            with suppress(ClientError, Hindered):
                answers = await ask_offsets(self._line, self._group, self._keys())
                return {key: (one.committed_offset, one.metadata) for key, one in answers.items()}
            await self._member_or_pause()

    async def _member_or_pause(self) -> None:
        with suppress(ClientError):
            await self._member.keep_up()
        await self._scene.pause(0.3)

    def _keys(self) -> list[Key]:
        topic = self._scene.topics[INPUT]
        return [(topic.topic_id, index) for index in range(topic.partitions)]
