"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the time-outs of silent members.

Rule 1: a generation begins when every member has joined again, or when the rebalance time-out is over. Members that
        have not joined by then are removed, unless they have an instance id. A new group first waits
        `group.initial.rebalance.delay.ms` for more members. A member that joins meanwhile prolongs the wait, up to the
        rebalance time-out.
Rule 2: the leader's assignment is written to the log and then sent to every member, unchanged.
Rule 3: a new member without an instance id is given a member id and joins again with it (KIP-394). So a client that
        lost its answer leaves no member behind.
Rule 4: a member that comes back under its instance id takes the place of the old one, which is fenced. In a stable
        group that costs no rebalance, unless another protocol would be chosen (KIP-345, KIP-814).
Rule 5: a response that has to wait is parked. Its token is stored in the member, and the decision that completes the
        phase wakes it.
Rule 6: a request is decided on a draft of its group. The draft takes the group's place, and the deadlines are set, when
        the decision is accepted. Only a heartbeat and a commit, which change nothing else in the group, prolong the
        session of the member at once.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.core.groups.classic_group import ClassicGroup, ClassicMember, State, longest
from ottla.core.groups.classic_responses import differs, join_refused, protocols, sync_refused, synced
from ottla.core.groups.group import Group, GroupClient
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.timers import Due, GroupEffects, Timer
from ottla.core.runtime.deadlines import Deadlines
from ottla.core.runtime.decision import PARKED, Decision, Token
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Error, Refused

R = TypeVar("R")

