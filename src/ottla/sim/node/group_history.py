"""The assignments and offsets that groups reported to their members, and whether they are consistent.

Rule 1: in one generation of a classic group a partition has one owner: a member, or successive members of one instance.
Rule 2: in a group of the consumer protocol, or with both protocols, a partition has one owner at a time: it owns it
        until it reports its release, or until its session may be over. A static member that has left temporarily still
        owns its partitions, until a member joins under its instance id, with nothing. A member that joins under an
        instance id takes its place, unless both use the consumer protocol and the older one is present. If two members
        share an instance and one is classic, ownership is unknown.
Rule 3: a commit is refused if, when it was sent, the partition had been assigned to another member since.
Rule 4: a fetched offset was committed, and no later commit was certain when it was fetched.
Rule 5: a power loss may remove the unsynced end of a group's log: earlier commits may be gone, unless a later commit
        survived the same loss. Ownership is known again after the next assignment.

Every commit has a unique id in its metadata, so that a fetched one can be identified.
"""

from dataclasses import dataclass, field, replace

from ottla.sim.node.ledger import Key, name_of
from ottla.sim.node.transaction_history import RecordedTransaction
from ottla.sim.played import Violation

NEVER = float("inf")
_RELEASED = -1.0
_NOBODY_KNOWS = ""
NOTHING = -1
"""The fetched offset if nothing was committed."""


@dataclass(slots=True, eq=False)
class Commit:
    id: str
    group: str
    where: Key
    offset: int
    member: str
    sent_at: float
    transaction: RecordedTransaction | None = None
    granted_at: float = NEVER
    is_refused: bool = False

    @property
    def holds_from(self) -> float:
        """The latest time from which it is valid."""
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
        """Whether this is the same member, or one of the same instance."""
        return self.member == member or (instance is not None and self.instance == instance)


