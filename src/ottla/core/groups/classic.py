"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what is due when a member is silent.

Rule 1: a generation begins when every member has joined again, or the rebalance time-out is over: who has not joined by
        then is out, unless its instance id keeps its place. A new group waits `group.initial.rebalance.delay.ms` for
        more members first, again and again while they come, but no longer than the rebalance time-out.
Rule 2: the leader's assignment is written down and then told to everybody, untouched.
Rule 3: a new member without an instance id is given an id and joins again with it (KIP-394), so that one whose answer
        was lost does not leave a ghost behind.
Rule 4: a member that comes back under its instance id takes the place of the old one, who is fenced. In a stable group
        that costs no rebalance, unless another protocol would be chosen (KIP-345, KIP-814).
Rule 5: an answer that waits is parked: its token stands in the member, and whoever completes the phase wakes it.
"""

from collections.abc import Callable

from ottla.core.coordination import PARKED, Decision, Token
from ottla.core.deadlines import Deadlines
from ottla.core.groups.classic_group import ClassicGroup, ClassicMember, Protocols, State, longest
from ottla.core.groups.group import Group
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.timers import Due, Outcome, Timer
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Error, Refused

_NO_MEMBER = ""
_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member's first join may wait for others; its client is given up on only after this long."""
_MEMBER_OVERHEAD_BYTES = 512  # Ids, client and host of a member in the group's record, generously.


class Client:
    """Who sends a request, as members are shown."""

    __slots__ = ("host", "name", "version")

    def __init__(self, name: str, host: str, version: int) -> None:
        self.name = name
        self.host = host
        self.version = version
        """Of the request."""


class ClassicProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[Timer],
        settings: GroupSettings,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._deadlines = deadlines
        self._settings = settings
        self._new_uuid = new_uuid

    def loaded(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """The group was read from the log: sessions begin now. One that is too large now must shrink."""
        for member in group.members.values():
            self._heard(group, member, now_ms)
        if len(group.members) > self._settings.members_max or group.is_unassigned:
            self.prepare_rebalance(group, now_ms, out)

    # JoinGroup.

    def join(self, request: JoinGroupRequest, client: Client, now_ms: int, token: Token) -> Decision[JoinGroupResponse]:
        out = Outcome()
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != _NO_MEMBER:
                return Decision(join_refused(Error.UNKNOWN_MEMBER_ID, request.member_id))
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, now_ms)
            is_new = True
        else:
            is_new = False
        if not isinstance(group, ClassicGroup):
            return Decision(join_refused(Error.INCONSISTENT_GROUP_PROTOCOL))
        reply = self._join(group, request, client, now_ms, token, out)
        if is_new and not out.records:
            out.records.append(group.empty_record())
        return Decision(reply, out.records, out.wake)

    def _join(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, now_ms: int, token: Token, out: Outcome
    ) -> JoinGroupResponse:
        is_unknown = request.member_id == _NO_MEMBER
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            return join_refused(Error.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
            return join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        self._check_size(group, request)
        if is_unknown and request.group_instance_id is not None:
            return self._join_static(group, request, client, now_ms, token, out)
        if is_unknown:
            member_id = f"{client.name}-{self._new_uuid()}"
            if client.version < _MEMBER_ID_REQUIRED_SINCE:
                return self._add(group, member_id, request, client, now_ms, token, out)
            group.pending_joins[member_id] = None
            self._deadlines.set(Timer(Due.SESSION, group.group_id, member_id), now_ms + request.session_timeout_ms)
            return join_refused(Error.MEMBER_ID_REQUIRED, member_id)
        if request.member_id in group.pending_joins and request.group_instance_id is None:
            return self._add(group, request.member_id, request, client, now_ms, token, out)
        return self._join_again(group, request, now_ms, token, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit, member = self._settings.members_max, group.members.get(member_id)
        if group.phase is State.EMPTY or len(group.members) < limit:
            return True
        if group.phase is State.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or group.joined < limit
        return member is not None

    def _check_size(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        """The whole group stands in one record; one that would not fit is refused while it can be."""
        size = group.metadata_bytes + longest(_protocols(request)) + _MEMBER_OVERHEAD_BYTES * (len(group.members) + 1)
        if size > self._settings.group_bytes_max:
            raise Refused(
                Error.UNKNOWN_SERVER_ERROR,
                f"group {group.group_id!r} would take {size} bytes with this member, "
                f"{self._settings.group_bytes_max} fit into a record of __consumer_offsets (max.message.bytes)",
            )

    def _join_static(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, now_ms: int, token: Token, out: Outcome
    ) -> JoinGroupResponse:
        instance_id = request.group_instance_id or ""
        new_id = f"{instance_id}-{self._new_uuid()}"
        old_id = group.static_ids.get(instance_id)
        if old_id is None:
            return self._add(group, new_id, request, client, now_ms, token, out)
        led_by = group.leader_id
        old = group.members[old_id]
        self._wake_join(old, join_refused(Error.FENCED_INSTANCE_ID, old_id), out)
        self._wake_sync(old, sync_refused(Error.FENCED_INSTANCE_ID), out)
        self._deadlines.cancel(Timer(Due.SESSION, group.group_id, old_id))
        if old_id in group.pending_syncs:
            del group.pending_syncs[old_id]
            group.pending_syncs[new_id] = None
        member = group.replace_static(old_id, new_id)
        self._update(group, member, request, token)
        self._heard(group, member, now_ms)
        if group.phase is State.STABLE:
            if group.selected_protocol() == group.protocol_name:
                return self._rejoined_without_rebalance(group, member, client, led_by, out)
            self.prepare_rebalance(group, now_ms, out)
        elif group.phase is State.COMPLETING_REBALANCE:
            self.prepare_rebalance(group, now_ms, out)
        else:
            self._complete_join_if_all_are_there(group, now_ms, out)
        return PARKED  # type: ignore[no-any-return]

    def _rejoined_without_rebalance(
        self, group: ClassicGroup, member: ClassicMember, client: Client, led_by: str | None, out: Outcome
    ) -> JoinGroupResponse:
        member.join_token = None
        out.records.append(group.record())
        if client.version >= _SKIP_ASSIGNMENT_SINCE:
            leads = group.leader_id == member.member_id
            return group.joined_response(member.member_id, with_members=leads, skip_assignment=leads)
        # Told that the old one leads, it does not take itself for the leader of a generation that is under way.
        return group.joined_response(member.member_id, with_members=False, leader=led_by)

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, now_ms: int, token: Token, out: Outcome
    ) -> JoinGroupResponse:
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except Refused as refusal:
            return join_refused(refusal.error, request.member_id)
        is_unchanged = member.protocols == _protocols(request)
        leads = group.leader_id == member.member_id
        if group.phase is State.EMPTY:
            return join_refused(Error.UNKNOWN_MEMBER_ID, request.member_id)
        if group.phase is State.COMPLETING_REBALANCE and is_unchanged:
            # Its answer was lost.
            self._heard(group, member, now_ms)
            return group.joined_response(member.member_id, with_members=leads)
        if group.phase is State.STABLE and is_unchanged and not leads:
            self._heard(group, member, now_ms)
            return group.joined_response(member.member_id, with_members=False)
        # The leader joins a stable group again when it wants another assignment.
        self._update(group, member, request, token)
        self._rebalance_or_complete(group, now_ms, out)
        return PARKED  # type: ignore[no-any-return]

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        now_ms: int,
        token: Token,
        out: Outcome,
    ) -> JoinGroupResponse:
        if group.phase is State.PREPARING_REBALANCE and group.came_from is State.EMPTY:
            group.member_was_added = True
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.name,
            client_host=client.host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=_protocols(request),
            is_new=True,
            join_token=token,
        )
        group.add(member, request.protocol_type)
        self._heard(group, member, now_ms, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, now_ms, out)
        return PARKED  # type: ignore[no-any-return]

    def _update(self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, token: Token) -> None:
        group.set_protocols(member, _protocols(request))
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token

    # Rebalancing.

    def _rebalance_or_complete(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        if group.phase is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_there(group, now_ms, out)
        else:
            self.prepare_rebalance(group, now_ms, out)

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """Have every member join again; who waits for an assignment is told so."""
        if group.phase is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if self._wake_sync(member, sync_refused(Error.REBALANCE_IN_PROGRESS), out):
                    self._heard(group, member, now_ms)
        group.pending_syncs.clear()
        self._deadlines.cancel(Timer(Due.SYNC, group.group_id))
        is_first = group.phase is State.EMPTY
        group.enter(State.PREPARING_REBALANCE, now_ms)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now_ms)
        elif group.have_all_joined:
            self._complete_join(group, now_ms, out)
        else:
            self._await_join(group, now_ms)

    def _delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        group.initial_delay = (delay_ms, remaining_ms)
        self._deadlines.set(Timer(Due.JOIN, group.group_id), now_ms + delay_ms)

    def _await_join(self, group: ClassicGroup, now_ms: int) -> None:
        group.initial_delay = None
        self._deadlines.set(Timer(Due.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _complete_join_if_all_are_there(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        is_delayed = group.came_from is State.EMPTY
        if group.phase is State.PREPARING_REBALANCE and not is_delayed and group.have_all_joined:
            self._complete_join(group, now_ms, out)

    def _complete_join(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """Begin the next generation with those who have joined."""
        self._deadlines.cancel(Timer(Due.JOIN, group.group_id))
        group.initial_delay = None
        for member in [*group.members.values()]:
            if member.join_token is None and member.group_instance_id is None:
                self._remove(group, member.member_id)
        if not group.elect_leader() and group.members:
            self._await_join(group, now_ms)  # Only static members are left, and none of them is here.
            return
        group.begin_generation(now_ms)
        if not group.members:
            out.records.append(group.record())
            return
        for member in group.members.values():
            leads = member.member_id == group.leader_id
            self._wake_join(member, group.joined_response(member.member_id, with_members=leads), out)
            self._heard(group, member, now_ms)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._deadlines.set(Timer(Due.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, now_ms: int, token: Token) -> Decision[SyncGroupResponse]:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return Decision(sync_refused(Error.UNKNOWN_MEMBER_ID))
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except Refused as refusal:
            return Decision(sync_refused(refusal.error))
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            return Decision(sync_refused(Error.INCONSISTENT_GROUP_PROTOCOL))
        if group.phase is State.PREPARING_REBALANCE:
            return Decision(sync_refused(Error.REBALANCE_IN_PROGRESS))
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            self._deadlines.cancel(Timer(Due.SYNC, group.group_id))
        if group.phase is State.STABLE:
            # Kafka's coordinator lets the session run on: a member could be out right after it was told its part.
            self._heard(group, member, now_ms)
            return Decision(_synced(group, member))
        member.sync_token = token
        out = Outcome()
        if member.member_id == group.leader_id:
            self._assign(group, request, now_ms, out)
        return Decision(PARKED, out.records, out.wake)

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, out: Outcome) -> None:
        assignments = {one.member_id: one.assignment for one in request.assignments}
        size = sum(
            len(assignments.get(member.member_id, b""))
            + len(member.metadata(group.protocol_name))
            + _MEMBER_OVERHEAD_BYTES
            for member in group.members.values()
        )
        if size > self._settings.group_bytes_max:
            # Told, the leader would send the same again: the group rebalances instead, and everybody hears why.
            for member in group.members.values():
                self._wake_sync(member, sync_refused(Error.UNKNOWN_SERVER_ERROR), out)
            self.prepare_rebalance(group, now_ms, out)
            return
        # As the record has it: the time is of the state before, which the record ends.
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        out.records.append(group.record())
        group.enter(State.STABLE, now_ms)
        for member in group.members.values():
            if self._wake_sync(member, _synced(group, member), out):
                self._heard(group, member, now_ms)

    # Heartbeat.

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self._heard(group, member, now_ms)
        rebalances = group.phase is State.PREPARING_REBALANCE
        return Decision(HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS if rebalances else Error.NONE))

    def committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A commit is as good as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.phase in (State.STABLE, State.PREPARING_REBALANCE):
            self._heard(group, member, now_ms)

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        out = Outcome()
        left = []
        for identity in request.members:
            error = self._leave(group, identity, out)
            left.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        if any(one.error_code == Error.NONE for one in left):
            if group.phase in (State.STABLE, State.COMPLETING_REBALANCE):
                self.prepare_rebalance(group, now_ms, out)
            else:
                self._complete_join_if_all_are_there(group, now_ms, out)
        return Decision(LeaveGroupResponse(error_code=Error.NONE, members=left), out.records, out.wake)

    def _leave(self, group: ClassicGroup, identity: MemberIdentity, out: Outcome) -> Error:
        member_id = identity.member_id
        if member_id == _NO_MEMBER:
            member_id = group.static_ids.get(identity.group_instance_id or "", _NO_MEMBER)
            if identity.group_instance_id is None or member_id == _NO_MEMBER:
                return Error.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_joins:
            try:
                group.check_member(member_id, identity.group_instance_id)
            except Refused as refusal:
                return refusal.error
        member = group.members.get(member_id)
        if member is not None:
            self._wake_join(member, join_refused(Error.UNKNOWN_MEMBER_ID), out)
        self._remove(group, member_id)
        return Error.NONE

    # What is due.

    def due(self, timer: Timer, now_ms: int, out: Outcome) -> None:
        group = self._groups.get(timer.group_id)
        if not isinstance(group, ClassicGroup):
            return
        match timer.due:
            case Due.SESSION:
                self._session_over(group, timer.member_id, now_ms, out)
            case Due.JOIN:
                self._join_over(group, now_ms, out)
            case Due.SYNC:
                self._sync_over(group, now_ms, out)

    def _session_over(self, group: ClassicGroup, member_id: str, now_ms: int, out: Outcome) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_heard:
            return
        if member is not None:
            self._wake_join(member, join_refused(Error.UNKNOWN_MEMBER_ID), out)
        elif member_id not in group.pending_joins:
            return
        was_member = group.remove(member_id) is not None
        if was_member and group.phase in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(group, now_ms, out)
        elif group.phase is State.PREPARING_REBALANCE and group.have_all_joined:
            self._complete_join(group, now_ms, out)

    def _join_over(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        if group.phase is not State.PREPARING_REBALANCE:
            return
        if group.initial_delay is not None and group.member_was_added:
            delay_ms, remaining_ms = group.initial_delay
            if remaining_ms:
                group.member_was_added = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                self._delay(group, next_ms, max(remaining_ms - delay_ms, 0), now_ms)
                return
        self._complete_join(group, now_ms, out)

    def _sync_over(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        if group.phase not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
            return
        for member_id in [*group.pending_syncs]:
            self._remove(group, member_id)
        self.prepare_rebalance(group, now_ms, out)

    # Members.

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._deadlines.cancel(Timer(Due.SESSION, group.group_id, member_id))

    def _heard(self, group: ClassicGroup, member: ClassicMember, now_ms: int, timeout_ms: int | None = None) -> None:
        session_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._deadlines.set(Timer(Due.SESSION, group.group_id, member.member_id), now_ms + session_ms)

    def _wake_join(self, member: ClassicMember, response: JoinGroupResponse, out: Outcome) -> None:
        if member.join_token is not None:
            out.wake.append((member.join_token, response))
            member.join_token = None

    def _wake_sync(self, member: ClassicMember, response: SyncGroupResponse, out: Outcome) -> bool:
        if member.sync_token is None:
            return False
        out.wake.append((member.sync_token, response))
        member.sync_token = None
        return True


def join_refused(error: Error, member_id: str = _NO_MEMBER) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_refused(error: Error) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def _synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=Error.NONE,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def _differs(asked: str | None, known: str | None) -> bool:
    """Older clients do not say."""
    return asked is not None and known is not None and asked != known
