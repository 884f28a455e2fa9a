"""Consumer groups against a model: who owns what, as clients see it, whatever is lost, late or restarted."""

from collections.abc import Mapping, Set
from typing import Any

from consumer_harness import HEARTBEAT_MS, SESSION_MS, Consumer, Coordinator, durable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.wire.errors import Error, Refused

SIZES = {"a": 4, "b": 3, "c": 1}
REBALANCE_MS = 10 * SESSION_MS  # Who is silent loses its session first, and knows that.
SUBSCRIPTIONS = st.sets(st.sampled_from([*SIZES, "later"]), max_size=3)
REJOIN = {Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID, Error.UNRELEASED_INSTANCE_ID}


def check_expected(refusal: Refused) -> None:
    """Of what may be told to a client that follows the protocol; it then begins anew."""
    assert refusal.error in REJOIN, refusal


class Groups(RuleBasedStateMachine):
    """Clients follow the protocol: they give up what they are told to before they say so.

    What a client holds it holds until it has given it up, or until its session is over, when it stops by itself. The
    coordinator must never give a partition to one client while another still holds it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(SIZES)
        self.clients: dict[str, Consumer] = {}
        self.heard_ms: dict[str, int] = {}
        self.unsure: set[str] = set()
        """Clients that lost an answer: they say everything anew, and are told everything."""
        self.named = 0

    # What clients do.

    @rule(topics=SUBSCRIPTIONS, by_pattern=st.booleans(), is_static=st.booleans())
    def joins(self, topics: set[str], by_pattern: bool, is_static: bool) -> None:
        if len(self.clients) >= 5:
            return
        self.named += 1
        subscription: dict[str, Any] = {"regex": "a|b"} if by_pattern else {"topics": sorted(topics)}
        client = self.coordinator.client(
            f"m{self.named}", instance_id=f"i{self.named}" if is_static else None, **subscription
        )
        self.clients[client.member_id] = client
        self._send(client)

    def _send(self, client: Consumer, *, answer_is_lost: bool = False, **changes: Any) -> None:
        if client.epoch == 0:
            changes = {"rebalance_timeout_ms": REBALANCE_MS} | changes
        elif client.member_id in self.unsure:
            everything = {"subscribed_topic_names": client.topics, "subscribed_topic_regex": client.regex}
            changes = {"rebalance_timeout_ms": REBALANCE_MS} | everything | changes
        self.unsure.discard(client.member_id)
        try:
            response = self.coordinator.heartbeat(client.request(**changes))
        except Refused as refusal:
            check_expected(refusal)
            client.epoch, client.owned = 0, {}
            return
        self.heard_ms[client.member_id] = self.coordinator.now_ms
        if not answer_is_lost:
            client.take(response)
        else:
            self.unsure.add(client.member_id)

    def _some(self, data: st.DataObject) -> Consumer:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), answer_is_lost=st.booleans())
    def sends_a_heartbeat(self, data: st.DataObject, answer_is_lost: bool) -> None:
        self._send(self._some(data), answer_is_lost=answer_is_lost)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=SUBSCRIPTIONS)
    def subscribes_to_others(self, data: st.DataObject, topics: set[str]) -> None:
        client = self._some(data)
        client.topics, client.regex = sorted(topics), ""
        if client.epoch:
            self._send(client, subscribed_topic_names=client.topics, subscribed_topic_regex="")

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def says_nothing_of_what_it_owns(self, data: st.DataObject) -> None:
        client = self._some(data)
        if client.epoch and client.member_id not in self.unsure:
            self._send(client, topic_partitions=None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        client = self._some(data)
        if client.epoch:
            try:
                client.leave()
            except Refused as refusal:
                check_expected(refusal)
        del self.clients[client.member_id]

    @precondition(lambda self: any(one.instance_id and one.epoch for one in self.clients.values()))
    @rule(data=st.data())
    def restarts_under_another_id(self, data: st.DataObject) -> None:
        static = sorted(one.member_id for one in self.clients.values() if one.instance_id and one.epoch)
        client = self.clients.pop(data.draw(st.sampled_from(static)))
        try:
            client.leave()
        except Refused as refusal:
            check_expected(refusal)
        self.named += 1
        client.member_id = f"m{self.named}"
        self.clients[client.member_id] = client
        self._send(client)

    # What happens around them.

    @rule(ms=st.sampled_from([10, 1_000, HEARTBEAT_MS, 2 * HEARTBEAT_MS, SESSION_MS]))
    def time_passes(self, ms: int) -> None:
        self.coordinator.advance(ms)
        for client in self.clients.values():
            if self.coordinator.now_ms - self.heard_ms.get(client.member_id, 0) >= SESSION_MS:
                client.epoch, client.owned = 0, {}

    @rule()
    def coordinator_restarts(self) -> None:
        self.coordinator.restart()

    @rule(name=st.sampled_from(sorted(SIZES)))
    def topic_grows(self, name: str) -> None:
        topics = self.coordinator.topics
        if name in topics.view.image.topics and len(topics.view.image.topics[name].partitions) < 6:
            topics.grow(name, len(topics.view.image.topics[name].partitions) + 1)

    @rule()
    def topic_comes_or_goes(self) -> None:
        topics = self.coordinator.topics
        if "later" in topics.view.image.topics:
            topics.delete("later")
        else:
            topics.create("later", 2)

    # What always holds.

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients.values():
            for topic_id, partitions in client.owned.items():
                for partition in partitions:
                    other = owners.setdefault((topic_id, partition), client.member_id)
                    assert other == client.member_id, f"{partition} of {topic_id!r}: {other} and {client.member_id}"

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.coordinator.shard.groups.get("g")
        if group is not None:
            group = self.coordinator.group()
            assert all(member.member_epoch <= group.assignment_epoch for member in group.members.values())
            assert group.assignment_epoch <= group.epoch

    def teardown(self) -> None:
        self._log_gives_the_same()
        self._everything_comes_to_rest()

    def _log_gives_the_same(self) -> None:
        assert durable(self.coordinator.loaded_from(self.coordinator.log)) == durable(self.coordinator.shard)

    def _everything_comes_to_rest(self) -> None:
        """Liveness: once clients just go on, all partitions are owned, each once."""
        for _ in range(16):
            self.coordinator.advance(HEARTBEAT_MS)
            for client in self.clients.values():
                self._send(client)
                self.no_partition_has_two_owners()
        if not self.clients:
            return
        group, image = self.coordinator.group(), self.coordinator.topics.view.image
        assert group.state == "Stable", group.members
        assert sorted(group.members) == sorted(self.clients)
        wanted = {name for name in group.subscriptions.topics() if name in image.topics}
        owned = sorted((topic, index) for one in self.clients.values() for topic, p in one.owned.items() for index in p)
        assert owned == sorted(
            (image.topics[name].topic_id, index) for name in wanted for index in image.topics[name].partitions
        )
        assert all(member.assigned.keys() == self.clients[m].owned.keys() for m, member in group.members.items())


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=40, stateful_step_count=40)


def test_every_prefix_of_whole_decisions_loads() -> None:
    """A coordinator may die after any decision; the next one must be able to go on from there."""
    coordinator = Coordinator(SIZES)
    states: list[tuple[int, dict[str, Any]]] = []

    def noted() -> None:
        states.append((len(coordinator.log), _frozen(durable(coordinator.shard))))

    one = coordinator.client("m1", topics=["a", "b"])
    two = coordinator.client("m2", regex="a|c", instance_id="i")
    three = coordinator.client("m3", topics=["b"])
    for client in (one, two, three):
        client.send()
        noted()
    for _ in range(5):
        coordinator.advance(HEARTBEAT_MS)
        for client in (one, two, three):
            client.send()
            noted()
    two.leave()
    noted()
    one.leave()
    noted()
    assert len({length for length, _ in states}) > 8
    for length, state in states:
        assert _frozen(durable(coordinator.loaded_from(coordinator.log[:length]))) == state


def _frozen(state: Any) -> Any:
    """Groups change in place; their state of now is copied."""
    match state:
        case Mapping():
            return {key: _frozen(value) for key, value in state.items()}
        case Set() | list():
            return tuple(sorted(state))
        case tuple():
            return tuple(map(_frozen, state))
        case _:
            return state