_NO_MEMBER = ""
_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Session time-out of a new member until its first generation begins, because its join waits for the other members."""
_MEMBER_OVERHEAD_BYTES = 512  # Upper bound for the ids, client and host of one member in the group's record.


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

    def loaded(self, known: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        """Start the sessions of a group that was read from the log. A group that exceeds the size limit rebalances."""
        group = known.draft()
        for member in group.members.values():
            self._heard(group, member, now_ms, out)
        if len(group.members) > self._settings.members_max or group.is_unassigned:
            self.prepare_rebalance(group, now_ms, out)
        self._accept(group, out)

    def _decision(self, group: ClassicGroup, reply: R, out: GroupEffects) -> Decision[R]:
        return Decision(reply, out.records, out.wake, partial(self._accept, group, out))

    def _accept(self, group: ClassicGroup, out: GroupEffects) -> None:
        """Replace the group by its draft. The group's record may have been replayed since the draft was made."""
        known = self._groups.get(group.group_id)
        group.written = known.written if isinstance(known, ClassicGroup) else None
        self._groups[group.group_id] = group
        out.apply_timers(self._deadlines)

    # JoinGroup.

    def join(
        self, request: JoinGroupRequest, client: GroupClient, now_ms: int, token: Token
    ) -> Decision[JoinGroupResponse]:
        known = self._groups.get(request.group_id)
        if known is None:
            if request.member_id != _NO_MEMBER:
                return Decision(join_refused(Error.UNKNOWN_MEMBER_ID, request.member_id))
            return self.begin(request, client, now_ms, token)
        if not isinstance(known, ClassicGroup):
            return Decision(join_refused(Error.INCONSISTENT_GROUP_PROTOCOL))
        group, out = known.draft(), GroupEffects()
        reply = self._join(group, request, client, now_ms, token, out)
        return self._decision(group, reply, out)

    def begin(
        self, request: JoinGroupRequest, client: GroupClient, now_ms: int, token: Token
    ) -> Decision[JoinGroupResponse]:
        """Handle the first join of a group that does not exist, or whose record the caller deletes."""
        group, out = ClassicGroup(request.group_id, now_ms), GroupEffects()
        reply = self._join(group, request, client, now_ms, token, out)
        if not out.records:
            out.records.append(group.empty_record())
        return self._decision(group, reply, out)

    def _join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: GroupClient,
        now_ms: int,
        token: Token,
        out: GroupEffects,
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
            out.set_timer(Timer(Due.SESSION, group.group_id, member_id), now_ms + request.session_timeout_ms)
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
        """Raises Refused if the group would not fit into one record with this member."""
        size = group.metadata_bytes + longest(protocols(request)) + _MEMBER_OVERHEAD_BYTES * (len(group.members) + 1)
        if size > self._settings.group_bytes_max:
            raise Refused(
                Error.UNKNOWN_SERVER_ERROR,
                f"group {group.group_id!r} would take {size} bytes with this member, "
                f"{self._settings.group_bytes_max} fit into a record of __consumer_offsets (max.message.bytes)",
            )

    def _join_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: GroupClient,
        now_ms: int,
        token: Token,
        out: GroupEffects,
    ) -> JoinGroupResponse:
        instance_id = request.group_instance_id or ""
        new_id = f"{instance_id}-{self._new_uuid()}"
        old_id = group.static_ids.get(instance_id)
        if old_id is None:
            return self._add(group, new_id, request, client, now_ms, token, out)
        led_by = group.leader_id
        old = group.members[old_id]
        self._wake_join(group, old, join_refused(Error.FENCED_INSTANCE_ID, old_id), out)
        self._wake_sync(group, old, sync_refused(Error.FENCED_INSTANCE_ID), out)
        out.cancel_timer(Timer(Due.SESSION, group.group_id, old_id))
        if old_id in group.pending_syncs:
            del group.pending_syncs[old_id]
            group.pending_syncs[new_id] = None
        member = group.replace_static(old_id, new_id)
        self._update(group, member, request, token)
        self._heard(group, member, now_ms, out)
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
        self, group: ClassicGroup, member: ClassicMember, client: GroupClient, led_by: str | None, out: GroupEffects
    ) -> JoinGroupResponse:
        member.join_token = None
        out.records.append(group.record())
        if client.version >= _SKIP_ASSIGNMENT_SINCE:
            leads = group.leader_id == member.member_id
            return group.joined_response(member.member_id, with_members=leads, skip_assignment=leads)
        # An older client that is named as leader would compute an assignment. So the previous leader id is sent.
        return group.joined_response(member.member_id, with_members=False, leader=led_by)

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, now_ms: int, token: Token, out: GroupEffects
    ) -> JoinGroupResponse:
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except Refused as refusal:
            return join_refused(refusal.error, request.member_id)
        is_unchanged = member.protocols == protocols(request)
        leads = group.leader_id == member.member_id
        if group.phase is State.EMPTY:
            return join_refused(Error.UNKNOWN_MEMBER_ID, request.member_id)
        if group.phase is State.COMPLETING_REBALANCE and is_unchanged:
            # The response to its first join was lost.
            self._heard(group, member, now_ms, out)
            return group.joined_response(member.member_id, with_members=leads)
        if group.phase is State.STABLE and is_unchanged and not leads:
            self._heard(group, member, now_ms, out)
            return group.joined_response(member.member_id, with_members=False)
        # The leader joins a stable group again to start another assignment.
        self._update(group, member, request, token)
        self._rebalance_or_complete(group, now_ms, out)
        return PARKED  # type: ignore[no-any-return]

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: GroupClient,
        now_ms: int,
        token: Token,
        out: GroupEffects,
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
            protocols=protocols(request),
            is_new=True,
            join_token=token,
        )
        group.add(member, request.protocol_type)
        self._heard(group, member, now_ms, out, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, now_ms, out)
        return PARKED  # type: ignore[no-any-return]

    def _update(self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, token: Token) -> None:
        member = group.own(member)
        group.set_protocols(member, protocols(request))
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token

    # Rebalancing.

    def _rebalance_or_complete(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        if group.phase is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_there(group, now_ms, out)
        else:
            self.prepare_rebalance(group, now_ms, out)

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        """Make every member join again. Members that wait for an assignment get REBALANCE_IN_PROGRESS."""
        if group.phase is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                group.own(member).assignment = b""
                if self._wake_sync(group, member, sync_refused(Error.REBALANCE_IN_PROGRESS), out):
                    self._heard(group, member, now_ms, out)
        group.pending_syncs.clear()
        out.cancel_timer(Timer(Due.SYNC, group.group_id))
        is_first = group.phase is State.EMPTY
        group.enter(State.PREPARING_REBALANCE, now_ms)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now_ms, out)
        elif group.have_all_joined:
            self._complete_join(group, now_ms, out)
        else:
            self._await_join(group, now_ms, out)

    def _delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int, out: GroupEffects) -> None:
        group.initial_delay = (delay_ms, remaining_ms)
        out.set_timer(Timer(Due.JOIN, group.group_id), now_ms + delay_ms)

    def _await_join(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        group.initial_delay = None
        out.set_timer(Timer(Due.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def _complete_join_if_all_are_there(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        is_delayed = group.came_from is State.EMPTY
        if group.phase is State.PREPARING_REBALANCE and not is_delayed and group.have_all_joined:
            self._complete_join(group, now_ms, out)

    def _complete_join(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        """Begin the next generation with the members that have joined."""
        out.cancel_timer(Timer(Due.JOIN, group.group_id))
        group.initial_delay = None
        for member in [*group.members.values()]:
            if member.join_token is None and member.group_instance_id is None:
                self._remove(group, member.member_id, out)
        if not group.elect_leader() and group.members:
            self._await_join(group, now_ms, out)  # Only static members are left, and none has joined.
            return
        group.begin_generation(now_ms)
        if not group.members:
            out.records.append(group.record())
            return
        for member in group.members.values():
            leads = member.member_id == group.leader_id
            self._wake_join(group, member, group.joined_response(member.member_id, with_members=leads), out)
            self._heard(group, member, now_ms, out)
            group.own(member).is_new = False
            group.pending_syncs[member.member_id] = None
        out.set_timer(Timer(Due.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, now_ms: int, token: Token) -> Decision[SyncGroupResponse]:
        known = self._groups.get(request.group_id)
        if not isinstance(known, ClassicGroup) or known.is_empty:
            return Decision(sync_refused(Error.UNKNOWN_MEMBER_ID))
        group, out = known.draft(), GroupEffects()
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except Refused as refusal:
            return Decision(sync_refused(refusal.error))
        if differs(request.protocol_type, group.protocol_type) or differs(request.protocol_name, group.protocol_name):
            return Decision(sync_refused(Error.INCONSISTENT_GROUP_PROTOCOL))
        if group.phase is State.PREPARING_REBALANCE:
            return Decision(sync_refused(Error.REBALANCE_IN_PROGRESS))
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            out.cancel_timer(Timer(Due.SYNC, group.group_id))
        if group.phase is State.STABLE:
            # Unlike Kafka, which does not prolong the session: the member could be removed right after this response.
            self._heard(group, member, now_ms, out)
            return self._decision(group, synced(group, member), out)
        group.own(member).sync_token = token
        if member.member_id == group.leader_id:
            self._assign(group, request, now_ms, out)
        return self._decision(group, PARKED, out)

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, out: GroupEffects) -> None:
        assignments = {one.member_id: one.assignment for one in request.assignments}
        size = sum(
            len(assignments.get(member.member_id, b""))
            + len(member.metadata(group.protocol_name))
            + _MEMBER_OVERHEAD_BYTES
            for member in group.members.values()
        )
        if size > self._settings.group_bytes_max:
            # If only the leader got the error, it would send the same assignment again. So the whole group rebalances.
            for member in group.members.values():
                self._wake_sync(group, member, sync_refused(Error.UNKNOWN_SERVER_ERROR), out)
            self.prepare_rebalance(group, now_ms, out)
            return
        # As in Kafka, the record holds the time at which the previous state was entered.
        for member in group.members.values():
            group.own(member).assignment = assignments.get(member.member_id, b"")
        out.records.append(group.record())
        group.enter(State.STABLE, now_ms)
        for member in group.members.values():
            if self._wake_sync(group, member, synced(group, member), out):
                self._heard(group, member, now_ms, out)

    # Heartbeat.

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self._prolong(group, member, now_ms)
        rebalances = group.phase is State.PREPARING_REBALANCE
        return Decision(HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS if rebalances else Error.NONE))

    def committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """Prolong the session of a member that committed offsets, like a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.phase in (State.STABLE, State.PREPARING_REBALANCE):
            self._prolong(group, member, now_ms)

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        known = self._groups.get(request.group_id)
        if not isinstance(known, ClassicGroup):
            raise Refused(Error.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        group, out = known.draft(), GroupEffects()
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
        return self._decision(group, LeaveGroupResponse(error_code=Error.NONE, members=left), out)

    def _leave(self, group: ClassicGroup, identity: MemberIdentity, out: GroupEffects) -> Error:
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
            self._wake_join(group, member, join_refused(Error.UNKNOWN_MEMBER_ID), out)
        self._remove(group, member_id, out)
        return Error.NONE

    # Timers.

    def due(self, timer: Timer, now_ms: int, out: GroupEffects) -> None:
        """Handle a timer that is due. The result is accepted at once: it is dropped only together with the shard."""
        known = self._groups.get(timer.group_id)
        if not isinstance(known, ClassicGroup):
            return
        group = known.draft()
        match timer.due:
            case Due.SESSION:
                self._session_over(group, timer.member_id, now_ms, out)
            case Due.JOIN:
                self._join_over(group, now_ms, out)
            case Due.SYNC:
                self._sync_over(group, now_ms, out)
        self._accept(group, out)

    def _session_over(self, group: ClassicGroup, member_id: str, now_ms: int, out: GroupEffects) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_heard:
            return
        if member is not None:
            self._wake_join(group, member, join_refused(Error.UNKNOWN_MEMBER_ID), out)
        elif member_id not in group.pending_joins:
            return
        was_member = group.remove(member_id) is not None
        if was_member and group.phase in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(group, now_ms, out)
        elif group.phase is State.PREPARING_REBALANCE and group.have_all_joined:
            self._complete_join(group, now_ms, out)

    def _join_over(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        if group.phase is not State.PREPARING_REBALANCE:
            return
        if group.initial_delay is not None and group.member_was_added:
            delay_ms, remaining_ms = group.initial_delay
            if remaining_ms:
                group.member_was_added = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                self._delay(group, next_ms, max(remaining_ms - delay_ms, 0), now_ms, out)
                return
        self._complete_join(group, now_ms, out)

    def _sync_over(self, group: ClassicGroup, now_ms: int, out: GroupEffects) -> None:
        if group.phase not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_syncs:
            return
        for member_id in [*group.pending_syncs]:
            self._remove(group, member_id, out)
        self.prepare_rebalance(group, now_ms, out)

    # Members.

    def _remove(self, group: ClassicGroup, member_id: str, out: GroupEffects) -> None:
        group.remove(member_id)
        out.cancel_timer(Timer(Due.SESSION, group.group_id, member_id))

    def _prolong(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        """Restart the session of a member of the group itself, not of a draft."""
        timer = Timer(Due.SESSION, group.group_id, member.member_id)
        self._deadlines.set(timer, now_ms + member.session_timeout_ms)

    def _heard(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        now_ms: int,
        out: GroupEffects,
        timeout_ms: int | None = None,
    ) -> None:
        session_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        out.set_timer(Timer(Due.SESSION, group.group_id, member.member_id), now_ms + session_ms)

    def _wake_join(
        self, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, out: GroupEffects
    ) -> None:
        if member.join_token is not None:
            out.wake.append((member.join_token, response))
            group.own(member).join_token = None

    def _wake_sync(
        self, group: ClassicGroup, member: ClassicMember, response: SyncGroupResponse, out: GroupEffects
    ) -> bool:
        if member.sync_token is None:
            return False
        out.wake.append((member.sync_token, response))
        group.own(member).sync_token = None
        return True
