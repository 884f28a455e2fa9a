"""What members were told of their groups, and whether it fits together.

Rule 1: in one generation of a classic group a partition has one owner: a member, or those that follow one another as
        one instance.
Rule 2: in a group of the consumer protocol, and where both protocols meet, a partition has one owner at a time: whoever
        has it keeps it until it says that it gave it back, or until its session can be over. A static member that
        has gone for a while has not given back anything, until somebody comes back in its name, with nothing. Who comes
        in the name of an instance takes its place, unless both are of the consumer protocol and the older one is there:
        so where two are one instance, and one of them is classic, nobody knows which of them owns what.
Rule 3: a commit is refused if, when it was sent, somebody else had been given the partition since its member was.
Rule 4: a fetched offset is one that somebody committed, and none was committed for certain after that one was over.
Rule 5: a power loss takes the end of a group's log where that was not synced: what was committed before it may be gone,
        but not if a commit after it has outlived the same loss. Who owns what is known again when it is told again.
Every commit carries an id of its own in its metadata, so that it is known which one was fetched.
"""

from dataclasses import dataclass, field, replace

from ottla.sim.checkers import Violation
from ottla.sim.node.ledger import Key, name_of
from ottla.sim.node.transaction_history import Transaction

NEVER = float("inf")
_RELEASED = -1.0
_NOBODY_KNOWS = ""
NOTHING = -1
"""What is fetched where nobody has committed."""


@dataclass(slots=True, eq=False)
class Commit:
    id: str
    group: str
    where: Key
    offset: int
    member: str
    sent_at: float
    transaction: Transaction | None = None
    granted_at: float = NEVER
    is_refused: bool = False

    @property
    def holds_from(self) -> float:
        """When it held at the latest."""
        return self.granted_at if self.transaction is None else self.transaction.ended_at

    @property
    def is_void(self) -> bool:
        return self.is_refused or (self.transaction is not None and self.transaction.is_aborted)


@dataclass(slots=True)
class _Owner:
    member: str
    since: float
    until: float = NEVER
    """When its session may be over; `NEVER` in a classic group, where generations count."""
    generation: int = NOTHING
    instance: str | None = None
    is_away: bool = False

    def is_followed_by(self, member: str, instance: str | None) -> bool:
        """Whether that is the same member, or comes in the name of the same instance."""
        return self.member == member or (instance is not None and self.instance == instance)


