"""Random clients against a shard of groups, a small model beside it, and the log replayed from any prefix.

Invariants: a member is in one generation at a time and generations only grow; a stale generation is refused; every
parked request is answered once at most; one partition of the assignment has one owner per generation; an offset that
was acknowledged is told until it is deleted; replaying the log gives what the live shard has written.
"""

from typing import Any

from group_samples import Home, durable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.core.groups.classic_group import ClassicGroup, State
from ottla.wire.errors import Error

MEMBERS = st.integers(min_value=0, max_value=4)
PLACES = st.tuples(st.sampled_from(["t", "u"]), st.integers(min_value=0, max_value=1))
PRODUCERS = st.integers(min_value=0, max_value=2)


class Client:
    """What one consumer believes."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.waits: Any = None


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Home()
        self.clients = [Client(None if number < 3 else f"i{number}") for number in range(5)]
        self.offsets: dict[tuple[str, int], int] = {}
        self.pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
        self.written: dict[tuple[str, int], int] = {}
        self.steps = 0

    @property
    def group(self) -> ClassicGroup | None:
        group = self.home.shard.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # Members.

    @rule(number=MEMBERS, said=st.sampled_from([b"x", b"y"]))
    def join(self, number: int, said: bytes) -> None:
        client = self.clients[number]
        answer = self.home.join(client.member_id, instance=client.instance, protocols={"p": said})
        client.waits = None
        if isinstance(answer, int):
            client.waits = answer
        else:
            self._joined(client, answer)

    def _joined(self, client: Client, answer: Any) -> None:
        if answer.error_code in (Error.NONE, Error.MEMBER_ID_REQUIRED):
            client.member_id, client.generation = answer.member_id, answer.generation_id
        elif answer.error_code in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1

    @rule(number=MEMBERS)
    def look_for_answer(self, number: int) -> None:
        client = self.clients[number]
        answer = self.home.answers.pop(client.waits, None)
        if answer is not None:
            client.waits = None
            if hasattr(answer, "generation_id"):
                self._joined(client, answer)

    @rule(number=MEMBERS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.waits is not None or not client.member_id:
            return
        group = self.group
        leads = group is not None and group.leader_id == client.member_id
        members = group.members if group is not None and leads else {}
        assignment = {member_id: f"{client.generation}:{index}".encode() for index, member_id in enumerate(members)}
        answer = self.home.sync(client.member_id, client.generation, assignment, instance=client.instance)
        if isinstance(answer, int):
            client.waits = answer
        elif answer.error_code == Error.NONE:
            assert group is not None
            assert client.generation == group.generation_id
            assert not answer.assignment or answer.assignment.startswith(f"{client.generation}:".encode())

    @rule(number=MEMBERS)
    def heartbeat(self, number: int) -> None:
        client, group = self.clients[number], self.group
        error = self.home.heartbeat(client.member_id, client.generation, instance=client.instance)
        if error is Error.NONE:
            assert group is not None
            assert client.member_id in group.members
            assert client.generation == group.generation_id

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if self.group is not None:
            self.home.leave(client.member_id, instance=client.instance)
            client.member_id, client.generation, client.waits = "", -1, None

    @rule(by_ms=st.sampled_from([100, 2_000, 5_000, 12_000, 40_000]))
    def advance(self, by_ms: int) -> None:
        self.home.advance(by_ms)

    # Offsets.

    @rule(number=MEMBERS, place=PLACES)
    def commit(self, number: int, place: tuple[str, int]) -> None:
        client, group = self.clients[number], self.group
        self.steps += 1
        error = self.home.commit(
            {place: self.steps}, client.member_id, client.generation, instance=client.instance, version=8
        )
        if error is Error.NONE:
            self.offsets[place] = self.steps
            self.written[place] = len(self.home.log)
            if group is not None and group.members:
                assert client.generation == group.generation_id
                assert group.phase is not State.COMPLETING_REBALANCE

    @rule(producer=PRODUCERS, place=PLACES)
    def commit_in_transaction(self, producer: int, place: tuple[str, int]) -> None:
        self.steps += 1
        assert self.home.commit_in_transaction({place: self.steps}, producer) is Error.NONE
        self.pending.setdefault(producer, {})[place] = (self.steps, len(self.home.log))

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.home.end_transaction(producer, committed=committed)
        for place, (offset, at) in self.pending.pop(producer, {}).items():
            if committed and at > self.written.get(place, 0):
                self.offsets[place], self.written[place] = offset, at

    @rule()
    def reload(self) -> None:
        self.home.reload()
        for client in self.clients:
            client.waits = None

    @rule(cut=st.floats(min_value=0, max_value=1))
    def replay_a_prefix(self, cut: float) -> None:
        """A coordinator that took over there, and then read the rest, has what the live one has."""
        length = int(len(self.home.log) * cut)
        shard = self.home.loaded(length)
        for offset in range(length, len(self.home.log)):
            entry = self.home.log[offset]
            if len(entry) == 2:
                shard.replay_marker(entry[0], 0, committed=entry[1])
            else:
                shard.replay(self.home.read(entry[0], entry[1]), self.home.origin(offset, entry[2]))
        assert durable(shard) == durable(self.home.shard)

    # What always holds.

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        for place in [(topic, index) for topic in ("t", "u") for index in (0, 1)]:
            assert self.home.fetch(*place)[0] == self.offsets.get(place, -1)
            is_pending = any(place in places for places in self.pending.values())
            assert (self.home.fetch(*place, stable=True)[1] is Error.UNSTABLE_OFFSET_COMMIT) == is_pending

    @invariant()
    def the_group_makes_sense(self) -> None:
        group = self.group
        if group is None:
            return
        assert (group.phase is State.EMPTY) == (not group.members) or group.phase is State.PREPARING_REBALANCE
        assert group.leader_id in group.members if group.members else group.leader_id is None
        assert {
            member.group_instance_id: member.member_id for member in group.members.values() if member.group_instance_id
        } == group.static_ids
        assert not group.pending_joins.keys() & group.members.keys()
        assert group.pending_syncs.keys() <= group.members.keys()
        for member in group.members.values():
            assert member.join_token is None or group.phase is State.PREPARING_REBALANCE
            assert member.sync_token is None or group.phase is State.COMPLETING_REBALANCE
        waits = [member.join_token or member.sync_token for member in group.members.values()]
        tokens = [token for token in waits if token is not None]
        assert len(tokens) == len(set(tokens))
        assert not set(tokens) & self.home.answers.keys(), "answered and still waiting"

    @invariant()
    def one_owner_per_assignment(self) -> None:
        group = self.group
        if group is not None and group.phase is State.STABLE:
            held = [member.assignment for member in group.members.values() if member.assignment]
            assert len(held) == len(set(held))

    @invariant()
    def somebody_is_watched(self) -> None:
        """A group that waits has a deadline, or it would wait for ever (I24)."""
        group = self.group
        if group is not None and group.phase is not State.EMPTY:
            assert len(self.home.shard.deadlines) > 1


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestGroups = Groups.TestCase