@dataclass(slots=True)
class _Group:
    owners: dict[Key, _Owner] = field(default_factory=dict)
    assigned: dict[tuple[int, Key], str] = field(default_factory=dict)
    """By generation of a classic group."""
    commits: dict[Key, list[Commit]] = field(default_factory=dict)
    since: float = 0.0
    """When the group was re-created under this name, or when unsynced state was lost."""
    claims: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By instance: the members that joined under it, and whether they are classic."""
    assigned_since: dict[tuple[str, Key], None] = field(default_factory=dict)
    """The assignments since then, by member."""
    survivors: dict[float, float] = field(default_factory=dict)
    """By time of each power loss: when the latest commit known to have survived it was sent."""
    finished: dict[Key, None] = field(default_factory=dict)
    """Partitions whose end a member has committed, after the last write."""

    def forget(self, now: float) -> None:
        """Forget which members own which partitions."""
        self.since = now
        self.owners.clear()
        self.assigned.clear()
        self.assigned_since.clear()

    def is_contested(self, instance: str | None) -> bool:
        claims = self.claims.get(instance, {}) if instance is not None else {}
        return len(claims) > 1 and any(claims.values())


class GroupHistory:
    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._commits: dict[str, Commit] = {}
        self.lost_at = -NEVER
        """When power was lost without syncs."""

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    # Ownership.

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
        """A member of a classic group, which asked to join at `asked_at`, got its assignment of a generation."""
        group, who = self.group(name), instance or member
        new_owner = _Owner(member, now, generation=generation, instance=instance)
        self._look_for_another(group, new_owner, partitions, asked_at)
        if asked_at < group.since:
            return
        for key in partitions:
            group.assigned_since[member, key] = None
            owner = group.assigned.setdefault((generation, key), who)
            if owner != who:
                raise Violation(
                    "I11", f"{name_of(key)} belongs to {owner} and {who} in generation {generation} of {name}"
                )
            known = group.owners.get(key)
            if known is None or known.generation < generation:  # Responses may come late.
                group.owners[key] = new_owner
            elif known.generation == generation and known.member != member:
                # Two members joined under one instance id; which one owns it cannot be told.
                group.owners[key] = new_owner if asked_at > known.since else replace(new_owner, member=_NOBODY_KNOWS)

    def _look_for_another(self, group: _Group, new_owner: _Owner, partitions: "list[Key]", asked_at: float) -> None:
        """Generations restart only if the group was forgotten: it had no members and no offsets."""
        earlier = {key: owner for key, owner in group.owners.items() if owner.since < asked_at}
        now_others = [earlier[key] for key in partitions if key in earlier]
        if all(owner.generation <= new_owner.generation for owner in earlier.values()) and all(
            owner.generation < new_owner.generation or owner.is_followed_by(new_owner.member, new_owner.instance)
            for owner in now_others
        ):
            return
        commits = (one for some in group.commits.values() for one in some if one.holds_from < asked_at)
        held = next((one for one in commits if not self._may_be_lost(group, one)), None)
        if held is not None:
            raise Violation(
                "I11",
                f"{new_owner.member} is in generation {new_owner.generation} of a group that forgot {_text_of(held)}",
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
        """These partitions were assigned to a member; its session lasts at least until then."""
        group = self.group(name)
        for key in partitions:
            owner = group.owners.get(key)
            if owner is not None and not owner.is_followed_by(member, instance) and owner.until > now:
                raise Violation(
                    "I11", f"{name_of(key)} was given to {member} of {name}, but {owner.member} has not given it back"
                )
            group.assigned_since[member, key] = None
            until = _RELEASED if group.is_contested(instance) else until
            group.owners[key] = _Owner(member, now, until, instance=instance)

    def away(self, name: str, member: str, partitions: "list[Key]", until: float, *, instance: str) -> None:
        """Record that a static member has left temporarily. It owns its partitions at least until then."""
        for key in partitions:
            owner = self.group(name).owners.get(key)
            if owner is not None and owner.member == member:
                owner.until, owner.instance, owner.is_away = until, instance, True

    def coming(self, name: str, instance: str, who: str, *, is_classic: bool) -> None:
        """A client is about to join under an instance id, owning nothing."""
        group = self.group(name)
        claims = group.claims.setdefault(instance, {})
        claims[who] = is_classic or claims.get(who, False)
        for owner in group.owners.values():
            if owner.instance == instance and (owner.is_away or group.is_contested(instance)):
                owner.until = _RELEASED

    def extended(self, name: str, member: str, until: float) -> None:
        """Record that a heartbeat was answered: the member's session lasts at least until then."""
        for owner in self.group(name).owners.values():
            if owner.member == member and owner.until > _RELEASED:
                owner.until = max(owner.until, until)

    def released(self, name: str, member: str, partitions: "list[Key]") -> None:
        """A member is about to report the release of these partitions, or has left."""
        for key in partitions:
            owner = self.group(name).owners.get(key)
            if owner is not None and owner.member == member:
                owner.until = _RELEASED

    # Offsets.

    def committing(
        self,
        name: str,
        member: str,
        where: Key,
        offset: int,
        now: float,
        transaction: RecordedTransaction | None = None,
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
        if (commit.member, commit.where) not in group.assigned_since:
            return
        if owner.since < commit.sent_at:
            raise Violation(
                "I11",
                f"{_text_of(commit)} by {commit.member} was granted; {owner.member} owned the partition since before",
            )

    def may_be_forgotten(self, name: str, now: float) -> bool:
        """Whether a group that had no members for a moment may be unknown: none of its offsets is certain."""
        held = (commit for some in self.group(name).commits.values() for commit in some)
        return self.lost_at >= 0 or not any(commit.holds_from < now for commit in held)

    def fetched(self, name: str, where: Key, offset: int, metadata: str | None, began: float) -> None:
        """The group's offset was fetched by a request sent at `began`, with none pending."""
        group = self.group(name)
        commits = group.commits.get(where, [])
        held_from = -NEVER
        if offset != NOTHING:
            found = self._commits.get(metadata or "")
            if found is None or (found.group, found.where, found.offset) != (name, where, offset):
                raise Violation("I11", f"{name} is at {offset} ({metadata}) of {name_of(where)}: nobody committed that")
            if found.is_void:
                raise Violation(
                    "I6" if found.transaction else "I11", f"{_text_of(found)} was refused or aborted, and holds"
                )
            if found.transaction is not None:
                found.transaction.seen(_text_of(found))
            held_from = found.holds_from
            if found.transaction is None:
                for lost_at, survivor_sent_at in group.survivors.items():
                    if found.sent_at < lost_at:
                        group.survivors[lost_at] = max(survivor_sent_at, found.sent_at)
        for commit in commits:
            if commit.holds_from < began and commit.sent_at > held_from and not self._may_be_lost(group, commit):
                raise Violation("I11", f"{_text_of(commit)} is lost: {name} is at {offset} ({metadata})")

    def power_lost(self, now: float) -> None:
        """Record a power loss: unsynced commits and memberships may be gone."""
        self.lost_at = now
        for group in self._groups.values():
            group.forget(now)
            group.survivors[now] = -NEVER

    def _may_be_lost(self, group: _Group, commit: Commit) -> bool:
        if commit.transaction is not None:
            # The marker of the transaction is written some time after the EndTxn was confirmed.
            return commit.transaction.is_void
        # Its response may have been in flight when the power was lost.
        return any(
            commit.sent_at <= lost_at and survivor_sent_at <= commit.granted_at
            for lost_at, survivor_sent_at in group.survivors.items()
        )


def _text_of(commit: Commit) -> str:
    return f"{commit.id} of {commit.group} for {name_of(commit.where)} at {commit.offset}"