@dataclass(slots=True)
class _Group:
    owners: dict[Key, _Owner] = field(default_factory=dict)
    assigned: dict[tuple[int, Key], str] = field(default_factory=dict)
    """By generation of a classic group."""
    commits: dict[Key, list[Commit]] = field(default_factory=dict)
    since: float = 0.0
    """When it was seen that this is another group of the name, or when what was not synced was lost."""
    claims: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By instance: who has come in its name, and whether as a classic member."""
    told: dict[tuple[str, Key], None] = field(default_factory=dict)
    """Which member was given what since then."""
    survivors: dict[float, float] = field(default_factory=dict)
    """By the moment of each loss: when the latest commit was sent that is known to have outlived it."""
    finished: dict[Key, None] = field(default_factory=dict)
    """Partitions of which a member has committed the end, after the last was written."""

    def forget(self, now: float) -> None:
        """Who owns what."""
        self.since = now
        self.owners.clear()
        self.assigned.clear()
        self.told.clear()

    def is_contested(self, instance: str | None) -> bool:
        claims = self.claims.get(instance, {}) if instance is not None else {}
        return len(claims) > 1 and any(claims.values())


class GroupHistory:
    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._commits: dict[str, Commit] = {}
        self.lost_at = -NEVER
        """When the power was lost, where nothing was synced."""

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    # Who owns what.

    def assigned(
        self,
        name: str,
        generation: int,
        member: str,
        partitions: "list[Key]",
        now: float,
        *,
        instance: str | None = None,
        asked_at: float = 0.0,
    ) -> None:
        """A member of a classic group, which asked to join at `asked_at`, was told its part of a generation."""
        group, who = self.group(name), instance or member
        told = _Owner(member, now, generation=generation, instance=instance)
        self._look_for_another(group, told, partitions, asked_at)
        if asked_at < group.since:
            return
        for key in partitions:
            group.told[member, key] = None
            owner = group.assigned.setdefault((generation, key), who)
            if owner != who:
                raise Violation(
                    "I11", f"{name_of(key)} belongs to {owner} and {who} in generation {generation} of {name}"
                )
            known = group.owners.get(key)
            if known is None or known.generation < generation:  # Answers may come late.
                group.owners[key] = told
            elif known.generation == generation and known.member != member:
                # One came after the other in the name of one instance. Which is which, is clear only from afar.
                group.owners[key] = told if asked_at > known.since else replace(told, member=_NOBODY_KNOWS)

    def _look_for_another(self, group: _Group, told: _Owner, partitions: "list[Key]", asked_at: float) -> None:
        """Generations begin anew only where the group was forgotten: nobody was in it, and it had no offsets."""
        told_before = {key: owner for key, owner in group.owners.items() if owner.since < asked_at}
        now_others = [told_before[key] for key in partitions if key in told_before]
        if all(owner.generation <= told.generation for owner in told_before.values()) and all(
            owner.generation < told.generation or owner.is_followed_by(told.member, told.instance)
            for owner in now_others
        ):
            return
        commits = (one for some in group.commits.values() for one in some if one.holds_from < asked_at)
        held = next((one for one in commits if not self._may_be_lost(group, one)), None)
        if held is not None:
            raise Violation(
                "I11", f"{told.member} is in generation {told.generation} of a group that forgot {_told(held)}"
            )
        group.forget(asked_at)

    def given(
        self,
        name: str,
        member: str,
        partitions: "list[Key]",
        now: float,
        until: float,
        *,
        instance: str | None = None,
    ) -> None:
        """A member was told that these are its own; its session lasts until then at least."""
        group = self.group(name)
        for key in partitions:
            owner = group.owners.get(key)
            if owner is not None and not owner.is_followed_by(member, instance) and owner.until > now:
                raise Violation(
                    "I11", f"{name_of(key)} was given to {member} of {name}, but {owner.member} has not given it back"
                )
            group.told[member, key] = None
            until = _RELEASED if group.is_contested(instance) else until
            group.owners[key] = _Owner(member, now, until, instance=instance)

    def away(self, name: str, member: str, partitions: "list[Key]", until: float, *, instance: str) -> None:
        """A static member has gone for a while; its partitions are its own until then at least."""
        for key in partitions:
            owner = self.group(name).owners.get(key)
            if owner is not None and owner.member == member:
                owner.until, owner.instance, owner.is_away = until, instance, True

    def coming(self, name: str, instance: str, who: str, *, is_classic: bool) -> None:
        """A client is about to join in the name of an instance, with nothing."""
        group = self.group(name)
        claims = group.claims.setdefault(instance, {})
        claims[who] = is_classic or claims.get(who, False)
        for owner in group.owners.values():
            if owner.instance == instance and (owner.is_away or group.is_contested(instance)):
                owner.until = _RELEASED

    def extended(self, name: str, member: str, until: float) -> None:
        """A heartbeat was answered."""
        for owner in self.group(name).owners.values():
            if owner.member == member and owner.until > _RELEASED:
                owner.until = max(owner.until, until)

    def released(self, name: str, member: str, partitions: "list[Key]") -> None:
        """A member is about to say that it has these no longer, or is not there any more."""
        for key in partitions:
            owner = self.group(name).owners.get(key)
            if owner is not None and owner.member == member:
                owner.until = _RELEASED

    # Offsets.

    def committing(
        self, name: str, member: str, where: Key, offset: int, now: float, transaction: Transaction | None = None
    ) -> Commit:
        commit = Commit(f"commit-{len(self._commits) + 1}", name, where, offset, member, now, transaction)
        self._commits[commit.id] = commit
        self.group(name).commits.setdefault(where, []).append(commit)
        return commit

    def granted(self, commit: Commit, now: float) -> None:
        commit.granted_at = now
        group = self.group(commit.group)
        owner = group.owners.get(commit.where)
        if owner is None or owner.member in (commit.member, _NOBODY_KNOWS):
            return
        if (commit.member, commit.where) not in group.told:
            return
        if owner.since < commit.sent_at:
            raise Violation(
                "I11",
                f"{_told(commit)} by {commit.member} was granted; {owner.member} owned the partition since before",
            )

    def may_be_forgotten(self, name: str, now: float) -> bool:
        """Whether a group may be unknown that had nobody in it for a moment: no offset of it is sure to hold."""
        held = (commit for some in self.group(name).commits.values() for commit in some)
        return self.lost_at >= 0 or not any(commit.holds_from < now for commit in held)

    def fetched(self, name: str, where: Key, offset: int, metadata: str | None, began: float) -> None:
        """The group's offset was fetched, with a request sent at `began`, none pending."""
        group = self.group(name)
        commits = group.commits.get(where, [])
        held_from = -NEVER
        if offset != NOTHING:
            found = self._commits.get(metadata or "")
            if found is None or (found.group, found.where, found.offset) != (name, where, offset):
                raise Violation("I11", f"{name} is at {offset} ({metadata}) of {name_of(where)}: nobody committed that")
            if found.is_void:
                raise Violation(
                    "I6" if found.transaction else "I11", f"{_told(found)} was refused or aborted, and holds"
                )
            if found.transaction is not None:
                found.transaction.seen(_told(found))
            held_from = found.holds_from
            if found.transaction is None:
                for lost_at, survivor_sent_at in group.survivors.items():
                    if found.sent_at < lost_at:
                        group.survivors[lost_at] = max(survivor_sent_at, found.sent_at)
        for commit in commits:
            if commit.holds_from < began and commit.sent_at > held_from and not self._may_be_lost(group, commit):
                raise Violation("I11", f"{_told(commit)} is lost: {name} is at {offset} ({metadata})")

    def power_lost(self, now: float) -> None:
        """What was not synced is gone."""
        self.lost_at = now
        for group in self._groups.values():
            group.forget(now)
            group.survivors[now] = -NEVER

    def _may_be_lost(self, group: _Group, commit: Commit) -> bool:
        if commit.transaction is not None:
            # Its marker is written some time after its end was granted.
            return commit.transaction.is_void
        # Its answer may have been under way when the power was lost.
        return any(
            commit.sent_at <= lost_at and survivor_sent_at <= commit.granted_at
            for lost_at, survivor_sent_at in group.survivors.items()
        )


def _told(commit: Commit) -> str:
    return f"{commit.id} of {commit.group} for {name_of(commit.where)} at {commit.offset}"
