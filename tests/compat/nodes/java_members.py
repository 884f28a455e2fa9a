"""Java's clients as members of groups, several in one JVM (see Members.java)."""

from dataclasses import dataclass

from peers.broker import wait_until

from nodes.java_tools import HERE, JavaTools

SOURCE = HERE / "Members.java"
MAIN = "Members"


@dataclass(frozen=True)
class Member:
    """What a member says of itself."""

    owned: frozenset[int]
    revoked: int
    """Partitions taken from it so far, with those that it got back."""
    lost: int


class JavaMembers:
    """The members of one group. Names are those of clients; settings are given with underscores."""

    def __init__(self, tools: JavaTools, bootstrap: str, group: str, **settings: str) -> None:
        self.tools = tools
        self._server = f"bootstrap.servers={bootstrap}"
        self.group = group
        self._settings = [f"group.id={group}", *_written(settings)]

    def join(self, name: str, topic: str, **settings: str) -> None:
        self._run("join", name, topic, self._server, *self._settings, *_written(settings))

    def copy(self, name: str, source: str, target: str, **settings: str) -> None:
        """Join, and copy exactly once what is read."""
        self._run("copy", name, source, target, self._server, *self._settings, *_written(settings))

    def leave(self, *names: str) -> None:
        self._run("leave", self.group, *names)

    def states(self) -> dict[str, Member]:
        """By name; one that has failed raises."""
        states = {}
        for line in self._run("states", self.group):
            name, owned, revoked, lost, failure = line.split("\t")
            assert failure == "null", f"{name}: {failure}"
            states[name] = Member(
                frozenset(map(int, owned.split(","))) if owned else frozenset(), int(revoked), int(lost)
            )
        return states

    def settle(self, partitions: int, *names: str) -> dict[str, Member]:
        """Until these members, and no others, share the partitions in equal parts."""
        states: dict[str, Member] = {}

        def is_settled() -> bool:
            states.clear()
            states.update(self.states())
            owned = [one.owned for one in states.values()]
            return (
                set(states) == set(names)
                and all(len(one) == partitions // len(names) for one in owned)
                and frozenset().union(*owned) == frozenset(range(partitions))
            )

        wait_until(is_settled, f"{', '.join(names)} share {partitions} partitions")
        return states

    def taken(self) -> list[int]:
        """What members in this JVM have read and committed, in order of size."""
        return sorted(map(int, self._run("taken", self.group)))

    def read(self, topic: str) -> list[int]:
        """All that is in a topic and committed, in order of size."""
        return sorted(map(int, self._run("read", topic, self._server)))

    def write(self, topic: str, numbers: range) -> None:
        """Spread over the partitions in turn."""
        self._run("write", topic, str(numbers.start), str(numbers.stop), self._server)

    def leave_open(self, topic: str, transactional_id: str) -> None:
        """Write one record in a transaction that nobody ends."""
        self._run("open", topic, self._server, f"transactional.id={transactional_id}", f"client.id={transactional_id}")

    def _run(self, *words: str) -> list[str]:
        return self.tools.run(MAIN, *words).stdout.splitlines()


def _written(settings: dict[str, str]) -> list[str]:
    return [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
